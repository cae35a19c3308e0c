"""The folder of a patchset's conflicts: for each patch the sides, the merge, and an explanation.

::

    report.json                         what became of every patch
    range-diff.txt                      the old and the new series compared
    <patch>/explanation.md, .json       why, and what upstream did there
    <patch>/base/<path>                 the file the patch was written for
    <patch>/theirs/<path>               what the patch makes of it
    <patch>/ours/<path>                 the file in the target, with the series so far
    <patch>/merged/<path>               the three merged, with markers
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from dsv4port.drift.findings import Finding
from dsv4port.patch.quote import display_path
from dsv4port.port.explain import ExplainedFile, ExplainedHunk, Explanation
from dsv4port.port.series_input import REPORT
from dsv4port.port.series_results import PatchsetPort, PortedPatch, SeriesPort

ARTIFACTS_FORMAT = 1


def artifacts(
    report: SeriesPort, one: PatchsetPort, explanations: Mapping[str, Explanation]
) -> dict[str, bytes]:
    """The files of the folder by their paths in it; none where nothing is in conflict."""
    if not one.conflicts:
        return {}
    rows = [
        {"file": patch.source.file, "fate": patch.fate.value, "resolution": _key(patch.resolution)}
        for patch in one.patches
    ]
    document = {
        "format": ARTIFACTS_FORMAT,
        "patchset": one.name,
        "from": report.old.name,
        "onto": report.new.name,
        "patches": rows,
    }
    files = {REPORT: _json(document)}
    if one.range_diff:
        files["range-diff.txt"] = one.range_diff.encode("utf-8", "replace")
    for patch in one.conflicts:
        explanation = explanations.get(patch.source.key)
        if explanation is None:
            continue
        name = patch.source.file.rpartition(".")[0]
        files[f"{name}/explanation.md"] = "\n".join(_markdown(report, explanation)).encode(
            "utf-8", "surrogateescape"
        )
        files[f"{name}/explanation.json"] = _json(explanation_fields(explanation))
        for found in explanation.files:
            for side, path, file in _sides(found):
                if file is not None:
                    files[f"{name}/{side}/{os.fsdecode(path)}"] = file
    return files


def _sides(found: ExplainedFile) -> Iterator[tuple[str, bytes, bytes | None]]:
    sides = found.sides
    source = sides.patch.old_path or sides.patch.path
    for side, path, file in (
        ("base", source, sides.base),
        ("theirs", sides.patch.path, sides.theirs),
        ("ours", sides.path, sides.ours),
        ("merged", sides.path, found.merged),
    ):
        yield side, path, None if file is None else file.content


def explanation_fields(one: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    assert one.patch.port is not None
    breaking = one.breaking
    return {
        "patch": one.patch.source.key,
        "outcome": one.patch.port.outcome.value,
        "depends": list(one.patch.port.depends),
        "hunks": [
            {
                "file": display_path(found.sides.patch.path),
                "path": display_path(found.sides.path),
                "number": hunk.report.number,
                "outcome": hunk.report.outcome.value,
                "reason": hunk.report.reason,
                "old_scope": hunk.report.old_scope,
                "new_scope": hunk.report.new_scope,
                "old_line": hunk.report.old_line,
                "new_line": hunk.report.new_line,
                "score": hunk.report.score,
                "hunk": _text(hunk.body),
                "upstream_scope": hunk.scope,
                "upstream_near": hunk.near,
                "upstream_diff": _text(hunk.upstream),
            }
            for found in one.files
            for hunk in found.hunks
        ],
        "breaking": None
        if breaking is None
        else {"commit": breaking.commit, "subject": breaking.subject},
        "history": one.history,
        "drift": [_drift(found) for found in one.patch.drift],
    }


def _drift(found: Finding) -> dict[str, Any]:
    return {
        "severity": found.severity.value,
        "kind": found.kind.value,
        "message": found.message,
        "old": None if found.old is None else str(found.old),
        "new": None if found.new is None else str(found.new),
        "replacement": found.replacement,
    }


def _markdown(report: SeriesPort, one: Explanation) -> Iterator[str]:
    assert one.patch.port is not None
    source = one.patch.source
    old, new = report.old.name, report.new.name
    yield f"# {source.key}: {old} → {new}"
    yield ""
    yield f"Outcome: {one.patch.port.outcome.value}. The patch is not in the new series."
    if one.patch.port.depends:
        yield ""
        yield (
            "It was written on top of patches that are in conflict themselves: "
            f"{', '.join(one.patch.port.depends)}. Resolve those first."
        )
    owner = next(member for member in report.members if member.name == source.patchset)
    known = owner.known_upstream(source.file)
    if known is not None:
        yield ""
        yield (
            f"The manifest knows it: {known.sentence}. If that is all of this patch, leave it out: "
            "open it as below, then `dsv4port resolve --skip --why TEXT`."
        )
    for stale in one.patch.stale:
        yield ""
        yield f"The kept resolution {stale.resolution.key} was not used: {stale.why}."
    for found in one.files:
        for hunk in found.hunks:
            yield from _hunk_markdown(found, hunk, old, new)
    yield ""
    yield "## When it broke"
    yield ""
    if one.breaking is not None:
        yield f"First with {one.breaking.commit}: {one.breaking.subject}"
        yield ""
    yield f"{one.history[:1].upper()}{one.history[1:]}."
    if one.patch.drift:
        yield ""
        yield "## What it depends on that changed"
        yield ""
        for row in one.patch.drift:
            places = ", ".join(str(place) for place in (row.old, row.new) if place is not None)
            yield f"- {row.severity.value}: {row.message}" + (f" ({places})" if places else "")
    yield ""
    yield "## How to go on"
    yield ""
    yield f"    {resolve_command(report, one.patch)}"
    yield ""


def resolve_command(report: SeriesPort, one: PortedPatch) -> str:
    """The command that opens a patch in conflict, in the surroundings it was ported in."""
    patch = one.source.key if report.stack is not None else one.source.file
    return (
        f"dsv4port resolve {report.name} {patch} --from {report.old.name} --onto {report.new.name}"
    )


def _hunk_markdown(found: ExplainedFile, hunk: ExplainedHunk, old: str, new: str) -> Iterator[str]:
    number = f", hunk {hunk.report.number}" if hunk.report.number else ""
    yield ""
    yield f"## {display_path(found.sides.path)}{number}"
    yield ""
    yield f"{hunk.report.outcome.value}: {hunk.report.reason}"
    for word, scope, line in (
        ("Written for", hunk.report.old_scope or hunk.scope, hunk.report.old_line),
        ("Found", hunk.report.new_scope, hunk.report.new_line),
    ):
        if scope is not None or line is not None:
            yield f"{word} {scope or 'the file'}" + (f", line {line}" if line else "") + "."
    if hunk.body:
        yield from ("", "The hunk:", "", *_quoted(hunk.body))
    where = f"in {hunk.scope}" if hunk.scope else "around it"
    if hunk.near is not None:
        where += f", around line {hunk.near} alone (it changed much more there),"
    if hunk.upstream:
        yield from ("", f"What upstream changed {where} from {old} to {new}:", "")
        yield from _quoted(hunk.upstream)
    elif found.sides.ours is None:
        yield from ("", f"{new} does not have the file.")
    else:
        yield from ("", f"Upstream changed nothing {where} from {old} to {new}.")


def _quoted(text: bytes) -> Iterator[str]:
    """A diff as a fenced block that nothing in it can close."""
    body = _text(text).rstrip("\n")
    fence = "```"
    while fence in body:
        fence += "`"
    yield f"{fence}diff"
    yield body
    yield fence


def _key(resolution: Any) -> str | None:
    return None if resolution is None else resolution.key


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()
