"""Proof that what was merged sits where it belongs.

What counts is the scope of the changed lines in the two results: the base with the patch, and the
target with the patch. Every line that an edit adds must have the same qualified scope in both;
where it only removes, the removed lines must have had the same one in base and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dsv4port.apply.scopes import Scope, same_scope
from dsv4port.port.text import Text


class Place(Enum):
    """What the proof says."""

    SAME = "same"
    """The same qualified scope."""
    MOVED = "moved"
    """A scope that provably is the old one under another name."""
    OTHER = "other"
    """Another scope."""
    UNKNOWN = "unknown"
    """One of the scopes is unknown: the code there does not parse."""
    NO_SCOPES = "no-scopes"
    """The language is not read: there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found, and the scopes that decide it."""

    place: Place
    old: Scope | None = None
    new: Scope | None = None


def compare(
    old: Text,
    old_rows: Sequence[int],
    new: Text,
    new_rows: Sequence[int],
    moves: Sequence[tuple[Scope, Scope]] = (),
) -> Proof:
    """Compare the scopes of rows pairwise; blank lines, which may lie between scopes, are skipped.

    Parameters:
        moves: (old, new) scopes that are proven to be one.
    """
    if old.scopes is None or new.scopes is None:
        return Proof(Place.NO_SCOPES)
    first: Proof | None = None
    unknown: Proof | None = None
    for row, new_row in zip(old_rows, new_rows, strict=True):
        if not old.lines[row].strip():
            continue
        before, after = old.scope(row), new.scope(new_row)
        if before is None or after is None:
            unknown = unknown or Proof(Place.UNKNOWN, before, after)
            continue
        place = Place.SAME
        if not same_scope(before, after):
            if not any(_is_moved(before, after, *move) for move in moves):
                return Proof(Place.OTHER, before, after)
            place = Place.MOVED
        if first is None or (place is Place.MOVED and first.place is Place.SAME):
            first = Proof(place, before, after)
    return unknown or first or Proof(Place.UNKNOWN)


def _is_moved(before: Scope, after: Scope, old: Scope, new: Scope) -> bool:
    """Whether ``after`` is ``before`` with the outer part ``old`` replaced by ``new``."""
    depth = len(old.steps)
    if before.steps[:depth] != old.steps and not (
        len(before.steps) >= depth
        and same_scope(Scope(before.steps[:depth], before.separator), old)
    ):
        return False
    inner, inner_after = before.steps[depth:], after.steps[len(new.steps) :]
    return (
        len(after.steps) == len(new.steps) + len(inner)
        and same_scope(Scope(after.steps[: len(new.steps)], after.separator), new)
        and same_scope(Scope(inner, before.separator), Scope(inner_after, after.separator))
    )
