"""``dsv4port port NAME --onto PIN``: what is said of a series on other pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dsv4port.cli.context import Run
from dsv4port.cli.port import hunk_row
from dsv4port.cli.render import Reply, columns, count, full_path
from dsv4port.errors import ConflictError

if TYPE_CHECKING:
    from dsv4port.manifest.project import Project
    from dsv4port.port.explain import Explanation
    from dsv4port.port.port_onto import PinPort, PortRequest
    from dsv4port.port.series_results import PatchsetPort, PortedPatch, SeriesPort
    from dsv4port.port.write_series import SeriesChange

_SHOWN_DRIFT = 5


def port_pins(run: Run, request: PortRequest, pins: Sequence[str], *, strict: bool) -> Reply:
    """Port to each pin in turn, say what became of it, and give the matrix of several."""
    from dsv4port.port.port_onto import port_onto
    from dsv4port.port.series_input import find_input
    from dsv4port.upstream.cache import Cache

    project, cache = run.project, Cache.locate()
    done: list[PinPort] = []
    run.fields.update({"name": request.name, "dry_run": request.dry_run})
    # Before anything is written: a new series must not become what the next pin is ported from.
    olds = [find_input(project, request.name, request.old_pin, pin).old_pin for pin in pins]
    for pin, old in zip(pins, olds, strict=True):
        one = replace(request, old_pin=old)
        done.append(port_onto(project, one, pin, cache, progress=run.progress))
        run.fields["pins"] = [pin_fields(project, one) for one in done]
        run.fields["matrix"] = matrix_fields([one.report for one in done])
    lines = [line for one in done for line in pin_lines(project, one)]
    if len(done) > 1:
        lines += ["", *matrix_lines([one.report for one in done])]
    conflicts = sum(len(one.report.conflicts) for one in done)
    if conflicts:
        raise ConflictError(
            f"{count(conflicts, 'patch', 'patches')} left to resolve",
            fix=way_out(done),
            details=lines,
        )
    doubts = strict and any(one.report.doubts for one in done)
    return Reply(lines=lines, exit_code=1 if doubts else 0)


def way_out(done: Sequence[PinPort]) -> str:
    """The command for the first conflict."""
    from dsv4port.port.artifacts import resolve_command

    first = next(one for one in done if one.report.conflicts)
    return resolve_command(first.report, first.report.conflicts[0])


# ---- JSON


def pin_fields(project: Project, one: PinPort) -> dict[str, Any]:
    """A port to one pin."""
    report = one.report
    changes = {change.patchset: change for change in one.changes}
    return {
        "from": report.old.name,
        "onto": report.new.name,
        "stack": report.stack,
        "tree": report.tree,
        "conflicts": len(report.conflicts),
        "stack_file": stack_fields(project, report),
        "patchsets": [
            _patchset_fields(member, changes.get(member.name), one.explanations)
            for member in report.members
        ],
    }


def stack_fields(project: Project, report: SeriesPort) -> dict[str, str] | None:
    """A stack file for the new pin, to be written by whoever wants it."""
    if report.stack is None:
        return None
    from dsv4port.manifest.stack import load_stack
    from dsv4port.port.new_stack import new_stack_name, new_stack_text

    name = new_stack_name(report)
    text = new_stack_text(report, name, load_stack(project, report.stack))
    return {"file": f"manifests/stacks/{name}.yaml", "text": text}


def _patchset_fields(
    one: PatchsetPort, change: SeriesChange | None, explanations: Mapping[str, Explanation]
) -> dict[str, Any]:
    return {
        "patchset": one.name,
        "along": not one.member.asked,
        "series": None
        if change is None
        else {
            "folder": full_path(change.folder),
            "state": change.written.value,
            "differences": list(change.differences),
            "manifest": change.manifest,
            "artifacts": None if change.artifacts is None else full_path(change.artifacts),
            "aside": change.aside,
        },
        "preconditions": [
            {"path": failure.probe.path, "found": failure.found, "why": failure.probe.why}
            for failure in one.preconditions
        ],
        "upstreamed": [
            {
                "pin": check.row.pin,
                "prs": list(check.row.prs),
                "verdict": check.verdict.value,
                "warning": check.verdict.is_warning,
                "text": check.sentence,
            }
            for check in one.checks
        ],
        "range_diff": one.range_diff,
        "patches": [_patch_fields(patch, explanations) for patch in one.patches],
    }


def _patch_fields(one: PortedPatch, explanations: Mapping[str, Explanation]) -> dict[str, Any]:
    port = one.port
    why = explanations.get(one.source.key)
    breaking = None if why is None or why.breaking is None else why.breaking
    resolution = one.resolution
    return {
        "file": one.source.file,
        "fate": one.fate.value,
        "outcome": None if port is None else port.outcome.value,
        "rung": None if port is None or port.rung is None else port.rung.value,
        "review": list(one.review),
        "depends": [] if port is None else list(port.depends),
        "without": False if port is None else port.without,
        "same_bytes": one.data == one.source.data,
        "resolution": None
        if resolution is None
        else {
            "key": resolution.key,
            "author": resolution.author,
            "date": resolution.date,
            "why": resolution.why,
        },
        "stale": [{"key": stale.resolution.key, "why": stale.why} for stale in one.stale],
        "upstream_parts": list(one.upstream_parts),
        "own_parts": list(one.own_parts),
        "breaking": None
        if breaking is None
        else {"commit": breaking.commit, "subject": breaking.subject},
        "drift": [
            {
                "severity": found.severity.value,
                "kind": found.kind.value,
                "message": found.message,
                "old": None if found.old is None else str(found.old),
                "new": None if found.new is None else str(found.new),
            }
            for found in one.drift
        ],
        "hunks": [] if port is None else [hunk_row(hunk) for hunk in port.hunks],
    }


def matrix_fields(reports: Sequence[SeriesPort]) -> list[dict[str, Any]]:
    """One row a patch: its cell for each pin."""
    from dsv4port.port.matrix import matrix

    return [
        {"patch": key, "cells": [{"pin": pin, "text": text} for pin, text in cells.items()]}
        for key, cells in matrix(reports).items()
    ]


# ---- for people


def matrix_lines(reports: Sequence[SeriesPort]) -> list[str]:
    """The matrix as a table."""
    from dsv4port.port.matrix import matrix

    pins = [report.new.name for report in reports]
    rows = [("patch", *pins)]
    rows += [(key, *cells.values()) for key, cells in matrix(reports).items()]
    return columns(rows)


def pin_lines(project: Project, one: PinPort) -> Iterator[str]:
    """A port to one pin."""
    report = one.report
    changes = {change.patchset: change for change in one.changes}
    for member in report.members:
        change = changes.get(member.name)
        yield f"{member.name}: {report.old.name} → {report.new.name}{_state(one, change)}"
        rows = []
        for patch in member.patches:
            rows.append((_outcome(patch), patch.source.file, _marks(patch)))
        yield from columns(rows, indent=2)
        for patch in member.patches:
            yield from _patch_lines(patch, one.explanations.get(patch.source.key))
            known = member.known_upstream(patch.source.file)
            if known is not None and not patch.fate.done:
                yield f"  {patch.source.file}: {known.sentence}; it may be one to --skip"
        for failure in member.preconditions:
            yield (
                f"  precondition does not hold: {failure.probe.path}: {failure.found}: "
                f"{failure.probe.why}"
            )
        for check in member.checks:
            mark = "WARNING: " if check.verdict.is_warning else ""
            yield f"  {mark}{check.sentence}"
        yield from _change_lines(one, change)
    offer = stack_fields(project, report)
    if offer is not None:
        yield f"a stack for {report.new.name} would be {offer['file']}:"
        for line in offer["text"].splitlines():
            yield f"  {line}"


def _state(one: PinPort, change: SeriesChange | None) -> str:
    if change is None:
        return " (comes along: it is required)"
    return f": {change.written.value}" + ("" if one.written else " (dry run: nothing written)")


def _outcome(patch: PortedPatch) -> str:
    if patch.port is None or not patch.fate.done or patch.fate.value == patch.port.outcome.value:
        return patch.fate.value if patch.port is None else patch.port.outcome.value
    return patch.port.outcome.value


def _marks(patch: PortedPatch) -> str:
    marks = []
    if patch.port is not None and patch.port.rung is not None:
        marks.append(patch.port.rung.value)
    if patch.review and patch.fate.done:
        marks.append("review")
    if patch.drift:
        marks.append(count(len(patch.drift), "drift finding"))
    return ", ".join(marks)


def _patch_lines(patch: PortedPatch, why: Explanation | None) -> Iterator[str]:
    from dsv4port.patch.quote import display_path

    head = f"  {patch.source.file}:"
    if patch.resolution is not None:
        one = patch.resolution
        reason = f": {one.why}" if one.why else ""
        yield f"{head} {one.decided.value} by {one.author}, {one.date} ({one.key}){reason}"
    for stale in patch.stale:
        yield f"{head} the resolution {stale.resolution.key} is not used: {stale.why}"
    port = patch.port
    if port is not None:
        if port.depends:
            how = "merged without" if port.without else "written on top of"
            yield f"{head} {how} what is in conflict: {', '.join(port.depends)}"
        for hunk in port.hunks:
            if hunk.reason and (not hunk.outcome.done or hunk.review or hunk.score is not None):
                number = f" hunk {hunk.number}" if hunk.number else ""
                text = f"{head} {display_path(hunk.path)}{number}: {hunk.outcome.value}: "
                yield text + hunk.reason + (f"; look: {hunk.review}" if hunk.review else "")
    if why is not None and why.breaking is not None:
        yield f"{head} first broken by {why.breaking.commit[:12]} {why.breaking.subject}"
    for found in patch.drift[:_SHOWN_DRIFT]:
        yield f"{head} drift: {found.severity.value}: {found.message}"
    if len(patch.drift) > _SHOWN_DRIFT:
        yield f"{head} drift: and {len(patch.drift) - _SHOWN_DRIFT} more, see `dsv4port drift`"


def _change_lines(one: PinPort, change: SeriesChange | None) -> Iterator[str]:
    from dsv4port.cli.render import shown_path

    if change is None:
        return
    if change.differences:
        yield f"  another series is in {shown_path(change.folder)}:"
        yield from (f"    {text}" for text in change.differences)
    if change.aside is not None:
        yield f"  what was there is in {change.aside}"
    if change.artifacts is not None and one.written:
        yield f"  conflicts are explained in {shown_path(change.artifacts)}"
