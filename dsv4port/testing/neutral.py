"""What tests said, without the places of the machine they ran on: those would differ every time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dsv4port.testing.results import TestRow

_LONGEST = 400


def neutral_rows(rows: Iterable[TestRow], places: Iterable[tuple[Path, str]]) -> list[TestRow]:
    """Rows whose reasons are short and name no folder of the machine.

    Parameters:
        places: folders, and the word that stands for each.
    """
    # The deepest first: one lies inside of another.
    words = sorted(((str(path), word) for path, word in places), key=lambda one: -len(one[0]))
    return [
        TestRow(
            row.id, row.outcome, _neutral(row.reason, words), row.seconds, row.markers, row.measured
        )
        for row in rows
    ]


def _neutral(reason: str | None, words: list[tuple[str, str]]) -> str | None:
    if reason is None:
        return None
    for place, word in words:
        reason = reason.replace(place, word)
    return reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
