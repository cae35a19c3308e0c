"""A file patch as edits of its base: what each hunk does to which rows, wherever it stands.

The base of a patch is what the patches before it made of the tree it was written for. A patch
states where each hunk stands in it, but series that were refreshed loosely state other lines, and
tools like quilt have always let a hunk move. So a hunk is looked for

1. at its stated line (moved by as much as the hunk before it was);
2. at the nearest other line where all of its lines stand;
3. with one, then two, of its outermost context lines left aside, as ``patch`` does.

What quilt or ``patch`` did with the hunk is what its author shipped, so 2 is right by definition;
where 2 had a choice, and always after 3, the port is marked for review. None of this decides where
the hunk goes in another tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4port.patch.model import Hunk

MAX_FUZZ = 2
"""Outermost context lines that may differ at each end, as for ``patch``."""

_CONTEXT, _REMOVED, _ADDED = b" -+"


@dataclass(frozen=True, slots=True)
class Edit:
    """Rows ``first`` up to ``stop`` (0-based, exclusive) of the base become ``lines``.

    ``hunk`` is the 0-based index of the hunk it belongs to.
    """

    first: int
    stop: int
    lines: tuple[bytes, ...]
    hunk: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.stop:
            raise ValueError(f"no such rows: {self.first} to {self.stop}")


@dataclass(frozen=True, slots=True)
class Placed:
    """A hunk in its base.

    Parameters:
        start: 0-based row of its first old line.
        moved: lines by which that differs from the stated one.
        fuzz: context lines left aside at each end.
        doubt: why the place is not certain; empty when it is.
    """

    hunk: Hunk
    start: int
    moved: int
    fuzz: int
    doubt: str


@dataclass(frozen=True, slots=True)
class BaseEdits:
    """What a file patch does to its base. ``missing`` are the indexes of hunks not found there."""

    edits: tuple[Edit, ...]
    placed: tuple[Placed | None, ...]

    @property
    def missing(self) -> list[int]:
        """Indexes of the hunks that are nowhere in the base."""
        return [index for index, found in enumerate(self.placed) if found is None]


def locate(base: Sequence[bytes], hunks: Sequence[Hunk]) -> BaseEdits:
    """Find every hunk in the lines of its base."""
    placed: list[Placed | None] = []
    edits: list[Edit] = []
    shift = end = 0
    for index, hunk in enumerate(hunks):
        found = _place(base, hunk, shift, end)
        placed.append(found)
        if found is None:
            continue
        shift = found.moved
        end = found.start + len(hunk.old_lines)
        edits += hunk_edits(base, found, index)
    return BaseEdits(tuple(edits), tuple(placed))


def hunk_edits(base: Sequence[bytes], found: Placed, index: int) -> list[Edit]:
    """The runs of changes of one hunk."""
    edits: list[Edit] = []
    row = first = found.start
    old = new = 0
    lines: list[bytes] = []
    changing = False
    hunk = found.hunk
    for kind in hunk.kinds:
        if kind == _CONTEXT:
            if changing:
                edits.append(_edit(base, first, row, lines, index))
                lines, changing = [], False
            row, old, new = row + 1, old + 1, new + 1
            continue
        if not changing:
            first, changing = row, True
        if kind == _REMOVED:
            row, old = row + 1, old + 1
        else:
            lines.append(hunk.new_lines[new])
            new += 1
    if changing:
        edits.append(_edit(base, first, row, lines, index))
    return [edit for edit in edits if tuple(base[edit.first : edit.stop]) != edit.lines]


def _edit(base: Sequence[bytes], first: int, stop: int, lines: list[bytes], hunk: int) -> Edit:
    """An edit without the lines at its ends that it only writes again."""
    start, end = 0, len(lines)
    while first < stop and start < end and base[first] == lines[start]:
        first, start = first + 1, start + 1
    while first < stop and start < end and base[stop - 1] == lines[end - 1]:
        stop, end = stop - 1, end - 1
    return Edit(first, stop, tuple(lines[start:end]), hunk)


def apply_edits(base: Sequence[bytes], edits: Sequence[Edit]) -> list[bytes]:
    """The lines of the base after the edits, which ascend."""
    result: list[bytes] = []
    row = 0
    for edit in edits:
        result += base[row : edit.first]
        result += edit.lines
        row = edit.stop
    result += base[row:]
    return result


def _place(base: Sequence[bytes], hunk: Hunk, shift: int, end: int) -> Placed | None:
    stated = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
    stated = max(stated, 0)
    if not hunk.old_lines:
        row = min(max(stated + shift, end), len(base))
        doubt = "" if row == stated else "it has neither context nor removed lines"
        return Placed(hunk, row, row - stated, 0, doubt)
    lead = _run(hunk.kinds, _CONTEXT)
    trail = _run(hunk.kinds[::-1], _CONTEXT)
    for fuzz in range(MAX_FUZZ + 1):
        cut, tail = min(fuzz, lead), min(fuzz, trail)
        if fuzz and cut == min(fuzz - 1, lead) and tail == min(fuzz - 1, trail):
            break
        found = _nearest(base, hunk, stated + shift, end, cut, tail)
        if found is None:
            continue
        row, others = found
        doubt = ""
        if fuzz:
            doubt = f"it was found in its base only without {fuzz} of its outer context lines"
        elif others and row != stated:
            doubt = (
                f"its lines stand {others + 1} times in its base, at line {row + 1} nearest to "
                f"the stated line {stated + 1}"
            )
        return Placed(hunk, row, row - stated, fuzz, doubt)
    return None


def _run(kinds: bytes, kind: int) -> int:
    return len(kinds) - len(kinds.lstrip(bytes([kind])))


def _nearest(
    base: Sequence[bytes], hunk: Hunk, wanted: int, end: int, cut: int, tail: int
) -> tuple[int, int] | None:
    """The row of the hunk's first old line nearest to ``wanted``, and how many others match.

    Others are not counted where it stands at ``wanted``.
    """
    old = hunk.old_lines[cut : len(hunk.old_lines) - tail]
    if not old:
        return None
    if wanted >= end and base[wanted + cut : wanted + cut + len(old)] == list(old):
        return wanted, 0
    rarest = min(range(len(old)), key=lambda row: -len(old[row]))
    line = old[rarest]
    rows = [
        row - rarest - cut
        for row, one in enumerate(base)
        if one == line
        and row - rarest >= max(end, cut)
        and base[row - rarest : row - rarest + len(old)] == list(old)
    ]
    if not rows:
        return None
    return min(rows, key=lambda row: (abs(row - wanted), row)), len(rows) - 1
