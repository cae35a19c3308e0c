"""``dsv4port drift``: what changed between two pins, and what of it a series depends on."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count, safe_line
from dsv4port.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from dsv4port.apply.engine import SeriesItem
    from dsv4port.drift.findings import Concern, Finding
    from dsv4port.drift.index import Place
    from dsv4port.manifest.pins import Pins
    from dsv4port.manifest.project import Project

_SHOWN_LINES = 3


class Threshold(str, Enum):
    """From which severity on a finding makes the answer no."""

    ERROR = "error"
    """Only what fails."""
    WARNING = "warning"
    """What fails or may do something else."""
    NOTE = "note"
    """Everything."""


@dataclass(frozen=True, slots=True)
class _Series:
    """The patches to look at, their files by key, and what they are called."""

    label: str
    items: Sequence[SeriesItem]
    files: dict[str, str]


def command(
    context: typer.Context,
    old: Annotated[
        str | None,
        typer.Option("--from", metavar="PIN", help="The pin that the series is written for."),
    ] = None,
    new: Annotated[str | None, typer.Option("--to", metavar="PIN", help="The other pin.")] = None,
    patchset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this patchset's series.")
    ] = None,
    stack: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at all patches of this stack.")
    ] = None,
    series: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Look at the patches of this folder.")
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Without a series: only files below this path."),
    ] = None,
    fail_on: Annotated[
        Threshold, typer.Option(help="From which severity on the answer is no.")
    ] = Threshold.WARNING,
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print a SARIF 2.1.0 log and nothing else.")
    ] = False,
) -> Reply:
    """Say what changed between two pins, and what of it the patches of a series depend on."""
    run = Run.of(context)
    if sarif and run.json:
        raise UsageError("--sarif and --json do not go together", fix="leave one out")
    if sum(choice is not None for choice in (patchset, stack, series)) > 1:
        raise UsageError(
            "--patchset, --stack and --series do not go together", fix="give one of them"
        )
    if under and (patchset or stack or series is not None):
        raise UsageError("--under goes without a series only", fix="leave it out")
    project = run.project
    from dsv4port.manifest.pins import load_pins

    pins = load_pins(project)
    chosen = _chosen(project, pins, old, patchset, stack, series)
    if chosen is not None and stack is not None:
        old = chosen[1]
    if old is None or new is None:
        raise UsageError(
            f"{'--from' if old is None else '--to'} is missing", fix="name a pin, see `list`"
        )
    findings = _find(run, pins, old, new, chosen[0] if chosen else None, tuple(under or ("",)))
    failed = [one for one in findings if one.severity.rank >= _rank(fail_on)]
    code = 1 if failed else 0
    files = chosen[0].files if chosen else {}
    if sarif:
        from dsv4port import __version__
        from dsv4port.drift.sarif import sarif_log

        log = sarif_log(findings, version=__version__, old=old, new=new, patch_files=files)
        return Reply(lines=[json.dumps(log)], exit_code=code)
    label = chosen[0].label if chosen else None
    counts = {
        severity: sum(one.severity.value == severity for one in findings)
        for severity in ("error", "warning", "note")
    }
    fields: dict[str, Any] = {
        "from": old,
        "to": new,
        "series": label,
        "fail_on": fail_on.value,
        "counts": counts,
        "findings": [_row(one, files) for one in findings],
    }
    return Reply(fields, _lines(old, new, label, findings, counts), code)


def _rank(threshold: Threshold) -> int:
    from dsv4port.drift.findings import Severity

    return Severity(threshold.value).rank


# ---- which patches


def _chosen(
    project: Project,
    pins: Pins,
    old: str | None,
    patchset: str | None,
    stack: str | None,
    series: Path | None,
) -> tuple[_Series, str] | None:
    """The patches, and the pin they are for (empty where only `old` says)."""
    if stack is not None:
        return _stack_series(project, stack, old)
    if patchset is not None:
        if old is None:
            raise UsageError("--from is missing", fix="name the pin of the series")
        return _patchset_series(project, pins, patchset, old), old
    if series is not None:
        return _folder_series(project, series.absolute()), old or ""
    return None


def _stack_series(project: Project, name: str, old: str | None) -> tuple[_Series, str]:
    from dsv4port.apply.inputs import read_patch_files
    from dsv4port.manifest.stack import resolve_stack

    found = resolve_stack(project, name)
    pin = found.stack.pin
    if old is not None and old != pin:
        raise UsageError(f"stack {name} is for {pin}, not for {old}", fix=f"use --from {pin}")
    files = read_patch_files(found)
    paths = {one.place.key: project.label(one.place.path) for one in files}
    return _Series(name, [one.item(project) for one in files], paths), pin


def _patchset_series(project: Project, pins: Pins, name: str, old: str) -> _Series:
    from dsv4port.manifest.patchset import load_patchset
    from dsv4port.manifest.series import load_series

    pins.pin(old)
    found = load_series(project, load_patchset(project, name, pins), old)
    paths = {f"{name}/{path.name}": path for path in found.paths}
    return _read(project, name, paths)


def _folder_series(project: Project, folder: Path) -> _Series:
    from dsv4port.apply.repo_apply import series_names

    return _read(
        project, project.label(folder), {name: folder / name for name in series_names(folder)}
    )


def _read(project: Project, label: str, paths: dict[str, Path]) -> _Series:
    from dsv4port.apply.engine import SeriesItem
    from dsv4port.apply.inputs import read_patch_bytes
    from dsv4port.patch.mailbox import parse_patch

    items = [
        SeriesItem(key, parse_patch(read_patch_bytes(path), project.label(path)))
        for key, path in paths.items()
    ]
    return _Series(label, items, {key: project.label(path) for key, path in paths.items()})


# ---- the work


def _find(
    run: Run, pins: Pins, old: str, new: str, series: _Series | None, under: tuple[str, ...]
) -> list[Finding]:
    from dsv4port.drift.applied import apply_to_pin
    from dsv4port.drift.changes import all_changes
    from dsv4port.drift.meaning import load_meanings, meanings_between
    from dsv4port.drift.series import Workbench, drift_of_series, folders_of
    from dsv4port.upstream.cache import Cache
    from dsv4port.upstream.pins import ensure_pin

    cache = Cache.locate()
    meanings = load_meanings(run.project, pins)
    old_pin = ensure_pin(pins.pin(old), cache, progress=run.progress)
    new_pin = ensure_pin(pins.pin(new), cache, progress=run.progress)
    if not cache.store.is_dir():
        raise BadInputError("the cache has no store", fix="run `dsv4port fetch` first")
    with Workbench(cache, run.progress) as bench:
        if series is None:
            tops = [path.partition("/")[0] for path in under]
            changes = all_changes(
                bench.index(old_pin, tops), bench.index(new_pin, tops), under=under
            )
            return sorted(changes, key=lambda one: one.sort_key)
        with _without_collector():
            applied = apply_to_pin(series.items, bench.reader, old_pin.commit)
            bench.learn(applied)
            folders = folders_of(applied)
            return drift_of_series(
                bench.index(old_pin, folders), bench.index(new_pin, folders), applied,
                meanings=meanings_between(meanings, pins, old, new),
            )  # fmt: skip


@contextmanager
def _without_collector() -> Iterator[None]:
    """Syntax trees have no cycles; looking for some takes a sixth of a run on one series."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ---- what is said


def _row(finding: Finding, files: dict[str, str]) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "message": finding.message,
        "old": _place(finding.old),
        "new": _place(finding.new),
        "replacement": finding.replacement,
        "evidence": list(finding.evidence),
        "concerns": [
            {
                "patch": one.patch,
                "file": files.get(one.patch),
                "patch_line": one.patch_line,
                "path": one.path,
                "line": one.line,
                "text": one.text,
            }
            for one in finding.concerns
        ],
    }


def _place(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"path": place.path, "line": place.line}


def _lines(
    old: str, new: str, label: str | None, findings: Sequence[Finding], counts: dict[str, int]
) -> list[str]:
    what = f"{label} from {old} to {new}" if label else f"{old} to {new}"
    if not findings:
        return [f"{what}: no drift"]
    said = ", ".join(count(number, severity) for severity, number in counts.items() if number)
    lines = [f"{what}: {said}"]
    for one in findings:
        lines += ["", f"{one.severity.value}: {one.kind.value}: {safe_line(one.message)}"]
        if one.old is not None or one.new is not None:
            lines.append(f"  {_trees(one.old, one.new)}")
        if one.replacement is not None:
            lines.append(f"  see {safe_line(one.replacement)}")
        if one.evidence:
            lines.append(f"  {'; '.join(map(safe_line, one.evidence))}")
        lines += [f"  {_concern(line)}" for line in one.concerns[:_SHOWN_LINES]]
        if len(one.concerns) > _SHOWN_LINES:
            lines.append(f"  and {count(len(one.concerns) - _SHOWN_LINES, 'line')} more")
    return lines


def _trees(old: Place | None, new: Place | None) -> str:
    parts = [f"was {old}"] if old is not None else []
    if new is not None:
        parts.append(f"now {new}")
    return safe_line(", ".join(parts))


def _concern(one: Concern) -> str:
    where = f"{one.patch}:{one.patch_line}" if one.patch_line else one.patch
    text = f": {one.text}" if one.text else ""
    return safe_line(f"{where} ({one.path}:{one.line}){text}" if one.line else f"{where}{text}")
