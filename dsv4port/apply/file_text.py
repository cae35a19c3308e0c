"""Where lines of a hunk stand in a file: byte for byte, and only as whole lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from dsv4port.patch.model import Hunk

if TYPE_CHECKING:
    from dsv4port.apply.scopes import ScopeMap

MAX_PLACES = 1000
"""Most places considered for one hunk; more are ambiguous without a look at their scopes."""

_FEED = 0x0A


def stated_row(hunk: Hunk) -> int:
    """The line (0-based) that a hunk's header names."""
    # Without old lines the header names the line after which to insert.
    return hunk.old_start - 1 if hunk.old_lines else hunk.old_start


def find_at_row(content: bytes, old: bytes, offset: int, rows: int) -> int | None:
    """Where ``old`` stands, if that is ``rows`` lines after the line at ``offset``."""
    if rows < 0:
        return None
    start = offset
    if not old:
        for _ in range(rows):
            start = content.find(b"\n", start) + 1
            if start == 0:
                return None
        return start if is_whole_lines(content, start, len(content)) else None
    while (at := content.find(old, start)) >= 0:
        rows -= content.count(b"\n", offset, at)
        if rows < 0:
            return None
        if rows == 0 and is_whole_lines(content, at, at + len(old)):
            return at
        offset, start = at, at + 1
    return None


def is_whole_lines(content: bytes, start: int, end: int) -> bool:
    """Whether a range of bytes begins and ends where lines do."""
    return (start == 0 or content[start - 1] == _FEED) and (
        end == len(content) or content[end - 1] == _FEED
    )


def ends_early(hunk: Hunk, content: bytes, end: int) -> bool:
    """Whether the hunk makes the file end without a line feed although more follows."""
    lines = hunk.new_lines
    return bool(lines) and not lines[-1].endswith(b"\n") and end != len(content)


def whole_match(content: bytes, lines: bytes) -> int | None:
    """The first place where these whole lines stand."""
    at = content.find(lines)
    while at >= 0:
        if is_whole_lines(content, at, at + len(lines)):
            return at
        at = content.find(lines, at + 1)
    return None


class FileText:
    """One version of the file: its bytes, where its lines start, and its scopes.

    ``taken`` are ranges of bytes that belong to hunks already.
    """

    def __init__(self, content: bytes, path: bytes) -> None:
        self.content = content
        self._path = path
        self._starts = [0, *(found.end() for found in re.finditer(rb"\n", content))]
        if content.endswith(b"\n") or not content:
            self._starts.pop()
        self.taken: list[tuple[int, int]] = []

    def row_of(self, offset: int) -> int:
        """The line (0-based) that the byte at `offset` belongs to."""
        return max(bisect_right(self._starts, offset) - 1, 0)

    def start_of(self, row: int) -> int:
        """The offset at which a line (0-based) starts; the end of the file after the last one."""
        return self._starts[row] if row < len(self._starts) else len(self.content)

    @property
    def scopes(self) -> ScopeMap | None:
        """The scopes of its lines; None without a grammar."""
        from dsv4port.apply.scopes import scope_map

        return scope_map(self._path, self.content)

    def lines(self, first: int, last: int) -> bytes:
        """The 1-based lines ``first`` to ``last``."""
        return self.content[self.start_of(first - 1) : self.start_of(last)]

    def line(self, row: int) -> bytes:
        """One line (0-based)."""
        return self.content[self.start_of(row) : self.start_of(row + 1)]

    def places(self, hunk: Hunk) -> list[int]:
        """Offsets at which the hunk's preimage matches, outside of ``taken``.

        At most one more than :data:`MAX_PLACES`.
        """
        return list(islice(self._places(hunk), MAX_PLACES + 1))

    def _places(self, hunk: Hunk) -> Iterator[int]:
        old = b"".join(hunk.old_lines)
        content = self.content
        at = content.find(old)
        while at >= 0:
            end = at + len(old)
            if is_whole_lines(content, at, end) and not any(
                start < end and at < stop for start, stop in self.taken
            ):
                yield at
            at = content.find(old, at + 1)
