"""The edits of one file into its target version: every way tried, the answers held together.

1. The whole file is merged along two alignments. Where they give one answer it stands; where they
   differ, that is a doubt or, if nothing else decides, a conflict.
2. What was put in must be proven to be in its scope (:mod:`placement`).
3. What is in conflict or in another scope is tried again in the two versions of its own function
   alone: a function that was moved within the file has no place in an alignment of the whole.
4. A function that upstream renamed in this file is found by its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dsv4port.apply.scopes import Scope
from dsv4port.port.align import Method, align
from dsv4port.port.edits import Edit, apply_edits
from dsv4port.port.headings import Slip, slipped
from dsv4port.port.merge import Resolution, Verdict, merge, merged_lines
from dsv4port.port.placement import Place, Proof, compare
from dsv4port.port.presence import weight
from dsv4port.port.text import Text


@dataclass(frozen=True, slots=True)
class Decided:
    """A resolution with its proof.

    ``moved_to`` is the scope that the code was moved or renamed to; ``in_scope`` says that it was
    found in the two versions of its function alone. ``misplaced`` is what stands against it.
    ``slip`` says that the lines above it speak against its place.
    """

    resolution: Resolution
    proof: Proof
    in_scope: bool = False
    moved: tuple[Scope, Scope] | None = None
    slip: Slip | None = None

    @property
    def misplaced(self) -> bool:
        """Whether it would change another scope than its own."""
        return self.proof.place is Place.OTHER

    @property
    def settled(self) -> bool:
        """Whether nothing is left to find out."""
        return self.resolution.verdict is not Verdict.CONFLICT and not self.misplaced


def merge_file(base: Text, edits: Sequence[Edit], target: Text) -> list[Decided]:
    """Merge the edits of ``base`` into ``target``: every edit is in exactly one of the results."""
    if apply_edits(base.lines, edits) == target.lines:
        return _all_present(edits)
    alignment = align(base.lines, target.lines, Method.PATIENCE)
    found = merge(base.lines, edits, target.lines, alignment)
    if any(one.verdict is not Verdict.PRESENT for one in found):
        other = align(base.lines, target.lines, Method.MINIMAL)
        if other != alignment:
            found = _reconcile(target.lines, found, merge(base.lines, edits, target.lines, other))
    decided = _proven(base, edits, target, [Decided(one, Proof(Place.UNKNOWN)) for one in found])
    if base.scopes is not None and any(not one.settled for one in decided):
        from dsv4port.port.scope_merge import retry_in_scopes

        decided = _proven(base, edits, target, retry_in_scopes(base, target, decided))
    if any(one.slip is not None for one in decided):
        from dsv4port.port.heading_merge import retry_below_headings

        decided = _proven(base, edits, target, retry_below_headings(base, target, decided))
    from dsv4port.port.last_looks import last_looks

    return last_looks(base, edits, target, decided)


def _all_present(edits: Sequence[Edit]) -> list[Decided]:
    """The target is the patched base: no alignment is needed to see that it has every edit."""
    result: list[Decided] = []
    shift = 0
    for edit in edits:
        start = edit.first + shift
        stop = start + len(edit.lines)
        result.append(
            Decided(
                Resolution(
                    (edit,), Verdict.PRESENT, start, stop, None, "upstream made the same change",
                    1.0,
                ),
                Proof(Place.UNKNOWN),
            )
        )  # fmt: skip
        shift += len(edit.lines) - (edit.stop - edit.first)
    return result


def _reconcile(
    target: Sequence[bytes],
    left: list[Resolution],
    right: list[Resolution],
) -> list[Resolution]:
    """One answer of two: what both say, or the better one with a doubt."""
    result: list[Resolution] = []
    taken: set[Edit] = set()
    others = {edit: one for one in right for edit in one.edits}
    for one in left:
        if any(edit in taken for edit in one.edits):
            continue
        rivals = list({id(found): found for found in map(others.__getitem__, one.edits)}.values())
        if len(rivals) == 1 and set(rivals[0].edits) == set(one.edits):
            chosen = [_better(target, one, rivals[0])]
        else:
            chosen = _finer(one, rivals)
        for found in chosen:
            result.append(found)
            taken.update(found.edits)
    return result


def _finer(one: Resolution, rivals: list[Resolution]) -> list[Resolution]:
    """A conflict that the other alignment takes apart, and settles edit by edit."""
    apart = {edit for rival in rivals for edit in rival.edits} == set(one.edits)
    settled = all(rival.verdict is not Verdict.CONFLICT for rival in rivals)
    return rivals if one.verdict is Verdict.CONFLICT and apart and settled else [one]


def _better(target: Sequence[bytes], one: Resolution, rival: Resolution) -> Resolution:
    """One of two answers to the same edits."""
    if one == rival:
        return one
    if one.verdict is Verdict.CONFLICT:
        return rival if rival.verdict is not Verdict.CONFLICT else one
    if rival.verdict is Verdict.CONFLICT:
        return one
    if one.verdict.upstream or rival.verdict.upstream:
        if one.verdict.upstream and rival.verdict.upstream:
            return one if (one.score or 0) >= (rival.score or 0) else rival
        there = one if one.verdict.upstream else rival
        return replace(there, doubt="another alignment of the lines would apply it again")
    if merged_lines(target, [one]) == merged_lines(target, [rival]):
        return one if not one.doubt else rival
    return replace(one, doubt="another alignment of the lines puts it elsewhere")


def _proven(
    base: Text, edits: Sequence[Edit], target: Text, found: Sequence[Decided]
) -> list[Decided]:
    """Compare the scopes of what is put in; see :mod:`placement`."""
    applied = sorted(
        (one for one in found if one.resolution.lines is not None and not one.misplaced),
        key=lambda one: (one.resolution.start, one.resolution.stop),
    )
    if not applied:
        return list(found)
    theirs = Text(base.path, apply_edits(base.lines, edits))
    merged = Text(target.path, merged_lines(target.lines, [one.resolution for one in applied]))
    shift = 0
    new_rows: dict[Edit, int] = {}
    for edit in edits:
        new_rows[edit] = edit.first + shift
        shift += len(edit.lines) - (edit.stop - edit.first)
    proofs: dict[int, Proof] = {}
    slips: dict[int, Slip | None] = {}
    shift = 0
    for one in applied:
        resolution = one.resolution
        assert resolution.lines is not None
        moves = [one.moved] if one.moved is not None else []
        proofs[id(one)] = _prove(
            base, theirs, target, merged, resolution, resolution.start + shift, new_rows, moves
        )
        if proofs[id(one)].place in (Place.NO_SCOPES, Place.SAME, Place.UNKNOWN):
            slips[id(one)] = _slip(
                base, theirs, target, merged, resolution, resolution.start + shift, new_rows
            )
        shift += len(resolution.lines) - (resolution.stop - resolution.start)
    return [
        replace(one, proof=proofs[id(one)], slip=slips.get(id(one))) if id(one) in proofs else one
        for one in found
    ]


def _slip(
    base: Text,
    theirs: Text,
    target: Text,
    merged: Text,
    resolution: Resolution,
    start: int,
    new_rows: dict[Edit, int],
) -> Slip | None:
    """Whether the lines above say that it is another place."""
    edit = resolution.edits[0]
    if len(resolution.edits) > 1 or resolution.verdict is Verdict.TOKENS:
        return None
    for row, line in enumerate(edit.lines):
        if weight(line):
            return slipped(theirs, new_rows[edit] + row, merged, start + row, base, target)
    for row in range(edit.first, edit.stop):
        if weight(base.lines[row]):
            new_row = resolution.start + row - edit.first
            if new_row >= resolution.stop:
                break
            return slipped(base, row, target, new_row, base, target)
    return None


def _prove(
    base: Text,
    theirs: Text,
    target: Text,
    merged: Text,
    resolution: Resolution,
    start: int,
    new_rows: dict[Edit, int],
    moves: Sequence[tuple[Scope, Scope]],
) -> Proof:
    assert resolution.lines is not None
    edit = resolution.edits[0]
    if resolution.verdict is Verdict.TOKENS:
        return _prove_region(theirs, merged, resolution, start, new_rows, moves)
    if any(line.strip() for line in edit.lines):
        rows = range(new_rows[edit], new_rows[edit] + len(edit.lines))
        return compare(theirs, rows, merged, range(start, start + len(edit.lines)), moves)
    rows = range(edit.first, edit.stop)
    if any(base.lines[row].strip() for row in rows):
        return compare(base, rows, target, range(resolution.start, resolution.stop), moves)
    # Blank lines alone may lie between scopes and belong to none.
    return Proof(Place.NO_SCOPES)


def _prove_region(
    theirs: Text,
    merged: Text,
    resolution: Resolution,
    start: int,
    new_rows: dict[Edit, int],
    moves: Sequence[tuple[Scope, Scope]],
) -> Proof:
    """Lines that both changed: the first and the last line of the edit against the region's."""
    assert resolution.lines is not None
    solid = [start + row for row, line in enumerate(resolution.lines) if line.strip()]
    old = [
        row
        for edit in resolution.edits
        for row in range(new_rows[edit], new_rows[edit] + max(len(edit.lines), 1))
        if row < len(theirs.lines) and theirs.lines[row].strip()
    ]
    if not solid or not old:
        return Proof(Place.UNKNOWN)
    return compare(theirs, [old[0], old[-1]], merged, [solid[0], solid[-1]], moves)
