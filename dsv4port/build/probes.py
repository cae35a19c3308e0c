"""Holding a target's probes against a machine and an environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from dsv4port.build.nvcc import Nvcc, find_nvcc
from dsv4port.build.targets import FolderProbe, ModuleProbe, Probe, ProgramProbe, Target
from dsv4port.errors import ToolchainError
from dsv4port.quick_dataclass import dataclass

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_TIMEOUT = 120.0


class ProbeOutcome(Enum):
    """What became of a probe."""

    FOUND = "found"
    """It is there, new enough."""
    LATER = "later"
    """The environment's packages bring it; asked once they are installed."""
    MISSING = "missing"
    """It is not there."""
    TOO_OLD = "too-old"
    """It is there in an older version than is needed."""
    UNUSABLE = "unusable"
    """It is there and lacks what is needed of it, or does not run."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe's answer. ``found`` says where or what it is, ``needed`` the least version."""

    subject: str
    outcome: ProbeOutcome
    why: str
    install: str
    version: str | None = None
    needed: str | None = None
    found: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against going on."""
        return self.outcome in (ProbeOutcome.FOUND, ProbeOutcome.LATER)


@dataclass(frozen=True, slots=True)
class Place:
    """Where probes look.

    Parameters:
        variables: the environment.
        python: the interpreter of the environment to build in, or of its base; None where there
            is none yet, so what its packages bring is asked later.
        programs: folders looked into before PATH.
    """

    variables: Mapping[str, str]
    python: Path | None = None
    programs: tuple[Path, ...] = ()

    def find_nvcc(self) -> Nvcc:
        """The CUDA compiler. Raises ToolchainError."""
        return find_nvcc(self.variables, site_folders(self.python))


def probe_all(target: Target, place: Place) -> list[ProbeResult]:
    """Every probe of the target, in its order."""
    return [_probe(one, place) for one in target.probes]


def require(results: Iterable[ProbeResult]) -> None:
    """Refuse to go on where a probe does not hold.

    Raises:
        ToolchainError: its details have every probe that does not hold, with the way out.
    """
    failed = [one for one in results if not one.holds]
    if not failed:
        return
    details = []
    for one in failed:
        version = f" {one.version}" if one.version else ""
        needed = f", needed is {one.needed} or newer" if one.needed else ""
        where = f" ({one.found})" if one.found else ""
        details.append(f"{one.subject}{version} is {one.outcome.value}{where}{needed}: {one.why}")
        details.append(f"  {one.install}")
    names = ", ".join(one.subject for one in failed)
    raise ToolchainError(f"the toolchain lacks {names}", fix=failed[0].install, details=details)


def site_folders(python: Path | None) -> tuple[Path, ...]:
    """Where an interpreter's packages lie; of this process without one."""
    import sys

    if python is None:
        return tuple(Path(entry) for entry in sys.path if entry.endswith("-packages"))
    code = "import json,sys; print(json.dumps([p for p in sys.path if p.endswith('-packages')]))"
    try:
        done = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, timeout=_TIMEOUT,
            check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return tuple(Path(entry) for entry in json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ToolchainError(
            f"{python} does not run as a Python interpreter",
            fix="name an environment that works", details=[str(error)],
        ) from error  # fmt: skip


def _probe(probe: Probe, place: Place) -> ProbeResult:
    if isinstance(probe, ProgramProbe):
        return (
            _probe_nvcc(probe, place) if probe.program == "nvcc" else _probe_program(probe, place)
        )
    if isinstance(probe, ModuleProbe):
        return _probe_module(probe, place)
    return _probe_folder(probe, place)


def _probe_nvcc(probe: ProgramProbe, place: Place) -> ProbeResult:
    try:
        nvcc = place.find_nvcc()
    except ToolchainError as error:
        return ProbeResult(
            "nvcc", ProbeOutcome.MISSING, probe.why, probe.install,
            needed=probe.minimum, found=error.what,
        )  # fmt: skip
    found = f"{nvcc.program} by {nvcc.origin.value}"
    return _versioned("nvcc", probe, nvcc.version, found)


def _probe_program(probe: ProgramProbe, place: Place) -> ProbeResult:
    path = _which(probe.program, place)
    if path is None:
        outcome = (
            ProbeOutcome.LATER if probe.packaged and place.python is None else ProbeOutcome.MISSING
        )
        return ProbeResult(probe.program, outcome, probe.why, probe.install, needed=probe.minimum)
    # g++'s own line may have the distribution's version before the compiler's.
    asks = "-dumpfullversion" if Path(probe.program).name in ("g++", "gcc") else "--version"
    try:
        done = subprocess.run(
            [str(path), asks], capture_output=True, text=True, errors="replace",
            timeout=_TIMEOUT, check=True, stdin=subprocess.DEVNULL, env=dict(place.variables),
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ProbeResult(
            probe.program, ProbeOutcome.UNUSABLE, probe.why, probe.install,
            needed=probe.minimum, found=f"{path} {asks} fails",
        )  # fmt: skip
    match = _NUMBERS.search(done.stdout + done.stderr)
    result = _versioned(probe.program, probe, match.group() if match else None, str(path))
    if result.outcome is ProbeOutcome.TOO_OLD and probe.packaged and place.python is None:
        return ProbeResult(
            probe.program, ProbeOutcome.LATER, probe.why, probe.install,
            result.version, result.needed, result.found,
        )  # fmt: skip
    return result


def _which(program: str, place: Place) -> Path | None:
    folders = [*place.programs, *map(Path, place.variables.get("PATH", os.defpath).split(":"))]
    for folder in folders:
        path = folder / program
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _probe_module(probe: ModuleProbe, place: Place) -> ProbeResult:
    if place.python is None:
        return ProbeResult(
            probe.module, ProbeOutcome.LATER, probe.why, probe.install, needed=probe.minimum
        )
    answer = _ask_python(probe, place.python)
    version = answer.get("version")
    if not answer.get("there"):
        return ProbeResult(
            probe.module, ProbeOutcome.MISSING, probe.why, probe.install,
            needed=probe.minimum, found=f"not importable by {place.python}",
        )  # fmt: skip
    if probe.having is not None and not answer.get("having"):
        return ProbeResult(
            probe.module, ProbeOutcome.UNUSABLE, probe.why, probe.install,
            version, probe.minimum, answer.get("error") or f"{probe.having} is empty",
        )  # fmt: skip
    return _versioned(probe.module, probe, version, None)


_ASK = """
import importlib, importlib.metadata, importlib.util, json, sys
module, having = sys.argv[1], sys.argv[2]
answer = {"there": importlib.util.find_spec(module) is not None}
try:
    names = importlib.metadata.packages_distributions().get(module.split(".")[0], [module])
    answer["version"] = importlib.metadata.version(names[0])
except (importlib.metadata.PackageNotFoundError, IndexError):
    pass
if having and answer["there"]:
    try:
        value = importlib.import_module(module)
        for name in having.split("."):
            value = getattr(value, name, None)
        answer["having"] = bool(value)
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(answer))
"""


def _ask_python(probe: ModuleProbe, python: Path) -> dict[str, str]:
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK, probe.module, probe.having or ""], capture_output=True,
            text=True, timeout=_TIMEOUT, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return answer
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ToolchainError(
            f"{python} cannot say whether it has {probe.module}",
            fix="name an environment that works with --base", details=[str(error)],
        ) from error  # fmt: skip


def _probe_folder(probe: FolderProbe, place: Place) -> ProbeResult:
    folder = Path(place.variables.get(probe.variable) or probe.default)
    there = (folder / probe.contains).exists()
    return ProbeResult(
        probe.variable, ProbeOutcome.FOUND if there else ProbeOutcome.MISSING, probe.why,
        probe.install, found=str(folder) if there else f"no {folder / probe.contains}",
    )  # fmt: skip


def _versioned(
    subject: str, probe: ProgramProbe | ModuleProbe, version: str | None, found: str | None
) -> ProbeResult:
    outcome = ProbeOutcome.FOUND
    if probe.minimum is not None:
        if version is None:
            outcome = ProbeOutcome.UNUSABLE
            found = "it does not say its version"
        elif _numbers(version) < _numbers(probe.minimum):
            outcome = ProbeOutcome.TOO_OLD
    return ProbeResult(subject, outcome, probe.why, probe.install, version, probe.minimum, found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))
