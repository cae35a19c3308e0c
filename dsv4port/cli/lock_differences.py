"""Differences of two locks, as rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsv4port.apply.lock_differences import LockChange, LockPart, Value
from dsv4port.patch.quote import display_path

_NOTHING = "nothing"


def difference_rows(changes: Iterable[LockChange]) -> Iterator[dict[str, str]]:
    """Each difference as subject, what, expected (the lock) and found (now)."""
    for change in changes:
        yield {
            "subject": _subject(change),
            "what": change.field or change.part.value,
            "expected": _text(change.old),
            "found": _text(change.new),
        }


def _subject(change: LockChange) -> str:
    if change.part is LockPart.ORDER:
        return "patches"
    if isinstance(change.name, bytes):
        return display_path(change.name)
    return change.part.value if change.name is None else change.name


def _text(value: Value) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:06o}"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value.value)
