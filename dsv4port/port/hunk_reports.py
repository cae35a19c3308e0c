"""From decided edits to what is said of each hunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv4port.port.edits import BaseEdits, Edit, Placed
from dsv4port.port.file_merge import Decided
from dsv4port.port.merge import Verdict
from dsv4port.port.moved_merge import Rehomed
from dsv4port.port.outcomes import HunkReport, Outcome, Policy, Rung, combined, judged
from dsv4port.port.placement import Place
from dsv4port.port.text import Text

_SHOWN_LINES = 400


@dataclass(frozen=True, slots=True)
class _Part:
    """An edit of a hunk, decided: in which text, and why that is another file than the patch's."""

    decided: Decided
    target: Text
    relocated: str


def report_hunks(
    path: bytes, base: Text, located: BaseEdits, target: Text, decided: Sequence[Decided],
    policy: Policy, *, relocated: str = "", moved: Mapping[Edit, Rehomed] | None = None,
) -> list[HunkReport]:  # fmt: skip
    """One report for each hunk, in order.

    Parameters:
        relocated: why the target is another file than the patch names; empty when it is not.
        moved: edits that were decided in another file than ``target``.
    """
    parts: dict[int, list[_Part]] = {}
    for one in decided:
        for hunk in dict.fromkeys(edit.hunk for edit in one.resolution.edits):
            parts.setdefault(hunk, []).append(_Part(one, target, relocated))
    for edit, found in (moved or {}).items():
        parts.setdefault(edit.hunk, []).append(_Part(found.decided, found.target, found.reason))
    reports: list[HunkReport] = []
    for index, placed in enumerate(located.placed):
        if placed is None:
            reports.append(not_in_base(path, index))
        else:
            reports.append(_report(path, index, placed, parts.get(index, []), policy))
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
    path: bytes, index: int, placed: Placed, parts: list[_Part], policy: Policy
) -> HunkReport:
    if not parts:
        return HunkReport(
            path, index + 1, Outcome.UPSTREAMED, Rung.PRESENCE, "it changes nothing in its base"
        )
    rungs = [_rung(part, placed) for part in parts]
    outcomes = [_outcome(part.decided, rung) for part, rung in zip(parts, rungs, strict=True)]
    outcome = combined(outcomes)
    # The one that decides is the one to speak of.
    speaker = parts[_speaker(outcomes, outcome)]
    one = speaker.decided
    rung = max(rungs, key=list(Rung).index) if outcome.done else None
    reason, review = _texts(speaker, outcome, placed)
    doubts = [review, *(part.decided.resolution.doubt for part in parts)]
    if any(part.decided.resolution.verdict is Verdict.CHANGED_LATER for part in parts):
        # Changed after it landed, or before: two trees cannot tell, and a person decides.
        doubts.append("upstream's text is not the patch's: compare them before dropping it")
    if any(
        rung is Rung.MERGE and part.decided.proof.place is Place.UNKNOWN and part.decided.settled
        for part, rung in zip(parts, rungs, strict=True)
    ):
        doubts.append("the scope of its lines is unknown, so their place is not proven")
    old, new = one.proof.old, one.proof.new
    if one.moved is not None and old is None:
        old, new = one.moved
    scores = [
        part.decided.resolution.score for part in parts if part.decided.resolution.score is not None
    ]
    report = HunkReport(
        path, index + 1, outcome, rung,
        reason if outcome is not Outcome.EXACT else "",
        None if old is None else old.name,
        None if new is None else new.name,
        one.resolution.edits[0].first + 1,
        one.resolution.start + 1,
        None if speaker.target.path == path else speaker.target.path,
        "; ".join(dict.fromkeys(text for text in doubts if text)),
        min(scores) if scores else None,
        _upstream(one, speaker.target) if outcome in _SHOWN else None,
    )  # fmt: skip
    return judged(report, policy, rungs)


_SHOWN = (Outcome.UPSTREAMED, Outcome.PARTLY_UPSTREAMED, Outcome.CONFLICT)


def _speaker(outcomes: Sequence[Outcome], outcome: Outcome) -> int:
    if outcome in outcomes:
        return outcomes.index(outcome)
    return next((at for at, one in enumerate(outcomes) if one is not Outcome.UPSTREAMED), 0)


def _rung(part: _Part, placed: Placed) -> Rung:
    one = part.decided
    verdict = one.resolution.verdict
    if verdict.upstream:
        return Rung.PRESENCE
    if verdict is Verdict.CONFLICT:
        return Rung.MERGE
    if one.moved is not None or part.relocated:
        return Rung.RELOCATION
    if verdict.finer:
        return Rung.STRUCTURAL
    shift = one.resolution.start - one.resolution.edits[0].first
    start = placed.start + shift
    old = list(placed.hunk.old_lines)
    if placed.fuzz or start < 0 or part.target.lines[start : start + len(old)] != old:
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


def _texts(part: _Part, outcome: Outcome, placed: Placed) -> tuple[str, str]:
    """The reason of a hunk, and what is in doubt."""
    one, relocated = part.decided, part.relocated
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
