"""Strict placement of the hunks of one file: the right place or a refusal, no fuzz ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dsv4port.apply.scopes import Scope
from dsv4port.patch.model import Hunk


class HunkOutcome(Enum):
    """What became of one hunk."""

    EXACT = "exact"
    """Applied at its stated line."""
    OFFSET = "offset"
    """Applied at another line, which is proven to be the right place."""
    NO_MATCH = "no-match"
    """Its context and removed lines are nowhere in the file, or not where they must be."""
    AMBIGUOUS = "ambiguous"
    """They match at several places and nothing proves which one is meant."""
    MISPLACED = "misplaced"
    """They match only in another scope than the one the hunk was written for."""
    UNPROVEN = "unproven"
    """They match, but what a proof needs is missing (the base, a known scope)."""
    BASE_MISMATCH = "base-mismatch"
    """The hunk is not what stands in the base that the patch names: it was edited by hand."""

    @property
    def applied(self) -> bool:
        """Whether the hunk is in the new content."""
        return self in (HunkOutcome.EXACT, HunkOutcome.OFFSET)


@dataclass(frozen=True, slots=True)
class HunkResult:
    """What became of one hunk, and why.

    Lines are 1-based. ``old_line`` is where the hunk's preimage starts in the base, ``new_line``
    where it was found in the target (before earlier hunks moved it; None when not applied),
    ``offset`` the difference. A scope is None where none was needed, or where it is unknown.
    ``reason`` is one sentence, empty for EXACT.
    """

    outcome: HunkOutcome
    old_line: int
    new_line: int | None = None
    old_scope: Scope | None = None
    new_scope: Scope | None = None
    reason: str = ""

    @property
    def offset(self) -> int:
        """Lines by which the place differs from the stated one; 0 when not applied."""
        return 0 if self.new_line is None else self.new_line - self.old_line


@dataclass(frozen=True, slots=True)
class FileResult:
    """The new content, or None when any hunk was refused, and one result per hunk in order."""

    content: bytes | None
    hunks: tuple[HunkResult, ...]


def apply_hunks(
    content: bytes,
    hunks: Sequence[Hunk],
    *,
    path: bytes,
    base: bytes | None,
    preimage_is_target: bool = False,
) -> FileResult:
    """Apply ``hunks``, all of them or none, to ``content``.

    Parameters:
        content: the file as it is in the target tree.
        path: decides which grammar reads the scopes.
        base: the file that the hunks were written for (the blob of ``old_id``), None if unknown.
        preimage_is_target: the caller knows that ``content`` is that file (equal blob ids).
    """
    raise NotImplementedError
