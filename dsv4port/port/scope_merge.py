"""Merge within the two versions of one function (class, registry) instead of the whole file.

Where a function was moved within its file, an alignment of the whole file has no place for it;
where look-alikes stand around it, the alignment may slip into one of them. The function's own name
says which two pieces of text belong together. Where upstream renamed it, its body does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from dsv4port.apply.scopes import Scope, ScopeKind, same_scope
from dsv4port.port.align import Method, align, similarity
from dsv4port.port.edits import Edit
from dsv4port.port.file_merge import Decided
from dsv4port.port.merge import Resolution, Verdict, merge
from dsv4port.port.placement import Place, Proof
from dsv4port.port.text import Text
from dsv4port.port.tokens import words

SAME_BODY = 0.6
"""Similarity of their words from which a function gone and a new one are one, renamed."""
_CLEARLY = 0.1
"""By how much the best match must be better than the next."""


def retry_in_scopes(base: Text, target: Text, decided: Sequence[Decided]) -> list[Decided]:
    """Decide again, within their scopes, what is not settled; the rest stays as it is."""
    result: list[Decided] = []
    for one in decided:
        if one.settled:
            result.append(one)
            continue
        result += _retry(base, target, one)
    return without_overlaps(result)


def _retry(base: Text, target: Text, one: Decided) -> list[Decided]:
    if one.misplaced and one.resolution.verdict is Verdict.CLEAN:
        renamed = _renamed(base, target, one.proof)
        if renamed is not None:
            # The merge of the whole file found it under its new name.
            return [replace(one, moved=renamed, proof=Proof(Place.UNKNOWN))]
    found: list[Decided] = []
    for edit in one.resolution.edits:
        again = _within(base, target, edit)
        if again is None:
            return [one]
        found.append(again)
    return found


def innermost(base: Text, edit: Edit) -> tuple[Scope, int, int] | None:
    """The innermost known definition with a name that holds all of an edit: scope, first, stop."""
    if base.scopes is None:
        return None
    best: tuple[Scope, int, int] | None = None
    for scope, first, last in base.scopes.definitions():
        holds = first - 1 <= edit.first and edit.stop <= last
        if edit.first == edit.stop:
            # An insertion at the very end may be behind the definition.
            holds = first - 1 < edit.first < last
        if holds:
            if scope is None:
                return None
            best = (scope, first - 1, last)
    return best


def _within(base: Text, target: Text, edit: Edit) -> Decided | None:
    """The edit merged within its function, if that settles it."""
    holder = innermost(base, edit)
    while holder is not None:
        scope, first, stop = holder
        spans = target.span(scope)
        moved = None
        if not spans:
            new = find_renamed(base, target, scope, first, stop)
            if new is not None:
                moved = (scope, new[0])
                spans = [(new[1], new[2])]
        if len(spans) == 1:
            found = merge_piece(base, edit, target, (first, stop), spans[0])
            if found is None or found.verdict is Verdict.CONFLICT:
                return None
            return Decided(found, Proof(Place.UNKNOWN), in_scope=True, moved=moved)
        return None
    return None


def merge_piece(
    base: Text, edit: Edit, target: Text, rows: tuple[int, int], target_rows: tuple[int, int]
) -> Resolution | None:
    """Merge an edit within a range of rows of both versions; None where alignments disagree."""
    first, stop = rows
    start, end = target_rows
    old, new = base.lines[first:stop], target.lines[start:end]
    local = Edit(edit.first - first, edit.stop - first, edit.lines, edit.hunk)
    answers = [merge(old, [local], new, align(old, new, method))[0] for method in Method]
    settled = [one for one in answers if one.verdict is not Verdict.CONFLICT]
    if not settled or any(
        (one.lines, one.start, one.stop) != (settled[0].lines, settled[0].start, settled[0].stop)
        and one.verdict.applied
        for one in settled
    ):
        return None
    found = settled[0].moved(start)
    return replace(found, edits=(edit,))


def _renamed(base: Text, target: Text, proof: Proof) -> tuple[Scope, Scope] | None:
    """Whether the scopes of a proof are one definition that upstream renamed."""
    old, new = proof.old, proof.new
    if old is None or new is None or not old.steps or not new.steps:
        return None
    # Compare the outermost level at which they differ.
    for depth in range(1, min(len(old.steps), len(new.steps)) + 1):
        before, after = (
            Scope(old.steps[:depth], old.separator),
            Scope(new.steps[:depth], new.separator),
        )
        if same_scope(before, after):
            continue
        if target.span(before) or base.span(after):
            return None
        spans, new_spans = base.span(before), target.span(after)
        if len(spans) != 1 or len(new_spans) != 1:
            return None
        if _body_similarity(base, spans[0], target, new_spans[0]) < SAME_BODY:
            return None
        return before, after
    return None


def find_renamed(
    base: Text, target: Text, scope: Scope, first: int, stop: int
) -> tuple[Scope, int, int] | None:
    """The definition of the target, new there, that is ``scope`` under another name.

    It must be of the same kind, not in the base, and have the most similar body by a clear margin.
    """
    if target.scopes is None or scope.steps[-1].kind is ScopeKind.VARIABLE:
        return None
    ranked: list[tuple[float, Scope, int, int]] = []
    for found, new_first, new_last in target.scopes.definitions():
        if found is None or found.steps[-1].kind is not scope.steps[-1].kind:
            continue
        if len(found.steps) != len(scope.steps) or base.span(found):
            continue
        share = _body_similarity(base, (first, stop), target, (new_first - 1, new_last))
        if share >= SAME_BODY:
            ranked.append((share, found, new_first - 1, new_last))
    ranked.sort(key=lambda one: -one[0])
    if not ranked or (len(ranked) > 1 and ranked[0][0] - ranked[1][0] < _CLEARLY):
        return None
    return ranked[0][1:]


def _body_similarity(
    base: Text, rows: tuple[int, int], target: Text, target_rows: tuple[int, int]
) -> float:
    return similarity(
        words(base.lines[rows[0] : rows[1]]), words(target.lines[target_rows[0] : target_rows[1]])
    )


def without_overlaps(decided: list[Decided]) -> list[Decided]:
    """Two answers found apart may claim the same lines; then neither is sure."""
    ranges = sorted(
        (one.resolution.start, one.resolution.stop, index)
        for index, one in enumerate(decided)
        if one.settled and one.resolution.lines is not None
    )
    clash: set[int] = set()
    for (_, stop, left), (start, end, right) in pairwise(ranges):
        if start < stop or (start == stop == end and decided[left].in_scope):
            clash.update((left, right))
    return [
        replace(one, resolution=_conflicting(one.resolution)) if index in clash else one
        for index, one in enumerate(decided)
    ]


def _conflicting(found: Resolution) -> Resolution:
    return Resolution(
        found.edits, Verdict.CONFLICT, found.start, found.stop, None,
        "two changes of the patch would go to the same lines", found.score,
    )  # fmt: skip
