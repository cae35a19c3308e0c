"""How much of an edit a text has: what it adds that is there, what it removes that is not.

A line counts by what it says: the number of its letters and digits, up to a limit, so that braces
and blank lines decide nothing as long as there is anything else. What the base had already counts
for nothing: a score is 0 for the base itself and 1 where everything the edit adds stands in the
text, in order, and nothing that it removes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dsv4port.port.align import common_rows
from dsv4port.port.tokens import words

_SAYING = re.compile(rb"[A-Za-z_0-9\x80-\xff]")
_LONGEST = 40
_WORDS = 6
"""Words that the text must have gained to be recognised without one whole line."""

ENOUGH = 8
"""Letters and digits that a change must have for its presence to mean anything."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What a text has of an edit.

    Parameters:
        survives: share of the added lines that stand in the text, in order.
        gone: share of the removed lines that do not.
        words: share of the added words that stand in the text, in order.
        gained: added words that the text has more of than the base.
        weight: letters and digits of the added and removed lines.
        whole: whether the added lines stand there one below the other (or there are none).
        adds, removes: whether the edit adds or removes anything that says something.
    """

    survives: float
    gone: float
    words: float
    gained: int
    weight: int
    whole: bool
    adds: bool
    removes: bool

    @property
    def is_all(self) -> bool:
        """Whether the text has the edit as it is."""
        return self.whole and self.survives >= 1 and self.gone >= 1

    @property
    def is_most(self) -> bool:
        """Whether the text can only come from the edit, changed later."""
        if not self.adds or self.weight < ENOUGH:
            return False
        if self.removes and self.gone < 0.75:
            return False
        if self.survives >= 0.5 or (self.words >= 0.8 and self.survives > 0):
            return True
        # Not one line as it was, but every word of them, and enough to be no accident.
        return self.words >= 0.95 and self.gained >= (_WORDS if self.removes else 2 * _WORDS)

    @property
    def score(self) -> float:
        """One number from 0 to 1."""
        parts = []
        if self.adds:
            parts.append(max(self.survives, self.words * 0.9))
        if self.removes:
            parts.append(self.gone)
        return round(min(parts), 3) if parts else 0.0


def weight(line: bytes) -> int:
    """What a line counts."""
    return min(len(_SAYING.findall(line)), _LONGEST)


def changed_lines(
    before: Sequence[bytes], after: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """The lines that a change removes, and those that it adds."""
    if not before or not after:
        return list(before), list(after)
    pairs = common_rows(list(before), list(after))
    kept = {row for row, _ in pairs}
    written = {row for _, row in pairs}
    return (
        [line for row, line in enumerate(before) if row not in kept],
        [line for row, line in enumerate(after) if row not in written],
    )


def presence(
    before: Sequence[bytes],
    after: Sequence[bytes],
    base: Sequence[bytes],
    text: Sequence[bytes],
) -> Presence:
    """How much of the change of ``before`` to ``after`` the ``text`` has.

    Parameters:
        base: what ``text`` was before upstream changed it; it holds ``before``.
    """
    removed, added = changed_lines(before, after)
    adds = sum(map(weight, added))
    removes = sum(map(weight, removed))
    survives = _gain(added, base, text)
    gone = 1.0
    if removed:
        there = Counter(text)
        were = Counter(base)
        wanted = Counter(removed)
        total = lost = 0
        for line, count in wanted.items():
            share = weight(line) if removes else 1
            total += share * count
            missing = max(were[line] - there[line], 0)
            lost += share * min(missing, count)
        gone = lost / total if total else 1.0
    by_words, gained = 0.0, 0
    if adds and survives < 1:
        by_words, gained = _word_gain(words(added), words(base), words(text))
    return Presence(
        survives, gone, max(by_words, survives), gained, adds + removes,
        _stands(added, text), bool(adds), bool(removes),
    )  # fmt: skip


def _gain(added: list[bytes], base: Sequence[bytes], text: Sequence[bytes]) -> float:
    """Share of the weight of ``added`` that ``text`` has in order, beyond what ``base`` has."""
    if not added:
        return 1.0
    # Code that was only indented anew is still there.
    added, base, text = (
        [b" ".join(line.split()) for line in lines] for lines in (added, base, text)
    )
    weights = [weight(line) for line in added]
    if not sum(weights):
        weights = [1] * len(added)
    total = sum(weights)
    there = sum(weights[row] for row, _ in common_rows(added, list(text)))
    # Lines that the base has as often as the text are no sign of the edit.
    had, has = Counter(base), Counter(text)
    old = sum(
        share
        for line, share in zip(added, weights, strict=True)
        if had[line] and has[line] <= had[line]
    )
    if old >= total:
        return 0.0
    return max(there - old, 0) / (total - old)


def _word_gain(added: list[bytes], base: list[bytes], text: list[bytes]) -> tuple[float, int]:
    """Share of the words that ``text`` has in order beyond what ``base`` has, and their number."""
    there = len(common_rows(added, text))
    before = len(common_rows(added, base))
    if before >= len(added):
        return 0.0, 0
    gained = max(there - before, 0)
    return gained / (len(added) - before), gained


def _stands(added: list[bytes], text: Sequence[bytes]) -> bool:
    """Whether the added lines stand in the text one below the other."""
    if not added:
        return True
    lines = list(text)
    first = added[0]
    return any(
        line == first and lines[row : row + len(added)] == added for row, line in enumerate(lines)
    )
