"""What becomes of edits where upstream changed lines beside them, or the same lines.

Within a region, upstream's own changes are edits of the base too. An edit of the patch and one of
upstream's can be the same, touch, insert at one place, or overlap; only overlapping lines need more
than lines to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv4port.port.align import LARGEST_GAP, Alignment, similarity
from dsv4port.port.edits import Edit, apply_edits
from dsv4port.port.merge import Region, Resolution, Verdict
from dsv4port.port.presence import presence
from dsv4port.port.tokens import has_changes, merge_tokens, words

_SAME = 0.85
"""Similarity of words from which an insertion is another one, written a little differently."""
_ENOUGH_WORDS = 6
_ALIKE = 0.6
"""Similarity of words from which two pieces of code are versions of each other."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What upstream did: base rows ``first`` to ``stop`` are target rows ``start`` to ``end``."""

    first: int
    stop: int
    start: int
    end: int


def resolve(
    base: Sequence[bytes], region: Region, target: Sequence[bytes], alignment: Alignment
) -> list[Resolution]:
    """The resolutions of all edits of a region."""
    inner = [
        Edit(one.first - region.first, one.stop - region.first, one.lines, one.hunk)
        for one in region.edits
    ]
    if apply_edits(base[region.first : region.stop], inner) == list(
        target[region.start : region.end]
    ):
        # Also where equal lines leave open which of them each side removed.
        return [_present(edit, region.start, region.end) for edit in region.edits]
    changes = _changes(region, alignment)
    result: list[Resolution] = []
    for edits, meeting in _clusters(region.edits, changes):
        if not meeting:
            edit = edits[0]
            start, stop = _rows(edit, region, alignment)
            result.append(_touching(base, edit, changes, start, stop, target))
        else:
            result += _meet(base, edits, meeting, target, alignment, region)
    return result


def _present(edit: Edit, start: int, end: int) -> Resolution:
    return Resolution(
        (edit,), Verdict.PRESENT, start, end, None, "upstream made the same change", 1.0
    )


def _changes(region: Region, alignment: Alignment) -> list[_Change]:
    changes: list[_Change] = []
    row, new_row = region.first, region.start
    for at in range(region.first, region.stop + 1):
        if at < region.stop and alignment[at] < 0:
            continue
        new_at = alignment[at] if at < region.stop else region.end
        if at > row or new_at > new_row:
            changes.append(_Change(row, at, new_row, new_at))
        row, new_row = at + 1, new_at + 1
    return changes


def _overlap(edit: Edit, change: _Change) -> bool:
    """Whether they change a line together, or insert at one place."""
    if edit.first == edit.stop and change.first == change.stop:
        return edit.first == change.first
    if edit.first == edit.stop:
        return change.first < edit.first < change.stop
    if change.first == change.stop:
        return edit.first < change.first < edit.stop
    return edit.first < change.stop and change.first < edit.stop


def _clusters(
    edits: Sequence[Edit], changes: Sequence[_Change]
) -> list[tuple[list[Edit], list[_Change]]]:
    """Edits with the changes they overlap, joined where they share one."""
    clusters: list[tuple[list[Edit], list[_Change]]] = []
    for edit in edits:
        meeting = [change for change in changes if _overlap(edit, change)]
        if meeting and clusters and clusters[-1][1] and meeting[0] is clusters[-1][1][-1]:
            clusters[-1][0].append(edit)
            clusters[-1][1].extend(meeting[1:])
        else:
            clusters.append(([edit], meeting))
    return clusters


def _rows(edit: Edit, region: Region, alignment: Alignment) -> tuple[int, int]:
    """Target rows of an edit that overlaps no change."""
    if edit.first < edit.stop:
        return alignment[edit.first], alignment[edit.stop - 1] + 1
    if edit.first > region.first and alignment[edit.first - 1] >= 0:
        row = alignment[edit.first - 1] + 1
    elif edit.first < region.stop:
        row = alignment[edit.first]
    else:
        row = region.end
    if edit.first == region.first:
        row = region.start
    return row, row


def _touching(
    base: Sequence[bytes],
    edit: Edit,
    changes: Sequence[_Change],
    start: int,
    stop: int,
    target: Sequence[bytes],
) -> Resolution:
    """An edit whose own lines are unchanged."""
    beside = [change for change in changes if edit.first in (change.first, change.stop)
              or edit.stop in (change.first, change.stop)]  # fmt: skip
    if not beside:
        return Resolution((edit,), Verdict.CLEAN, start, stop, edit.lines, "")
    for change in beside:
        # A block that grew upstream by what is inserted beside it.
        found = presence(
            base[edit.first : edit.stop], edit.lines,
            base[min(edit.first, change.first) : max(edit.stop, change.stop)],
            target[min(start, change.start) : max(stop, change.end)],
        )  # fmt: skip
        if found.adds and found.is_all:
            return Resolution(
                (edit,), Verdict.PRESENT, min(start, change.start), max(stop, change.end), None,
                "upstream made the same change beside other ones", 1.0,
            )  # fmt: skip
        if found.adds and found.is_most:
            return Resolution(
                (edit,), Verdict.CHANGED_LATER, min(start, change.start), max(stop, change.end),
                None, "upstream has this change with changes of its own on top", found.score,
            )  # fmt: skip
    doubt = ""
    for change in beside:
        was, became = base[change.first : change.stop], target[change.start : change.end]
        if was and len(became) < len(was) and edit.first == edit.stop:
            doubt = "it inserts beside lines that upstream removed"
        elif was and similarity(words(was), words(became)) < _ALIKE and edit.first == edit.stop:
            doubt = "it inserts beside lines that upstream wrote anew"
    return Resolution(
        (edit,), Verdict.ADJACENT, start, stop, edit.lines,
        "upstream changed the lines right beside it, not those it changes", None, doubt,
    )  # fmt: skip


def _meet(
    base: Sequence[bytes],
    edits: list[Edit],
    meeting: list[_Change],
    target: Sequence[bytes],
    alignment: Alignment,
    region: Region,
) -> list[Resolution]:
    """Edits that overlap upstream's changes."""
    first = min(edits[0].first, meeting[0].first)
    stop = max(edits[-1].stop, meeting[-1].stop)
    start = meeting[0].start
    if first < meeting[0].first:
        start = alignment[first]
    end = meeting[-1].end
    if stop > meeting[-1].stop:
        end = alignment[stop - 1] + 1
    was, became = base[first:stop], target[start:end]
    local = [Edit(one.first - first, one.stop - first, one.lines, one.hunk) for one in edits]
    if apply_edits(was, local) == list(became):
        return [_present(edit, start, end) for edit in edits]
    if max(len(was), len(became)) > LARGEST_GAP:
        why = "too many lines around it differ to be compared"
        return [Resolution(tuple(edits), Verdict.CONFLICT, start, end, None, why)]
    result: list[Resolution] = []
    left: list[tuple[Edit, Edit, float]] = []
    for edit, inner in zip(edits, local, strict=True):
        found = presence(was[inner.first : inner.stop], inner.lines, was, became)
        alike = _kept_in_other_words(was[inner.first : inner.stop], inner.lines, became)
        if found.is_all and not alike:
            result.append(
                Resolution((edit,), Verdict.PRESENT, start, end, None,
                           "upstream made the same change among others", 1.0)
            )  # fmt: skip
        elif found.is_most:
            result.append(
                Resolution((edit,), Verdict.CHANGED_LATER, start, end, None,
                           "upstream has this change with changes of its own on top", found.score)
            )  # fmt: skip
        else:
            left.append((edit, inner, found.score))
    if left:
        result += _undecided(was, left, became, start, end)
    return result


def _kept_in_other_words(
    before: Sequence[bytes], after: Sequence[bytes], became: Sequence[bytes]
) -> bool:
    """Whether an edit that only removes removes what upstream has in other words."""
    if any(line.strip() for line in after):
        return False
    removed = words(before)
    if not removed:
        return False
    return similarity(removed, words(became)) >= _ALIKE or any(
        similarity(words([line]), words([other])) >= 0.75
        for line in before if len(words([line])) > 2
        for other in became if len(words([other])) > 2
    )  # fmt: skip


def _shared_names(lines: Sequence[bytes], became: Sequence[bytes]) -> float:
    """Share of the longer words of an insertion that another one at its place has too."""
    names = {word for word in words(lines) if len(word) > 3}
    return len(names & set(words(became))) / len(names) if names else 1.0


def _undecided(
    was: Sequence[bytes],
    left: list[tuple[Edit, Edit, float]],
    became: Sequence[bytes],
    start: int,
    end: int,
) -> list[Resolution]:
    """Edits that upstream has not: a merge by tokens, both insertions, or a conflict."""
    edits = tuple(edit for edit, _, _ in left)
    inner = [one for _, one, _ in left]
    score = max(found for _, _, found in left)
    if not was and len(left) == 1:
        lines = inner[0].lines
        alike = similarity(words(lines), words(became))
        if alike >= _SAME and len(words(lines)) >= _ENOUGH_WORDS:
            return [
                Resolution(
                    edits,
                    Verdict.CHANGED_LATER,
                    start,
                    end,
                    None,
                    "upstream inserted the same with small differences",
                    round(alike, 3),
                )
            ]
        shared = _shared_names(lines, became)
        if alike >= _ALIKE and shared >= 0.5:
            return [
                Resolution(
                    edits,
                    Verdict.CONFLICT,
                    start,
                    end,
                    None,
                    "upstream inserted something very like it at the same place",
                    round(alike, 3),
                )
            ]
        like = "; they are much alike" if alike >= _ALIKE else ""
        return [
            Resolution(
                edits,
                Verdict.BOTH_INSERT,
                end,
                end,
                lines,
                "upstream inserted other lines at the same place; they come first",
                score,
                f"the order of two insertions at one place is a guess{like}",
            )
        ]
    theirs = apply_edits(was, inner)
    if has_changes(b"".join(was), b"".join(became), b"".join(theirs)):
        return [
            Resolution(
                edits,
                Verdict.CHANGED_LATER,
                start,
                end,
                None,
                "upstream changed the same lines in the same way, and more of them",
                score,
            )
        ]
    merged = merge_tokens(b"".join(was), b"".join(became), b"".join(theirs))
    if merged is not None:
        return [
            Resolution(edits, Verdict.TOKENS, start, end, tuple(merged.splitlines(keepends=True)),
                       "both changed the same lines, in different places of them", score,
                       "merged within lines")
        ]  # fmt: skip
    if not became:
        why = "upstream removed the lines that it changes"
    elif score >= 0.4:
        why = "upstream changed the same lines in a similar way"
    else:
        why = "upstream changed the same lines in another way"
    return [Resolution(edits, Verdict.CONFLICT, start, end, None, why, score)]
