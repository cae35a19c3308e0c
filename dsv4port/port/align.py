"""Which line of one version is which line of another.

Two independent methods, so that a merge can be asked whether its answer hangs on the choice:

* PATIENCE anchors on lines that both sides have exactly once, in their longest common order, and
  fills the gaps between anchors with the second method. It follows what a person would say.
* MINIMAL is a longest common subsequence of all lines: the fewest lines that differ. A gap too
  large for it is first cut at anchors.

An alignment is a list: the new row of each old row, or -1. Rows are 0-based.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from enum import Enum

LARGEST_GAP = 40_000
"""Lines of a gap up to which it is aligned by a longest common subsequence (time and memory)."""


class Method(Enum):
    """How lines are matched."""

    PATIENCE = "patience"
    """By lines unique on both sides first."""
    MINIMAL = "minimal"
    """By a longest common subsequence."""


Alignment = list[int]


def align(old: Sequence[bytes], new: Sequence[bytes], method: Method) -> Alignment:
    """Match the lines of two versions."""
    result = [-1] * len(old)
    numbers: dict[bytes, int] = {}
    left = [numbers.setdefault(line, len(numbers)) for line in old]
    right = [numbers.setdefault(line, len(numbers)) for line in new]
    _fill(left, right, (0, len(left), 0, len(right)), result, method)
    return result


def _fill(
    left: list[int],
    right: list[int],
    whole: tuple[int, int, int, int],
    result: Alignment,
    method: Method,
) -> None:
    ranges = [whole]
    while ranges:
        first, stop, new_first, new_stop = ranges.pop()
        while first < stop and new_first < new_stop and left[first] == right[new_first]:
            result[first] = new_first
            first, new_first = first + 1, new_first + 1
        while first < stop and new_first < new_stop and left[stop - 1] == right[new_stop - 1]:
            stop, new_stop = stop - 1, new_stop - 1
            result[stop] = new_stop
        if first == stop or new_first == new_stop:
            continue
        anchors = (
            _anchors(left, right, first, stop, new_first, new_stop)
            if method is Method.PATIENCE or max(stop - first, new_stop - new_first) > LARGEST_GAP
            else []
        )
        if not anchors:
            _fill_gap(left, right, (first, stop, new_first, new_stop), result)
            continue
        for row, new_row in anchors:
            result[row] = new_row
            ranges.append((first, row, new_first, new_row))
            first, new_first = row + 1, new_row + 1
        ranges.append((first, stop, new_first, new_stop))


def _anchors(
    left: list[int], right: list[int], first: int, stop: int, new_first: int, new_stop: int
) -> list[tuple[int, int]]:
    """Rows of lines that are unique on both sides, in their longest common order."""
    old_count = Counter(left[first:stop])
    new_count = Counter(right[new_first:new_stop])
    place = {
        line: row
        for row, line in enumerate(right[new_first:new_stop], new_first)
        if new_count[line] == 1
    }
    pairs = [
        (row, place[line])
        for row, line in enumerate(left[first:stop], first)
        if old_count[line] == 1 and line in place
    ]
    return _longest_increasing(pairs)


def _longest_increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, in order of the first, whose second ascends."""
    ends: list[int] = []
    chain: list[int] = []
    before: list[int] = []
    for index, (_, value) in enumerate(pairs):
        at = bisect_left(ends, value)
        before.append(chain[at - 1] if at else -1)
        if at == len(ends):
            ends.append(value)
            chain.append(index)
        else:
            ends[at], chain[at] = value, index
    result: list[tuple[int, int]] = []
    index = chain[-1] if chain else -1
    while index >= 0:
        result.append(pairs[index])
        index = before[index]
    return result[::-1]


def _fill_gap(
    left: list[int], right: list[int], gap: tuple[int, int, int, int], result: Alignment
) -> None:
    first, stop, new_first, new_stop = gap
    if max(stop - first, new_stop - new_first) > LARGEST_GAP:
        return
    for row, new_row in common_rows(left[first:stop], right[new_first:new_stop]):
        result[first + row] = new_first + new_row


def common_rows(old: Sequence[object], new: Sequence[object]) -> list[tuple[int, int]]:
    """Pairs of indexes of a longest common subsequence."""
    from rapidfuzz.distance import LCSseq

    pairs: list[tuple[int, int]] = []
    for found in LCSseq.opcodes(old, new):
        if found.tag == "equal":
            pairs += zip(
                range(found.src_start, found.src_end),
                range(found.dest_start, found.dest_end),
                strict=True,
            )
    return pairs


def similarity(old: Sequence[object], new: Sequence[object]) -> float:
    """Twice the length of the longest common subsequence over both lengths: 0 to 1."""
    if not old and not new:
        return 1.0
    from rapidfuzz.distance import LCSseq

    return 2 * LCSseq.similarity(old, new) / (len(old) + len(new))
