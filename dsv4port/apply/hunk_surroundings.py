"""What must be around a place for a hunk, and what is nearest where there is no place."""

from __future__ import annotations

import re
from collections import Counter

from dsv4port.apply.file_text import MAX_PLACES, FileText, stated_row, whole_match
from dsv4port.patch.model import Hunk

_SHORTEST_CUT = 40
_HEADING_LINE = re.compile(rb"^[A-Za-z_$][^\n]*", re.MULTILINE)
_PYTHON_HEADING_LINE = re.compile(
    rb"^[ \t]*((?:class|(?:async[ \t]+)?def)[ \t][^\n]*)", re.MULTILINE
)
_CONTEXT = ord(" ")


def heading_fits(section: bytes, path: bytes, above: bytes) -> bool:
    """Whether git would print this text after ``@@`` for a hunk below ``above``.

    By default git prints the nearest line above that begins with a letter, ``_`` or ``$``, cut
    to 80 bytes (GNU diff: 40); with its driver for Python, the nearest ``def`` or ``class``.
    """
    heading = section.strip()
    if not heading:
        return True
    lines = [_last(_HEADING_LINE, above, 0)]
    if path.endswith((b".py", b".pyi")):
        lines.append(_last(_PYTHON_HEADING_LINE, above, 1))
    return any(
        found is not None
        and found.startswith(heading)
        and (len(heading) >= _SHORTEST_CUT or found.rstrip() == heading)
        for found in lines
    )


def missed_anchors(hunk: Hunk, content: bytes, start: int) -> list[str]:
    """Where the hunk must match as for ``git apply`` but does not."""
    missed = []
    if hunk.old_start <= 1 and start != 0:
        missed.append("at the beginning of the file, since it starts at line 1")
    end = start + sum(map(len, hunk.old_lines))
    if hunk.kinds[-1] != _CONTEXT and end != len(content):
        missed.append("at the end of the file, since it has no context after its changes")
    return missed


def why_nowhere(hunk: Hunk, target: FileText) -> str:
    """The reason why a hunk stands nowhere in a file, with what is nearest to it."""
    old = b"".join(hunk.old_lines)
    new = b"".join(hunk.new_lines)
    elsewhere = whole_match(target.content, old)
    text = "the hunk's context and removed lines are nowhere in the file"
    if elsewhere is not None:
        text += " outside of what other hunks change"
    bare = old.replace(b"\r\n", b"\n")
    if elsewhere is None and bare in target.content.replace(b"\r\n", b"\n"):
        return f"{text}: only the line ends differ (CRLF and LF)"
    if new and (there := whole_match(target.content, new)) is not None:
        text += f"; the lines it would produce stand at line {target.row_of(there) + 1}"
    return text + _nearest(hunk, target)


def _nearest(hunk: Hunk, target: FileText) -> str:
    """The place where most of the preimage's lines stand, for the reason of a refusal."""
    rows_of: dict[bytes, list[int]] = {}
    wanted = {line for line in hunk.old_lines if line.strip()}
    for row, line in enumerate(target.content.split(b"\n")):
        if line + b"\n" in wanted or line in wanted:
            rows_of.setdefault(line, []).append(row)
    votes: Counter[int] = Counter()
    for index, line in enumerate(hunk.old_lines):
        for row in rows_of.get(line.removesuffix(b"\n"), ())[:MAX_PLACES]:
            votes[row - index] += 1
    votes = Counter({row: count for row, count in votes.items() if row >= 0})
    if not votes:
        return ""
    stated = stated_row(hunk)
    best = min(votes, key=lambda row: (-votes[row], abs(row - stated)))
    for index, line in enumerate(hunk.old_lines):
        if target.line(best + index) != line:
            solid = sum(1 for line in hunk.old_lines if line.strip())
            return (
                f"; nearest is line {best + 1}, where {votes[best]} of {solid} lines agree "
                f"and line {best + index + 1} is the first to differ"
            )
    return ""


def _last(pattern: re.Pattern[bytes], text: bytes, group: int) -> bytes | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return None if found is None else found[group]
