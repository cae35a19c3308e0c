"""A file in conflict as a person edits it: everything settled is merged, the rest has markers.

git's own three-way merge writes the markers (zdiff3: ours, base and theirs, without what both
sides share). It is given only what is really in conflict: hunks that found their place are put
into both sides first. Where git would merge what is refused here (a look-alike in another scope),
the markers are written all the same: nothing lands silently.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE
from dsv4port.git.process import Git
from dsv4port.patch.model import Hunk
from dsv4port.port.file_port import FilePorter, base_state, is_binary
from dsv4port.port.outcomes import HunkReport, Outcome, Policy
from dsv4port.port.series_results import ConflictFile
from dsv4port.port.text import split_lines


@dataclass(frozen=True, slots=True)
class Labels:
    """What the three sides are called in the markers."""

    ours: str
    base: str
    theirs: str


def marked(one: ConflictFile, hunks: Sequence[HunkReport], labels: Labels) -> File | None:
    """The file with markers; None where lines cannot say it (a side is missing or is no text).

    Parameters:
        hunks: the reports of this file's hunks.
    """
    if one.ours is None or one.theirs is None:
        return None
    sides = [one.ours, one.theirs, *([one.base] if one.base is not None else [])]
    if any(side.mode not in (MODE_FILE, MODE_EXECUTABLE) for side in sides):
        return None
    if any(is_binary(side.content) for side in sides):
        return None
    base, ours = _settled(one, hunks) or (
        b"" if one.base is None else one.base.content,
        one.ours.content,
    )
    content, conflicts = _merge_file(ours, base, one.theirs.content, labels)
    open_hunks = [report for report in hunks if not report.outcome.done]
    if not conflicts and open_hunks:
        content = _forced(one, open_hunks, ours, labels)
    return File(one.ours.mode, content)


def settled_file(one: ConflictFile, hunks: Sequence[HunkReport]) -> tuple[File | None] | None:
    """What a file of which nothing is in conflict becomes; None where that cannot be said here."""
    if all(report.outcome is Outcome.UPSTREAMED for report in hunks):
        return (one.ours,)
    if one.ours is None or one.theirs is None:
        return (one.theirs,)
    if not one.patch.hunks:
        return (File(one.theirs.mode, one.ours.content),) if one.patch.binary is None else None
    found = _settled(one, hunks)
    if found is None:
        return None
    changed = one.base is not None and one.base.mode != one.theirs.mode
    return (File(one.theirs.mode if changed else one.ours.mode, found[1]),)


def _settled(one: ConflictFile, hunks: Sequence[HunkReport]) -> tuple[bytes, bytes] | None:
    """Base and ours, both with every hunk that found its place; None where that does not work."""
    assert one.ours is not None
    done = {report.number for report in hunks if report.outcome.done and report.number}
    if one.base is None:
        return None
    if not done:
        return one.base.content, one.ours.content
    chosen = tuple(hunk for number, hunk in enumerate(one.patch.hunks, 1) if number in done)
    part = replace(one.patch, hunks=chosen)
    state = base_state(part, one.base)
    if state.problem or state.located is None or state.located.missing or state.after is None:
        return None
    ported = FilePorter(part, state, one.ours, one.path, occupant=None, policy=Policy({})).port()
    if not all(report.outcome.done for report in ported.reports):
        return None
    after = ported.changes.get(one.path, one.ours)
    return None if after is None else (state.after.content, after.content)


def _merge_file(ours: bytes, base: bytes, theirs: bytes, labels: Labels) -> tuple[bytes, int]:
    with tempfile.TemporaryDirectory(prefix="dsv4port-merge-") as name:
        files = []
        for label, content in (("ours", ours), ("base", base), ("theirs", theirs)):
            path = Path(name, label)
            path.write_bytes(content)
            files.append(str(path))
        # The exit code is the number of conflicts, as far as a code can say it.
        done = Git().run(
            "merge-file", "--zdiff3", "-p", "-L", labels.ours, "-L", labels.base,
            "-L", labels.theirs, *files, accept=range(128),
        )  # fmt: skip
    return done.stdout, done.code


def _forced(one: ConflictFile, hunks: Sequence[HunkReport], ours: bytes, labels: Labels) -> bytes:
    """Markers at the place that each hunk names, or at the end."""
    lines = split_lines(ours)
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    places: list[tuple[int, Hunk]] = []
    for report in hunks:
        if 0 < report.number <= len(one.patch.hunks):
            row = len(lines) if report.new_line is None else min(report.new_line - 1, len(lines))
            places.append((row, one.patch.hunks[report.number - 1]))
    for row, hunk in sorted(places, key=lambda place: place[0], reverse=True):
        lines[row:row] = [
            f"<<<<<<< {labels.ours}\n".encode(),
            f"||||||| {labels.base}\n".encode(),
            *_whole(hunk.old_lines),
            b"=======\n",
            *_whole(hunk.new_lines),
            f">>>>>>> {labels.theirs}\n".encode(),
        ]
    return b"".join(lines)


def _whole(lines: Sequence[bytes]) -> list[bytes]:
    return [line if line.endswith(b"\n") else line + b"\n" for line in lines]
