"""Merge what both sides changed on the same lines, where they changed different parts of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dsv4port.port.align import common_rows

_TOKEN = re.compile(rb"[A-Za-z_0-9\x80-\xff]+|[ \t]+|\r?\n|.", re.DOTALL)

_MOST_TOKENS = 4000
"""Tokens of a text up to which it is merged by tokens; a larger change is no small edit."""


def tokens(text: bytes) -> list[bytes]:
    """Words, runs of blanks, line ends and single marks; joined they are the text."""
    return _TOKEN.findall(text)


def words(lines: Sequence[bytes]) -> list[bytes]:
    """The tokens of some lines that are not white space."""
    return [token for token in tokens(b"".join(lines)) if not token.isspace()]


def merge_tokens(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes of ``base`` in one text; None where they meet.

    Two changes meet when no token that is more than white space stands unchanged between them.
    """
    old = tokens(base)
    if max(len(old), len(ours), len(theirs)) > 8 * _MOST_TOKENS or len(old) > _MOST_TOKENS:
        return None
    left, right = _changes(old, tokens(ours)), _changes(old, tokens(theirs))
    result: list[bytes] = []
    row = 0
    solid_since_change = True
    last_side = -1
    queue = sorted(
        [(first, stop, new, 0) for first, stop, new in left]
        + [(first, stop, new, 1) for first, stop, new in right],
        key=lambda change: (change[0], change[1], change[3]),
    )
    index = 0
    while index < len(queue):
        first, stop, new, side = queue[index]
        if index + 1 < len(queue) and queue[index + 1][:3] == (first, stop, new):
            # Both did the same.
            index += 1
            side = 2
        if first < row:
            return None
        between = old[row:first]
        if last_side >= 0 and side != last_side:
            solid_since_change = any(not token.isspace() for token in between)
            if not solid_since_change:
                return None
        result += between
        result += new
        row = stop
        last_side = side
        index += 1
    result += old[row:]
    return b"".join(result)


def _changes(old: list[bytes], new: list[bytes]) -> list[tuple[int, int, list[bytes]]]:
    changes: list[tuple[int, int, list[bytes]]] = []
    row = new_row = 0
    for at, new_at in [*common_rows(old, new), (len(old), len(new))]:
        if at > row or new_at > new_row:
            changes.append((row, at, new[new_row:new_at]))
        row, new_row = at + 1, new_at + 1
    return changes
