"""The whole of ``dsv4port port NAME --onto PIN``: read, port, check, explain, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dsv4port.apply.exclusive import exclusive
from dsv4port.errors import RefusedError
from dsv4port.git.repository import open_repository
from dsv4port.manifest.pins import Pin, load_pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import PullRequest
from dsv4port.port.explain import Explainer, Explanation
from dsv4port.port.history import merged_pull_requests, pin_commit
from dsv4port.port.journal import PortJournal
from dsv4port.port.series_drift import drift_by_patch
from dsv4port.port.series_input import PortInput, find_input
from dsv4port.port.series_port import PortOptions, port_to_pin
from dsv4port.port.series_results import SeriesPort
from dsv4port.port.write_series import SeriesChange, plan_writing, write_port
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.progress import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class PortRequest:
    """What is asked for.

    Parameters:
        name: a patchset or stack.
        old_pin: the pin to port from; None: the stack's own, or the nearest before the new one.
        options: how to port.
        drift: look for API drift.
        history: a repository with upstream's history.
        dry_run: write nothing.
        overwrite: another series for the new pin is put aside.
    """

    name: str
    old_pin: str | None = None
    options: PortOptions = field(default_factory=PortOptions)
    drift: bool = True
    history: Path | None = None
    dry_run: bool = False
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class PinPort:
    """A port to one pin: what it says, what was (or would be) written, why it conflicts."""

    report: SeriesPort
    changes: tuple[SeriesChange, ...]
    explanations: Mapping[str, Explanation]
    written: bool


def port_onto(
    project: Project,
    request: PortRequest,
    new_pin: str,
    cache: Cache,
    *,
    allowed: Callable[[SeriesPort], Mapping[str, Mapping[str, bytes]]] | None = None,
    locked: bool = False,
    progress: Progress = NO_PROGRESS,
) -> PinPort:
    """Port a patchset or stack to one pin.

    Parameters:
        allowed: which existing series may be replaced, see :func:`write_port`.
        locked: the caller holds the project's lock, and finished what was interrupted.

    Raises:
        RefusedError: another series is there for the new pin.
        BadInputError: a name, manifest, patch or resolution is not what it must be.
        SeriesConflictError: the series does not apply to its own pin.
    """
    with ExitStack() as held:
        if not request.dry_run and not locked:
            held.enter_context(
                exclusive(project.state_folder / "lock", f"the project {project.root}")
            )
            finish_interrupted(project, progress)
        elif request.dry_run:
            _require_finished(project)
        pins = load_pins(project)
        source = find_input(project, request.name, request.old_pin, new_pin, pins)
        old = ensure_pin(pins.pin(source.old_pin), cache, progress=progress)
        new = ensure_pin(pins.pin(new_pin), cache, progress=progress)
        drift = (
            drift_by_patch(project, pins, source, old, new, cache, progress=progress)
            if request.drift
            else {}
        )
        report = port_to_pin(
            project, pins, source, old, new, options=request.options, drift=drift,
            merged=_merged(request, source, pins.pin(new_pin)), progress=progress,
        )  # fmt: skip
        explainer = Explainer(report, pins, request.options.policy, request.history)
        explanations = explainer.explain_all()
        if request.dry_run:
            return PinPort(report, plan_writing(project, pins, report), explanations, False)
        changes = write_port(
            project, pins, report, explanations, overwrite=request.overwrite,
            allowed=allowed(report) if allowed is not None else None,
        )  # fmt: skip
        return PinPort(report, changes, explanations, True)


def finish_interrupted(project: Project, progress: Progress = NO_PROGRESS) -> None:
    """Finish the writing of an earlier port; the caller holds the project's lock."""
    moved = PortJournal(project).recover()
    if moved:
        progress.notice(f"an interrupted port was finished first: {', '.join(moved)}")


def _require_finished(project: Project) -> None:
    if (project.state_folder / "port" / "journal.json").is_file():
        raise RefusedError(
            "the writing of an earlier port was interrupted",
            fix="run the port without --dry-run, or `dsv4port resolve --status`: that finishes it",
        )


def _merged(request: PortRequest, source: PortInput, pin: Pin) -> dict[PullRequest, str]:

    if request.history is None:
        return {}
    history = open_repository(request.history)
    commit = pin_commit(history, pin)
    wanted: Sequence[PullRequest] = [
        number
        for member in source.members
        for row in member.patchset.upstreamed
        for number in row.prs
    ]
    return {} if commit is None else merged_pull_requests(history, commit, wanted)
