"""A 3-way merge of edits, by lines, that keeps what it knows of each edit.

The base is known exactly and so is what the patch does to it; only what upstream did must be found
out, by an alignment of the base's lines with the target's. An edit whose rows, and one more line on
either side, are unchanged goes in as git would have it. The others stand in *regions*: the least
range of rows around them whose border lines are unchanged. What happens there, :mod:`regions` says.

Everything is in the rows of one pair of texts: whole files, or two versions of one function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from dsv4port.port.align import Alignment
from dsv4port.port.edits import Edit


class Verdict(Enum):
    """What a merge says of one edit."""

    CLEAN = "clean"
    """Its surroundings are unchanged: it goes in as a whole."""
    ADJACENT = "adjacent"
    """Upstream changed lines that it touches but does not change."""
    BOTH_INSERT = "both-insert"
    """Upstream inserted other lines at the very place where it inserts."""
    TOKENS = "tokens"
    """Both changed the same lines, in different places of them."""
    PRESENT = "present"
    """Upstream made the same change."""
    CHANGED_LATER = "changed-later"
    """Upstream has the change, with changes of its own on top."""
    CONFLICT = "conflict"
    """Upstream changed the same lines in another way."""

    @property
    def applied(self) -> bool:
        """Whether the edit is put into the target."""
        return self in _APPLIED

    @property
    def finer(self) -> bool:
        """Whether it was merged where a merge by lines sees a conflict."""
        return self in (Verdict.ADJACENT, Verdict.BOTH_INSERT, Verdict.TOKENS)

    @property
    def upstream(self) -> bool:
        """Whether the target has it already."""
        return self in (Verdict.PRESENT, Verdict.CHANGED_LATER)


_APPLIED = (Verdict.CLEAN, Verdict.ADJACENT, Verdict.BOTH_INSERT, Verdict.TOKENS)


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of some edits together: target rows ``start`` up to ``stop`` become ``lines``.

    For edits that upstream has, and for conflicts, the rows are where the target has its version
    of the edited lines, and ``lines`` is None. ``score`` says how much of the edits it has there.
    ``doubt`` is why a person should look at it; empty when nothing is in doubt.
    """

    edits: tuple[Edit, ...]
    verdict: Verdict
    start: int
    stop: int
    lines: tuple[bytes, ...] | None
    reason: str
    score: float | None = None
    doubt: str = ""

    def __post_init__(self) -> None:
        if (self.lines is not None) != self.verdict.applied:
            raise ValueError("lines belong to an edit that is applied")

    def moved(self, rows: int) -> Resolution:
        """The same, that many target rows further down."""
        return Resolution(
            self.edits, self.verdict, self.start + rows, self.stop + rows,
            self.lines, self.reason, self.score, self.doubt,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Region:
    """Edits that stand close together, and the rows around them with unchanged border lines."""

    edits: tuple[Edit, ...]
    first: int
    stop: int
    start: int
    end: int

    @property
    def is_clean(self) -> bool:
        """Whether it is one edit with unchanged lines right beside it (content is not compared)."""
        return (
            len(self.edits) == 1
            and self.first == self.edits[0].first
            and self.stop == self.edits[0].stop
        )


def regions(edits: Sequence[Edit], alignment: Alignment, target_size: int) -> list[Region]:
    """The region of each edit; those that overlap or touch are one."""
    found: list[Region] = []
    for edit in edits:
        first, stop = edit.first, edit.stop
        # Within the region above nothing is to be looked for; each edit would walk all of it.
        if not found or first >= found[-1].stop:
            while first > 0 and alignment[first - 1] < 0:
                first -= 1
        if not found or stop > found[-1].stop:
            while stop < len(alignment) and alignment[stop] < 0:
                stop += 1
        if found and first < found[-1].stop:
            above = found.pop()
            edits_of = (*above.edits, edit)
            first, stop = above.first, max(stop, above.stop)
        else:
            edits_of = (edit,)
        start = alignment[first - 1] + 1 if first else 0
        end = alignment[stop] if stop < len(alignment) else target_size
        found.append(Region(edits_of, first, stop, start, end))
    return found


def merge(
    base: Sequence[bytes], edits: Sequence[Edit], target: Sequence[bytes], alignment: Alignment
) -> list[Resolution]:
    """Merge edits of ``base`` into ``target``; every edit is in exactly one of the results."""
    result: list[Resolution] = []
    for one in _merge(base, edits, target, alignment):
        result.append(_slid(base, one, target, alignment) if one.verdict.applied else one)
    return result


def _merge(
    base: Sequence[bytes], edits: Sequence[Edit], target: Sequence[bytes], alignment: Alignment
) -> list[Resolution]:
    from dsv4port.port.regions import resolve

    result: list[Resolution] = []
    for region in regions(edits, alignment, len(target)):
        theirs = target[region.start : region.end]
        if region.is_clean and list(base[region.first : region.stop]) == list(theirs):
            edit = region.edits[0]
            result.append(
                Resolution((edit,), Verdict.CLEAN, region.start, region.end, edit.lines, "")
            )
        else:
            result += resolve(base, region, target, alignment)
    return result


def _slid(
    base: Sequence[bytes], one: Resolution, target: Sequence[bytes], alignment: Alignment
) -> Resolution:
    """The same, unless upstream has the edit one or more lines further up or down.

    Among equal lines it is a convention which of them was added or removed; the alignment may have
    followed another one than the patch.
    """
    if len(one.edits) != 1:
        return one
    for edit in slides(base, one.edits[0]):
        (found,) = _merge(base, [edit], target, alignment)
        if found.verdict is Verdict.PRESENT:
            return replace(found, edits=one.edits)
    return one


def slides(base: Sequence[bytes], edit: Edit) -> list[Edit]:
    """The same edit as far down and as far up as equal lines let it be written."""
    if edit.lines and edit.first < edit.stop:
        return []
    first, stop, lines = edit.first, edit.stop, list(edit.lines)
    while stop < len(base) and (base[first] if first < stop else lines[0]) == base[stop]:
        lines = lines[1:] + lines[:1]
        first, stop = first + 1, stop + 1
    down = Edit(first, stop, tuple(lines), edit.hunk)
    first, stop, lines = edit.first, edit.stop, list(edit.lines)
    while first > 0 and (base[stop - 1] if first < stop else lines[-1]) == base[first - 1]:
        lines = lines[-1:] + lines[:-1]
        first, stop = first - 1, stop - 1
    up = Edit(first, stop, tuple(lines), edit.hunk)
    return [other for other in (down, up) if other.first != edit.first]


def merged_lines(target: Sequence[bytes], resolutions: Sequence[Resolution]) -> list[bytes]:
    """The target with everything that is applied."""
    lines: list[bytes] = []
    row = 0
    for one in sorted(resolutions, key=lambda found: (found.start, found.stop)):
        if one.lines is None:
            continue
        lines += target[row : one.start]
        lines += one.lines
        row = one.stop
    lines += target[row:]
    return lines
