"""Whether upstream has an edit where the merge did not look: further away in the same scope.

Only lines that are new in the target count, and only in the scope that the edit belongs to: a
look-alike elsewhere that got the same change proves nothing about this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsv4port.port.edits import Edit
from dsv4port.port.file_merge import Decided
from dsv4port.port.merge import Resolution, Verdict
from dsv4port.port.placement import Place, Proof
from dsv4port.port.presence import changed_lines, presence, weight
from dsv4port.port.text import Text

_NEAR = 40
"""Lines around a place that count as its surroundings where no scope says what does."""
_SURE = 30
"""Letters and digits of an added block that make its second appearance no accident."""
_CERTAIN = 80
"""The same where it may be anywhere in the file."""
_VERSION, _LIKE = 0.75, 0.5
"""Share of an inserted block that is a version of it; that is reason to look."""


def look_elsewhere(base: Text, target: Text, one: Decided) -> Decided:
    """The same, or that upstream has it, with where."""
    resolution = one.resolution
    if resolution.verdict.upstream or len(resolution.edits) != 1:
        return one
    edit = resolution.edits[0]
    if resolution.verdict.applied and not one.misplaced:
        return _applied_twice(base, target, one, edit)
    return _found_in_scope(base, target, one, edit)


def beside_upstreamed(decided: list[Decided], landed: float) -> list[Decided]:
    """What a patch still changes where upstream has other parts of it.

    Where upstream also changed the same lines, it has most likely that part too, written anew:
    nothing is put there. Elsewhere it left the part out, or took it back later; two trees cannot
    tell, so a person should look.

    Parameters:
        landed: share of the patch's hunks that upstream has, 0 to 1.
    """
    return [_beside_upstreamed(one, landed) for one in decided] if landed else decided


def _beside_upstreamed(one: Decided, landed: float) -> Decided:
    found = one.resolution
    stuck = found.verdict is Verdict.CONFLICT or one.misplaced
    if stuck and landed >= 0.5 and (found.score or 0) >= _LIKE:
        found = Resolution(
            found.edits, Verdict.CHANGED_LATER, found.start, found.stop, None,
            f"upstream has {landed:.0%} of the patch's hunks, and something like this one here",
            found.score, "recognised by the rest of the patch",
        )  # fmt: skip
    elif found.verdict in (Verdict.BOTH_INSERT, Verdict.TOKENS):
        found = Resolution(
            found.edits, Verdict.CONFLICT, found.start, found.stop, None,
            "upstream has other parts of this patch, and changed the same lines in another way",
            found.score,
        )  # fmt: skip
    elif found.verdict.applied:
        left_out = "upstream has other parts of this patch; it left this out or took it back"
        found = replace(found, doubt="; ".join(filter(None, (found.doubt, left_out))))
    if found is one.resolution:
        return one
    proof = Proof(Place.UNKNOWN) if found.verdict.upstream else one.proof
    return replace(one, resolution=found, proof=proof)


def _applied_twice(base: Text, target: Text, one: Decided, edit: Edit) -> Decided:
    resolution = one.resolution
    _, added = changed_lines(base.lines[edit.first : edit.stop], edit.lines)
    if sum(map(weight, added)) < _SURE:
        return one
    rows = _block(target.lines, added)
    if not rows or len(rows) <= len(_block(base.lines, added)):
        return _applied_over_a_version(base, target, one, edit)
    row = min(rows, key=lambda at: abs(at - resolution.start))
    where = f"upstream added these lines at line {row + 1}"
    far = abs(row - resolution.start) > _NEAR
    if far and (target.scopes is not None or sum(map(weight, added)) < _CERTAIN):
        return replace(one, resolution=replace(resolution, doubt=f"{where}, in another place"))
    scope = target.scope(row)
    if target.scopes is not None and (
        one.proof.new is None or scope is None or scope.name != one.proof.new.name
    ):
        return replace(one, resolution=replace(resolution, doubt=f"{where}, in another scope"))
    if any(base.lines[at].strip() for at in range(edit.first, edit.stop)):
        # It also removes lines, and those still stand.
        return replace(one, resolution=replace(resolution, doubt=where))
    return replace(
        one,
        resolution=Resolution(
            resolution.edits, Verdict.PRESENT, row, row + len(added), None, where, 1.0,
            "upstream has it at another place of the same scope",
        ),
    )  # fmt: skip


def _surroundings(
    base: Text, target: Text, one: Decided, edit: Edit
) -> tuple[list[bytes], list[bytes]]:
    """What belongs together with an edit in base and target: its scope, or the lines near it."""
    from dsv4port.port.scope_merge import innermost

    holder = innermost(base, edit)
    if holder is not None:
        spans = target.span(holder[0])
        if len(spans) == 1:
            return base.lines[holder[1] : holder[2]], target.lines[slice(*spans[0])]
    start = one.resolution.start
    return (
        base.lines[max(edit.first - _NEAR, 0) : edit.stop + _NEAR],
        target.lines[max(start - _NEAR, 0) : one.resolution.stop + _NEAR],
    )


def _gained(base: Text, target: Text, lines: Sequence[bytes]) -> float:
    """Share of the weight of some lines that the target has more often than the base, anywhere."""
    keys = [b" ".join(line.split()) for line in lines]
    total = sum(map(weight, keys))
    gained = sum(weight(key) for key in keys if target.counts[key] > base.counts[key])
    return gained / total if total else 0.0


def _applied_over_a_version(base: Text, target: Text, one: Decided, edit: Edit) -> Decided:
    """A block whose version upstream has close by, so that the border of the merge slipped."""
    if any(line.strip() for line in base.lines[edit.first : edit.stop]):
        return one
    if _gained(base, target, edit.lines) < _LIKE:
        return one
    was, became = _surroundings(base, target, one, edit)
    found = presence((), edit.lines, was, became)
    resolution = one.resolution
    if found.survives >= _VERSION:
        return replace(
            one,
            resolution=Resolution(
                resolution.edits, Verdict.CHANGED_LATER, resolution.start, resolution.stop, None,
                "upstream has a version of it close by", found.score,
            ),
        )  # fmt: skip
    if found.survives >= _LIKE:
        share = f"{found.survives:.0%}"
        return replace(
            one,
            resolution=replace(
                resolution, doubt=f"upstream added lines close by that are {share} of it"
            ),
        )
    return one


def _block(lines: list[bytes], block: list[bytes]) -> list[int]:
    """Rows at which a block of lines begins."""
    return [
        row
        for row, line in enumerate(lines)
        if line == block[0] and lines[row : row + len(block)] == block
    ]


def _found_in_scope(base: Text, target: Text, one: Decided, edit: Edit) -> Decided:
    from dsv4port.port.scope_merge import innermost

    resolution = one.resolution
    holder = innermost(base, edit)
    if holder is not None:
        scope, first, stop = holder
        spans = target.span(scope)
        if len(spans) != 1:
            return one
        start, end = spans[0]
        where = f"in {scope.name}"
    else:
        # Around the place, as far as nothing says what belongs to it.
        first, stop = max(edit.first - _NEAR, 0), edit.stop + _NEAR
        start, end = max(resolution.start - _NEAR, 0), resolution.stop + _NEAR
        where = "close by"
    found = presence(
        base.lines[edit.first : edit.stop], edit.lines, base.lines[first:stop],
        target.lines[start:end],
    )  # fmt: skip
    if not found.adds:
        return one
    if found.is_most:
        whole = found.is_all
        return replace(
            one,
            proof=replace(one.proof, place=Place.SAME if holder is not None else Place.NO_SCOPES),
            resolution=Resolution(
                resolution.edits,
                Verdict.PRESENT if whole else Verdict.CHANGED_LATER,
                start, end, None,
                f"upstream has this change {where}"
                + ("" if whole else " with changes of its own on top"),
                found.score,
            ),
        )  # fmt: skip
    if found.score > (resolution.score or 0):
        return replace(one, resolution=replace(resolution, score=found.score))
    return one
