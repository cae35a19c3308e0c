"""How alike two pieces of text are, cheaply: shares of common lines or pairs of tokens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

_TOKEN = re.compile(rb"\w+|[^\w\s]")
_LONGEST = 200_000


def line_likeness(old: bytes, new: bytes) -> float:
    """Twice the common non-blank lines over all of them, 0 to 1; the order does not count."""
    return _shared(_lines(old), _lines(new))


def token_likeness(old: bytes, new: bytes) -> float:
    """The same for pairs of neighbouring tokens."""
    return _shared(_pairs(old[:_LONGEST]), _pairs(new[:_LONGEST]))


def _lines(text: bytes) -> Counter[bytes]:
    return Counter(line for one in text.splitlines() if len(line := one.strip()) > 1)


def _pairs(text: bytes) -> Counter[tuple[bytes, bytes]]:
    tokens = _TOKEN.findall(text)
    return Counter(pairwise(tokens))


def _shared(old: Counter[bytes] | Counter[tuple[bytes, bytes]], new: object) -> float:
    assert isinstance(new, Counter)
    total = old.total() + new.total()
    return 2 * (old & new).total() / total if total else 1.0


def blanked(lines: Iterable[bytes], word: str) -> set[bytes]:
    """Lines that use `word`, with a mark in its place, and no white space at the ends.

    A line that uses it several times also comes with each single place marked.
    """
    bare = word.encode()
    pattern = re.compile(rb"\b" + re.escape(bare) + rb"\b")
    found: set[bytes] = set()
    for line in lines:
        if bare not in line:
            continue
        line = line.strip()
        spans = [one.span() for one in pattern.finditer(line)]
        found.update(line[:start] + b"\0" + line[end:] for start, end in spans)
        if len(spans) > 1:
            found.add(pattern.sub(b"\0", line))
    return found
