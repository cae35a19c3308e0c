"""What stands above a line where no grammar says which function it is in.

A line belongs to the lines above it that are indented less, each less than the one below it: the
branch, the function, the class. Lines at the margin belong to the nearest ``[section]``. That is no
proof of a place as a scope is, but it tells look-alikes apart: where a merge leads from under one
heading to under another, and both versions have both, it has most likely slipped into the twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4port.port.presence import weight
from dsv4port.port.text import Text

_TAB = 8
_FAR = 3000
"""Lines above a line in which its headings are looked for."""
_COMMENTS = (b"#", b"//", b"*", b"/*", b";", b"%", b"--")


def headings(lines: Sequence[bytes], row: int) -> tuple[bytes, ...]:
    """The lines above a 0-based row that it belongs to, innermost first.

    Blanks in them are single spaces. Empty where the outermost is too far away to look for.
    """
    depth = _depth(lines[row])
    found: list[bytes] = []
    at = row
    while depth and at:
        at -= 1
        if row - at > _FAR:
            return ()
        text = lines[at].lstrip()
        if not text or _depth(lines[at]) >= depth or text.startswith(_COMMENTS):
            continue
        if weight(text):
            depth = _depth(lines[at])
            found.append(_plain(text))
    section = _section(lines, at)
    return (*found, section) if section else tuple(found)


@dataclass(frozen=True, slots=True)
class Slip:
    """A line that came under another heading: the one that it was written below, and why."""

    heading: bytes
    reason: str


def slipped(
    old: Text, old_row: int, new: Text, new_row: int, base: Text, target: Text
) -> Slip | None:
    """Whether a line seems to have come under another heading; None where nothing says so.

    Parameters:
        old, old_row: the line where the patch has it.
        new, new_row: the line where the merge has it.
        base, target: the versions before the patch; a heading that only one of them has was
            renamed, and says nothing.
    """
    before, after = headings(old.lines, old_row), headings(new.lines, new_row)
    for ours, theirs in zip(reversed(before), reversed(after), strict=False):
        if ours == theirs:
            continue
        if target.counts[ours] and base.counts[theirs]:
            return Slip(
                ours,
                f"it was written below `{_shown(ours)}` and is below `{_shown(theirs)}` here; "
                "both versions have both",
            )
        return None
    return None


def rows_below(lines: Sequence[bytes], heading: bytes) -> tuple[int, int] | None:
    """Rows (first, stop) of a heading and all that is below it; None where it is not unique."""
    found = [row for row, line in enumerate(lines) if _plain(line) == heading]
    if len(found) != 1:
        return None
    row = found[0]
    depth = _depth(lines[row])
    section = _is_section(lines[row])
    for at in range(row + 1, len(lines)):
        ends = _is_section(lines[at]) if section else _depth(lines[at]) <= depth
        if ends and weight(lines[at]) and not lines[at].lstrip().startswith(_COMMENTS):
            return row, at
    return row, len(lines)


def _depth(line: bytes) -> int:
    """Columns of indentation."""
    blanks = line[: len(line) - len(line.lstrip(b" \t"))]
    return len(blanks.expandtabs(_TAB))


def _plain(line: bytes) -> bytes:
    return b" ".join(line.split())


def _section(lines: Sequence[bytes], row: int) -> bytes:
    for at in range(row - 1, max(row - _FAR, 0) - 1, -1):
        # Most lines are none, and there are many.
        if lines[at][0] == 0x5B and _is_section(lines[at]):
            return _plain(lines[at])
    return b""


def _is_section(line: bytes) -> bool:
    return line.startswith(b"[") and line.rstrip().endswith(b"]")


def _shown(heading: bytes) -> str:
    text = heading.decode("utf-8", "replace")
    return text if len(text) <= 60 else text[:57] + "..."
