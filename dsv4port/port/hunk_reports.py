"""From decided edits to what is said of each hunk."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4port.port.edits import BaseEdits, Placed
from dsv4port.port.file_merge import Decided, FileMerge
from dsv4port.port.merge import Verdict
from dsv4port.port.outcomes import Decision, HunkReport, Outcome, Policy, Rung, combined
from dsv4port.port.placement import Place
from dsv4port.port.text import Text

_SHOWN_LINES = 400

_STRUCTURAL = (Verdict.ADJACENT, Verdict.BOTH_INSERT, Verdict.TOKENS)


def report_hunks(
    path: bytes,
    base: Text,
    located: BaseEdits,
    target: Text,
    merged: FileMerge,
    policy: Policy,
    *,
    relocated: str = "",
) -> list[HunkReport]:
    """One report for each hunk, in order.

    Parameters:
        relocated: why the target is another file than the patch names; empty when it is not.
    """
    reports: list[HunkReport] = []
    for index, placed in enumerate(located.placed):
        if placed is None:
            reports.append(not_in_base(path, index))
            continue
        decided = list(
            {id(one): one for edit in located.edits if edit.hunk == index
             for one in (merged.of(edit),)}.values()
        )  # fmt: skip
        reports.append(
            _report(path, index, placed, base, target, decided, merged, policy, relocated)
        )
    return reports


def not_in_base(path: bytes, index: int) -> HunkReport:
    """The report of a hunk that the base does not have."""
    return HunkReport(
        path, index + 1, Outcome.CONFLICT, None,
        "its context and removed lines are not in the base, so nothing can be merged: the patch "
        "was not written for this base",
    )  # fmt: skip


def exact_report(path: bytes, index: int, placed: Placed) -> HunkReport:
    """The report of a hunk whose target is its base."""
    line = placed.start + 1
    if not placed.moved and not placed.fuzz:
        return HunkReport(path, index + 1, Outcome.EXACT, Rung.EXACT, old_line=line, new_line=line)
    outcome = Outcome.OFFSET if not placed.fuzz else Outcome.MERGED
    return HunkReport(
        path, index + 1, outcome, Rung.OFFSET if not placed.fuzz else Rung.MERGE,
        f"stated at line {line - placed.moved}, found at line {line} of its base",
        old_line=line, new_line=line, review=placed.doubt,
    )  # fmt: skip


def _report(
    path: bytes, index: int, placed: Placed, base: Text, target: Text,
    decided: list[Decided], merged: FileMerge, policy: Policy, relocated: str,
) -> HunkReport:  # fmt: skip
    if not decided:
        return HunkReport(
            path, index + 1, Outcome.UPSTREAMED, Rung.PRESENCE, "it changes nothing in its base"
        )
    outcomes: list[Outcome] = []
    rungs: list[Rung] = []
    for one in decided:
        found = _rung(one, placed, base, target, merged)
        if relocated and found is not Rung.PRESENCE:
            found = Rung.RELOCATION
        rungs.append(found)
        outcomes.append(_outcome(one, found))
    outcome = combined(outcomes)
    # The one that decides is the one to speak of.
    speaker = decided[_speaker(outcomes, outcome)]
    rung = max(rungs, key=list(Rung).index) if outcome.done else None
    reason, review = _texts(speaker, outcome, placed, relocated)
    doubts = [review, *(one.resolution.doubt for one in decided)]
    if outcome.done and any(policy.of(each) is Decision.REFUSE for each in rungs):
        outcome, reason = Outcome.CONFLICT, f"the policy refuses what the rung found: {reason}"
        rung = None
    elif any(policy.of(each) is Decision.REVIEW for each in rungs):
        doubts.append(
            f"the policy asks to look at what the rung {rung.value} found" if rung else ""
        )
    old, new = speaker.proof.old, speaker.proof.new
    if speaker.moved is not None and old is None:
        old, new = speaker.moved
    scores = [one.resolution.score for one in decided if one.resolution.score is not None]
    first = speaker.resolution.edits[0]
    return HunkReport(
        path, index + 1, outcome, rung,
        reason if outcome is not Outcome.EXACT else "",
        None if old is None else old.name,
        None if new is None else new.name,
        first.first + 1,
        speaker.resolution.start + 1,
        None if target.path == path else target.path,
        "; ".join(dict.fromkeys(text for text in doubts if text)),
        min(scores) if scores else None,
        _upstream(speaker, target) if outcome in _SHOWN else None,
    )  # fmt: skip


_SHOWN = (Outcome.UPSTREAMED, Outcome.PARTLY_UPSTREAMED, Outcome.CONFLICT)


def _speaker(outcomes: Sequence[Outcome], outcome: Outcome) -> int:
    if outcome in outcomes:
        return outcomes.index(outcome)
    return next((at for at, one in enumerate(outcomes) if one is not Outcome.UPSTREAMED), 0)


def _rung(one: Decided, placed: Placed, base: Text, target: Text, merged: FileMerge) -> Rung:
    verdict = one.resolution.verdict
    if verdict.upstream:
        return Rung.PRESENCE
    if one.moved is not None:
        return Rung.RELOCATION
    if verdict in _STRUCTURAL:
        return Rung.STRUCTURAL
    if verdict is Verdict.CONFLICT:
        return Rung.MERGE
    edit = one.resolution.edits[0]
    shift = one.resolution.start - edit.first
    start = placed.start + shift
    size = len(placed.hunk.old_lines)
    if (
        placed.fuzz
        or start < 0
        or target.lines[start : start + size] != list(placed.hunk.old_lines)
    ):
        return Rung.MERGE
    return Rung.OFFSET if shift or placed.moved else Rung.EXACT


def _outcome(one: Decided, rung: Rung) -> Outcome:
    if one.misplaced:
        return Outcome.MISPLACED
    verdict = one.resolution.verdict
    if verdict is Verdict.CONFLICT:
        return Outcome.CONFLICT
    if verdict.upstream:
        return Outcome.UPSTREAMED
    return {
        Rung.EXACT: Outcome.EXACT,
        Rung.OFFSET: Outcome.OFFSET,
        Rung.RELOCATION: Outcome.RELOCATED,
    }.get(rung, Outcome.MERGED)


def _texts(one: Decided, outcome: Outcome, placed: Placed, relocated: str) -> tuple[str, str]:
    """The reason of a hunk, and what is in doubt."""
    found = one.resolution
    line, new_line = found.edits[0].first + 1, found.start + 1
    review = placed.doubt
    if one.misplaced:
        old, new = one.proof.old, one.proof.new
        return (
            f"it was written for {old} but would change {new} at line {new_line}; nothing proves "
            "that they are one",
            review,
        )
    if relocated and not found.verdict.upstream:
        reason = relocated
        if found.reason:
            reason += f"; {found.reason}"
        return reason, review
    if one.moved is not None:
        old, new = one.moved
        return f"upstream renamed {old} to {new}: found by its body", review
    if found.reason:
        where = f" (line {new_line})" if outcome.done else ""
        return f"{found.reason}{where}", review
    if outcome is Outcome.OFFSET:
        return f"moved from line {line} to line {new_line}{_in(one)}", review
    return (
        f"merged at line {new_line}{_in(one)}: upstream changed lines near it, none that it "
        "touches",
        review,
    )


def _in(one: Decided) -> str:
    if one.proof.place is Place.SAME and one.proof.new is not None:
        return f" in {one.proof.new.name}"
    return ""


def _upstream(one: Decided, target: Text) -> bytes | None:
    """What upstream has in the place of the edit, where that is not the edit itself."""
    if one.resolution.verdict is Verdict.PRESENT:
        return None
    rows = target.lines[one.resolution.start : one.resolution.stop]
    return b"".join(rows[:_SHOWN_LINES])
