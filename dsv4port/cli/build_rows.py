"""What the modes of ``dsv4port build`` share: what they are asked, and the shape of the answer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import columns
from dsv4port.errors import UsageError
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.build.probes import ProbeResult
    from dsv4port.build.targets import Target


@dataclass(frozen=True, slots=True)
class Asked:
    """What every mode is asked: target names, only a plan, how many jobs, the variables."""

    names: Sequence[str]
    plan: bool
    jobs: int
    variables: Mapping[str, str]

    def targets(self) -> list[Target]:
        """The targets. Raises BadInputError for an unknown one."""
        from dsv4port.build.targets import load_target

        if len(set(self.names)) != len(self.names):
            raise UsageError("--target names a target twice", fix="name each once")
        return [load_target(name) for name in self.names]


def answer_fields(mode: str, asked: Asked, **own: Any) -> dict[str, Any]:
    """The JSON object: the same keys in every mode, empty where they have nothing to say."""
    return {
        "mode": mode,
        "targets": list(asked.names),
        "planned": asked.plan,
        "probes": [],
        "steps": [],
        "checks": [],
        "artifacts": [],
        "environment": None,
        "receipt": None,
        "log": None,
        **own,
    }


def check_row(kind: str, subject: str, outcome: str, detail: str) -> dict[str, str]:
    """A row of ``checks``."""
    return {"check": kind, "subject": subject, "outcome": outcome, "detail": detail}


def check_lines(checks: Iterable[Mapping[str, str]]) -> list[str]:
    """The same for people."""
    return columns((one["outcome"], one["check"], one["subject"], one["detail"]) for one in checks)


def probe_rows(probes: Iterable[ProbeResult]) -> list[dict[str, Any]]:
    """Probes as JSON."""
    return [
        {
            "subject": one.subject,
            "outcome": one.outcome.value,
            "version": one.version,
            "needed": one.needed,
            "found": one.found,
            "install": one.install,
        }
        for one in probes
    ]


def probe_lines(probes: Iterable[ProbeResult]) -> list[str]:
    """Probes for people."""
    rows = []
    for one in probes:
        about = " ".join(part for part in (one.version, one.found) if part)
        if one.needed is not None:
            about += f" (needed: {one.needed})"
        rows.append((one.outcome.value, one.subject, about if one.holds else f"{about}: "
                     f"{one.install}".lstrip(": ")))  # fmt: skip
    return columns(rows)


def step_lines(steps: Iterable[Mapping[str, Any]]) -> list[str]:
    """Commands for people, as a shell takes them."""
    lines = []
    for step in steps:
        lines.append(f"{step['name']}:")
        lines += [f"  {shlex.quote(one)}" for one in step["environment"]]
        lines.append(f"  {shlex.join(step['command'])}")
    return lines


def shown_architectures(architectures: Iterable[str]) -> str:
    """``sm_90, sm_120``."""
    return ", ".join(f"sm_{one}" for one in architectures)
