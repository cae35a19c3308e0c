"""What only a finished merge shows: lines run together, or a look-alike taken for the edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsv4port.port.edits import Edit, apply_edits
from dsv4port.port.file_merge import Decided
from dsv4port.port.headings import slipped
from dsv4port.port.merge import Resolution, Verdict
from dsv4port.port.placement import Place, Proof
from dsv4port.port.presence import weight
from dsv4port.port.text import Text


def last_looks(
    base: Text, edits: Sequence[Edit], target: Text, decided: Sequence[Decided]
) -> list[Decided]:
    """The same, with a conflict where lines would run together, and doubts where one is due."""
    theirs = Text(base.path, apply_edits(base.lines, edits))
    rows: dict[Edit, int] = {}
    shift = 0
    for edit in edits:
        rows[edit] = edit.first + shift
        shift += len(edit.lines) - (edit.stop - edit.first)
    result: list[Decided] = []
    for one in decided:
        found = one.resolution
        if found.lines is not None and _runs_together(target, found):
            one = _conflict(found)
        elif one.slip is not None:
            one = _doubted(one, one.slip.reason)
        elif found.verdict is Verdict.PRESENT and len(found.edits) == 1:
            edit = found.edits[0]
            if any(map(weight, edit.lines)):
                one = _doubted(one, _twin_has_it(base, theirs, rows[edit], target, found))
            else:
                one = _doubted(one, _only_gone(base, target, edit))
        result.append(one)
    return result


def _doubted(one: Decided, doubt: str) -> Decided:
    """The same with one more doubt."""
    found = one.resolution
    if not doubt:
        return one
    doubt = "; ".join(filter(None, (found.doubt, doubt)))
    return replace(one, resolution=replace(found, doubt=doubt))


def _conflict(found: Resolution) -> Decided:
    return Decided(
        Resolution(
            found.edits, Verdict.CONFLICT, found.start, found.stop, None,
            "one side has no newline at the end of the file, where the other has further lines",
            found.score,
        ),
        Proof(Place.UNKNOWN),
    )  # fmt: skip


def _runs_together(target: Text, found: Resolution) -> bool:
    """Whether a line without an end would come before another one."""
    assert found.lines is not None
    before = target.lines[found.start - 1 : found.start] if found.start else []
    rest = target.lines[found.stop : found.stop + 1]
    pieces = [*before, *found.lines, *rest]
    return any(not line.endswith(b"\n") for line in pieces[:-1])


def _only_gone(base: Text, target: Text, edit: Edit) -> str:
    """Why it is not sure that upstream removed the lines for the patch's reason."""
    block = base.lines[edit.first : edit.stop]
    if not any(map(weight, block)):
        return ""
    if _times(target, block) >= _times(base, block):
        return "the lines that it removes stand in the file as often as before"
    beside = [*base.lines[: edit.first][-2:], *base.lines[edit.stop : edit.stop + 2]]
    telling = [line for line in beside if weight(line)]
    if telling and not any(target.counts[b" ".join(line.split())] for line in telling):
        return "upstream removed them together with what is around them"
    return ""


def _times(text: Text, block: Sequence[bytes]) -> int:
    """How often a block of lines stands in a text."""
    wanted = list(block)
    return sum(
        line == wanted[0] and text.lines[row : row + len(wanted)] == wanted
        for row, line in enumerate(text.lines)
    )


def _twin_has_it(base: Text, theirs: Text, first: int, target: Text, found: Resolution) -> str:
    """Why what upstream has may be a look-alike's change; empty where nothing says so.

    Parameters:
        first: row of the edit's first line in ``theirs``.
    """
    lines = found.edits[0].lines
    row = max(range(len(lines)), key=lambda at: weight(lines[at]))
    there = [
        at
        for at in range(found.start, min(found.stop, len(target.lines)))
        if target.lines[at] == lines[row]
    ]
    if len(there) != 1:
        return ""
    slip = slipped(theirs, first + row, target, there[0], base, target)
    return "" if slip is None else slip.reason
