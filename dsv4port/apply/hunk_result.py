"""What becomes of a hunk, and of the file that its hunks belong to."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.apply.scopes import Scope


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
    """They match only in another scope than the one the hunk was written for, or out of order."""
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

    def __post_init__(self) -> None:
        if self.outcome.applied != (self.new_line is not None):
            raise ValueError("an applied hunk has a line, a refused one has none")

    @property
    def offset(self) -> int:
        """Lines by which the place differs from the stated one; 0 when not applied."""
        return 0 if self.new_line is None else self.new_line - self.old_line


@dataclass(frozen=True, slots=True)
class FileResult:
    """The new content, or None when any hunk was refused, and one result per hunk in order."""

    content: bytes | None
    hunks: tuple[HunkResult, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Makes the results of one refused hunk."""

    line: int

    def because(
        self,
        outcome: HunkOutcome,
        reason: str,
        old_scope: Scope | None = None,
        new_scope: Scope | None = None,
    ) -> HunkResult:
        return HunkResult(outcome, self.line, None, old_scope, new_scope, reason)
