"""Merge what both sides changed on the same lines, where they changed different parts of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dsv4port.port.align import common_rows

_TOKEN = re.compile(rb"[A-Za-z_0-9\x80-\xff]+|[ \t]+|\r?\n|.", re.DOTALL)

_MOST_TOKENS = 4000
"""Tokens of a text up to which it is merged by tokens; a larger change is no small edit."""
_SAYS = 5
"""Letters that a change must add for its presence to mean anything."""


def tokens(text: bytes) -> list[bytes]:
    """Words, runs of blanks, line ends and single marks; joined they are the text."""
    return _TOKEN.findall(text)


def words(lines: Sequence[bytes]) -> list[bytes]:
    """The tokens of some lines that are not white space."""
    return [token for token in tokens(b"".join(lines)) if not token.isspace()]


def merge_tokens(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes of ``base`` in one text; None where they meet.

    Two changes meet when they change one token, or insert at one place something that is more than
    white space; where only one of the two insertions is, it comes first.
    """
    old = tokens(base)
    if max(len(old), len(ours), len(theirs)) > 8 * _MOST_TOKENS or len(old) > _MOST_TOKENS:
        return None
    changes = sorted(
        [(*change, 0) for change in _changes(old, tokens(ours))]
        + [(*change, 1) for change in _changes(old, tokens(theirs))],
        key=lambda change: (change[0], change[1], _is_space(change[2]), change[3]),
    )
    result: list[bytes] = []
    row = 0
    before: tuple[int, int, list[bytes], int] | None = None
    for change in changes:
        first, stop, new, _ = change
        if before is not None and change[:3] == before[:3]:
            # Both did the same.
            continue
        if first < row or (before is not None and _meet(before, change)):
            return None
        result += old[row:first]
        result += new
        row = stop
        before = change
    result += old[row:]
    return b"".join(result)


def _is_space(new: list[bytes]) -> bool:
    return all(token.isspace() for token in new)


def _meet(
    before: tuple[int, int, list[bytes], int], after: tuple[int, int, list[bytes], int]
) -> bool:
    """Whether two changes of different sides insert at one place, so that their order matters."""
    if before[3] == after[3] or before[1] < after[0]:
        return False
    both_insert = before[0] == before[1] and after[0] == after[1]
    return both_insert and not (_is_space(before[2]) or _is_space(after[2]))


def _changes(old: list[bytes], new: list[bytes]) -> list[tuple[int, int, list[bytes]]]:
    changes: list[tuple[int, int, list[bytes]]] = []
    row = new_row = 0
    for at, new_at in [*common_rows(old, new), (len(old), len(new))]:
        if at > row or new_at > new_row:
            changes.append((row, at, new[new_row:new_at]))
        row, new_row = at + 1, new_at + 1
    return changes


def has_changes(base: bytes, ours: bytes, theirs: bytes) -> bool:
    """Whether ``ours`` has every change that ``theirs`` made of ``base``, alone or within a larger.

    False where they are no more than marks or short words: those meet by accident.
    """
    old = tokens(base)
    if max(len(old), len(ours), len(theirs)) > 8 * _MOST_TOKENS or len(old) > _MOST_TOKENS:
        return False
    mine = _changes(old, tokens(ours))
    wanted = _changes(old, tokens(theirs))
    says = 0
    for first, stop, new in wanted:
        if not any(
            start <= first and stop <= end and _within(new, made) for start, end, made in mine
        ):
            return False
        says += sum(len(token) for token in new if len(token) > 2 and not token.isspace())
    return says >= _SAYS


def _within(new: list[bytes], made: list[bytes]) -> bool:
    """Whether the tokens that are no white space stand in ``made`` one after the other."""
    solid = [token for token in new if not token.isspace()]
    other = [token for token in made if not token.isspace()]
    return any(other[at : at + len(solid)] == solid for at in range(len(other) - len(solid) + 1))
