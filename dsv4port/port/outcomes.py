"""The words of a port: what became of a hunk and of a patch, on which rung, and under which policy.

A *rung* is the method that found the answer, tried in the order of :class:`Rung`. A *policy* says
for each rung whether its answers are taken, taken but marked for review, or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class Outcome(Enum):
    """What became of a hunk or of a patch; of a patch's hunks the least certain one decides."""

    EXACT = "exact"
    """In the result, at the line it was written for."""
    OFFSET = "offset"
    """In the result, its lines unchanged around it, at another line of the same scope."""
    MERGED = "merged"
    """In the result by a merge with what upstream changed around it."""
    RELOCATED = "relocated"
    """In the result, in the file or scope to which upstream moved what it changes."""
    UPSTREAMED = "upstreamed"
    """Not applied: upstream has it, as it is or changed later."""
    PARTLY_UPSTREAMED = "partly-upstreamed"
    """Upstream has one part; the rest is in the result."""
    CONFLICT = "conflict"
    """Not in the result: a person must decide."""
    MISPLACED = "misplaced"
    """Not in the result: it would land in another scope than the one it was written for."""

    @property
    def done(self) -> bool:
        """Whether nothing is left for a person to resolve."""
        return self not in (Outcome.CONFLICT, Outcome.MISPLACED)


class Rung(Enum):
    """The method that decided a hunk, in the order of trial."""

    EXACT = "exact"
    """All lines of the hunk, context included, at the same line."""
    OFFSET = "offset"
    """All lines of the hunk at another line."""
    MERGE = "merge"
    """A 3-way merge by lines, as git does it."""
    STRUCTURAL = "structural"
    """A merge finer than lines that touch: neighbouring lines, list entries, tokens."""
    RELOCATION = "relocation"
    """The code was moved or renamed, and the merge was made at its new home."""
    PRESENCE = "presence"
    """Upstream has the change: by merge, or by the lines it left."""


class Decision(Enum):
    """What a policy says of a rung."""

    ACCEPT = "accept"
    """Its answers are taken."""
    REVIEW = "review"
    """They are taken, and marked as what a person should look at; only doubts are marked where
    the rung itself can tell sure answers from doubtful ones."""
    REFUSE = "refuse"
    """They are conflicts."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The decision for each rung; a rung that is not named is accepted.

    An answer that is in doubt for a reason of its own is marked for review whatever the policy
    says: `ACCEPT` never silences a doubt.
    """

    decisions: Mapping[Rung, Decision] = field(
        default_factory=lambda: {
            Rung.STRUCTURAL: Decision.REVIEW,
            Rung.RELOCATION: Decision.REVIEW,
        }
    )

    def of(self, rung: Rung) -> Decision:
        """The decision for a rung."""
        return self.decisions.get(rung, Decision.ACCEPT)


@dataclass(frozen=True, slots=True)
class HunkReport:
    """What became of one hunk (or of what a file patch does besides its hunks).

    Parameters:
        path: the file in the patch.
        new_path: the file in the result, where it is another one; else None.
        number: 1-based number of the hunk in its file; 0 for the file's existence, mode or name.
        outcome: what became of it.
        rung: what decided it; None for a conflict that no rung could decide.
        old_scope, new_scope: for people; None where the language is not read or nothing was needed.
        old_line, new_line: 1-based first changed line in the base and in the target.
        reason: one sentence; empty for EXACT.
        review: why a person should look at it; empty when nothing is in doubt.
        score: 0 to 1, how much of the hunk upstream has; None where that was not asked.
        upstream: what upstream made of the hunk's lines later, where it has them changed.
    """

    path: bytes
    number: int
    outcome: Outcome
    rung: Rung | None
    reason: str = ""
    old_scope: str | None = None
    new_scope: str | None = None
    old_line: int | None = None
    new_line: int | None = None
    new_path: bytes | None = None
    review: str = ""
    score: float | None = None
    upstream: bytes | None = None

    def __post_init__(self) -> None:
        if self.outcome is not Outcome.EXACT and not self.reason:
            raise ValueError("every outcome but EXACT has a reason")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"a score is between 0 and 1, not {self.score}")


def judged(report: HunkReport, policy: Policy, rungs: Iterable[Rung] = ()) -> HunkReport:
    """A report after the policy had its say about its rung, and about ``rungs`` used beside it."""
    if not report.outcome.done or report.rung is None:
        return report
    used = list(dict.fromkeys((*rungs, report.rung)))
    refused = [rung.value for rung in used if policy.of(rung) is Decision.REFUSE]
    if refused:
        return replace(
            report, outcome=Outcome.CONFLICT, rung=None,
            reason=f"the policy refuses what the rung `{refused[0]}` found"
            + (f": {report.reason}" if report.reason else ""),
        )  # fmt: skip
    look = [rung.value for rung in used if policy.of(rung) is Decision.REVIEW]
    if not look:
        return report
    text = f"the policy asks to look at what the rung `{look[-1]}` found"
    if text in report.review:
        return report
    return replace(report, review="; ".join(filter(None, (report.review, text))))


_DOUBT = (
    Outcome.EXACT,
    Outcome.OFFSET,
    Outcome.MERGED,
    Outcome.RELOCATED,
)


def combined(outcomes: list[Outcome]) -> Outcome:
    """The outcome of a whole from those of its parts (at least one)."""
    for bad in (Outcome.CONFLICT, Outcome.MISPLACED):
        if bad in outcomes:
            # A patch that is misplaced in one hunk and in conflict in another is in conflict.
            return bad
    there = [one in (Outcome.UPSTREAMED, Outcome.PARTLY_UPSTREAMED) for one in outcomes]
    if any(there):
        whole = all(one is Outcome.UPSTREAMED for one in outcomes)
        return Outcome.UPSTREAMED if whole else Outcome.PARTLY_UPSTREAMED
    return max(outcomes, key=_DOUBT.index)
