"""Strict placement of the hunks of one file: the right place or a refusal, no fuzz ever.

Every context and removed line must match byte for byte. What more is asked depends on what is
known of the file that the hunks were written for, the base:

1. *The target is the base.* Each hunk must stand at exactly its stated line.
2. *The base is known.* The hunk is looked for in the whole target. If the target is identical to
   the base from its first byte to the end of the hunk, and has no more look-alikes of its lines
   than the base, that place is right. Otherwise a place counts when the hunk's lines have the
   same scope there as in the base, even at the stated line (two look-alike classes of equal
   length may have changed places). It is taken when it is the only such place and the base, too,
   has no second such place in that scope. With look-alikes in one scope, or definitions that
   nothing but their order tells apart, the number of the look-alike proves nothing; then the
   place is taken only if the innermost definition around it is unchanged, or the rest of the
   file after it and the number of look-alikes.
3. *The base is unknown.* Only the stated line, if it is the only match in the file and the text
   after ``@@`` names the function or class that git would name there.

Which lines have their scope compared: every removed line, and on both sides of each run of
changes the nearest line of the preimage; blank lines never, for they may lie between scopes. So
an insertion is pinned by its neighbours: a method added at the end of a class needs the same last
method before it and the same following definition after it, and a change of one function does not
depend on the names of others that only distant context lines belong to. A renamed scope is
another scope here.

As ``git apply`` does, a hunk that starts at line 1 of its base must match at the beginning of the
file, and a hunk without trailing context must match at its end.

What cannot be seen: a look-alike that was added to the very scope in which the original was
rewritten. Comparing versions line by line (a 3-way merge) can; placing a hunk cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsv4port.apply.file_text import (
    MAX_PLACES,
    FileText,
    ends_early,
    find_at_row,
    is_whole_lines,
    stated_row,
)
from dsv4port.apply.hunk_result import FileResult, HunkOutcome, HunkResult, Refusal
from dsv4port.apply.hunk_surroundings import heading_fits, missed_anchors, why_nowhere
from dsv4port.apply.scope_proof import (
    Comparison,
    compare_scopes,
    has_twins,
    is_unmoved,
    proof_rows,
)
from dsv4port.patch.model import Hunk
from dsv4port.patch.quote import display_text

if TYPE_CHECKING:
    from dsv4port.apply.scopes import Scope

_NAMED_PLACES = 8
_MORECONTEXT = "make the patch with more context lines"


def apply_hunks(
    content: bytes,
    hunks: Sequence[Hunk],
    *,
    path: bytes,
    base: bytes | None,
    preimage_is_target: bool = False,
) -> FileResult:
    """Apply ``hunks``, all of them or none, to ``content``.

    Every hunk is tried, also after one was refused, so that a report can name them all.

    Parameters:
        content: the file as it is in the target tree.
        path: decides which grammar reads the scopes.
        base: the file that the hunks were written for (the blob of ``old_id``), None if unknown.
        preimage_is_target: the caller knows that ``content`` is that file (equal blob ids).
    """
    if preimage_is_target or base == content:
        return _apply_at_stated_lines(content, hunks)
    return _Placing(content, base, path).apply(hunks)


def _apply_at_stated_lines(content: bytes, hunks: Sequence[Hunk]) -> FileResult:
    pieces: list[bytes] = []
    results: list[HunkResult] = []
    offset = row = 0
    for hunk in hunks:
        old = b"".join(hunk.old_lines)
        stated = stated_row(hunk)
        start = find_at_row(content, old, offset, stated - row)
        end = None if start is None else start + len(old)
        if start is None or end is None or ends_early(hunk, content, end):
            results.append(
                HunkResult(
                    HunkOutcome.NO_MATCH,
                    stated + 1,
                    reason="the file is the one the patch was made for, yet the hunk is not what "
                    f"stands at line {stated + 1}: the patch was edited by hand or is damaged",
                )
            )
            continue
        pieces += (content[offset:start], *hunk.new_lines)
        results.append(HunkResult(HunkOutcome.EXACT, stated + 1, stated + 1))
        offset, row = end, stated + len(hunk.old_lines)
    complete = all(result.outcome.applied for result in results)
    pieces.append(content[offset:])
    return FileResult(b"".join(pieces) if complete else None, tuple(results))


class _Placing:
    """Places hunks one after the other in a target that is not known to be their base."""

    def __init__(self, content: bytes, base: bytes | None, path: bytes) -> None:
        self._path = path
        self._target = FileText(content, path)
        self._base = None if base is None else FileText(base, path)

    def apply(self, hunks: Sequence[Hunk]) -> FileResult:
        content = self._target.content
        pieces: list[bytes] = []
        results: list[HunkResult] = []
        end = base_end = 0
        for hunk in hunks:
            result = self._place(hunk, end, base_end)
            results.append(result)
            base_end = stated_row(hunk) + len(hunk.old_lines)
            if result.new_line is not None:
                start = self._target.start_of(result.new_line - 1)
                pieces += (content[end:start], *hunk.new_lines)
                end = start + sum(map(len, hunk.old_lines))
                self._target.taken.append((start, end))
        complete = all(result.outcome.applied for result in results)
        pieces.append(content[end:])
        return FileResult(b"".join(pieces) if complete else None, tuple(results))

    def _place(self, hunk: Hunk, end: int, base_end: int) -> HunkResult:
        """Find the place of one hunk; ``end`` (``base_end``) is where the last one ended."""
        line = stated_row(hunk) + 1
        refuse = Refusal(line)
        if not hunk.old_lines:
            if not self._target.content and self._base is None:
                return HunkResult(HunkOutcome.EXACT, line, line)
            return refuse.because(
                HunkOutcome.UNPROVEN,
                "the hunk has neither context nor removed lines, so it applies only to the very "
                "file it was made for",
            )
        base_start = None
        if self._base is not None:
            base_start = self._stated_start(hunk, base_end)
            if base_start is None:
                return refuse.because(
                    HunkOutcome.BASE_MISMATCH,
                    f"the hunk is not what stands at line {line} of the base that the `index` "
                    "line names: the patch was edited by hand or is damaged",
                )
        places = self._target.places(hunk)
        if not places:
            return refuse.because(HunkOutcome.NO_MATCH, why_nowhere(hunk, self._target))
        if base_start is None:
            result = self._place_without_base(hunk, places, refuse)
        else:
            result = self._place_with_base(hunk, places, base_start, refuse)
        if result.new_line is None:
            return result
        start = self._target.start_of(result.new_line - 1)
        if anchors := missed_anchors(hunk, self._target.content, start):
            return refuse.because(
                HunkOutcome.NO_MATCH,
                f"the hunk must match {' and '.join(anchors)}, but matches at line "
                f"{result.new_line}",
                result.old_scope,
                result.new_scope,
            )
        if start < end:
            return refuse.because(
                HunkOutcome.MISPLACED,
                f"the hunk matches at line {result.new_line}, which is before the place of the "
                "hunk that precedes it",
                result.old_scope,
                result.new_scope,
            )
        return result

    def _stated_start(self, hunk: Hunk, base_end: int) -> int | None:
        """Where the hunk stands in the base, if it does; its place there is then taken."""
        base = self._base
        assert base is not None
        row = stated_row(hunk)
        old = b"".join(hunk.old_lines)
        start = base.start_of(row)
        end = start + len(old)
        if (
            row < base_end
            or not base.content.startswith(old, start)
            or not is_whole_lines(base.content, start, end)
            or ends_early(hunk, base.content, end)
        ):
            return None
        base.taken.append((start, end))
        return start

    # With the base.

    def _place_with_base(
        self, hunk: Hunk, places: list[int], base_start: int, refuse: Refusal
    ) -> HunkResult:
        base = self._base
        assert base is not None
        target = self._target
        length = sum(map(len, hunk.old_lines))
        stop = base_start + length
        peers = base.places(hunk)
        # The place in the base itself is taken and no peer; a copy of it may come first now.
        if (
            len(places) <= len(peers) + 1
            and base_start in places
            and target.content.startswith(base.content[:stop])
        ):
            return HunkResult(HunkOutcome.EXACT, refuse.line, refuse.line)
        if max(len(places), len(peers)) > MAX_PLACES:
            return refuse.because(
                HunkOutcome.AMBIGUOUS,
                f"the hunk's lines match at more than {MAX_PLACES} places; {_MORECONTEXT}",
            )
        rows = proof_rows(hunk)
        compared = {
            place: compare_scopes(base, base_start, target, place, rows) for place in places
        }
        same = [place for place, found in compared.items() if found.same]
        if not same:
            return self._nowhere_the_same(compared, refuse)
        rivals = [
            peer
            for peer in peers
            if compare_scopes(base, base_start, base, peer, rows).same is not False
        ]
        chosen = same
        if len(same) > 1 or rivals or has_twins(compared[same[0]].new):
            rest_counts = len(places) == len(peers) + 1
            chosen = [
                place
                for place in same
                if is_unmoved(
                    base, base_start, target, place, rows, length if rest_counts else None
                )
            ]
        if len(chosen) != 1:
            return self._too_many(same, rivals, compared, refuse)
        found = compared[chosen[0]]
        return self._applied(refuse.line, chosen[0], found)

    def _applied(self, line: int, place: int, found: Comparison) -> HunkResult:
        new_line = self._target.row_of(place) + 1
        if new_line == line:
            return HunkResult(HunkOutcome.EXACT, line, line, found.old, found.new)
        where = "" if found.new is None else f" in {_quoted(found.new)}"
        return HunkResult(
            HunkOutcome.OFFSET, line, new_line, found.old, found.new,
            f"moved from line {line} to line {new_line}{where}",
        )  # fmt: skip

    def _nowhere_the_same(self, compared: dict[int, Comparison], refuse: Refusal) -> HunkResult:
        unknown = next((found for found in compared.values() if found.same is None), None)
        if unknown is not None:
            where = "in the base" if unknown.old is None else "there"
            return refuse.because(
                HunkOutcome.UNPROVEN,
                f"the hunk matches at line {unknown.new_line}, but its scope {where} is unknown: "
                "the code around does not parse or is too large, or the hunk has only blank lines",
                unknown.old,
                unknown.new,
            )
        # Report the place nearest to the stated line.
        place = min(compared, key=lambda at: abs(self._target.row_of(at) + 1 - refuse.line))
        found = compared[place]
        assert found.old is not None and found.new is not None
        only = "only " if len(compared) == 1 else ""
        others = ""
        if len(compared) > 1:
            others = f" (all places: {self._lines(list(compared))})"
        return refuse.because(
            HunkOutcome.MISPLACED,
            f"the hunk was written for {_quoted(found.old)} (line {found.old_line} of the base) "
            f"but {only}matches in {_quoted(found.new)} (line {found.new_line}){others}",
            found.old,
            found.new,
        )

    def _too_many(
        self,
        same: list[int],
        rivals: list[int],
        compared: dict[int, Comparison],
        refuse: Refusal,
    ) -> HunkResult:
        base = self._base
        assert base is not None
        found = compared[same[0]]
        where = "" if found.new is None else f" in {_quoted(found.new)}"
        text = f"the hunk's lines match at {self._lines(same)}{where}"
        if rivals:
            lines = _numbers(sorted([base.row_of(at) + 1 for at in rivals] + [refuse.line]))
            text += f", and at lines {lines} of the base"
        return refuse.because(
            HunkOutcome.AMBIGUOUS,
            f"{text}; nothing proves which place is meant: {_MORECONTEXT}",
            found.old,
            found.new,
        )

    def _lines(self, places: list[int]) -> str:
        numbers = sorted(self._target.row_of(place) + 1 for place in places)
        return f"line{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"

    # Without the base.

    def _place_without_base(self, hunk: Hunk, places: list[int], refuse: Refusal) -> HunkResult:
        if len(places) > 1:
            return refuse.because(
                HunkOutcome.AMBIGUOUS,
                f"the hunk's lines match at {self._lines(places)} and the base blob is not "
                f"available to tell them apart; {_MORECONTEXT} or make the base available",
            )
        line = self._target.row_of(places[0]) + 1
        if line != refuse.line:
            return refuse.because(
                HunkOutcome.UNPROVEN,
                f"the hunk matches at line {line} instead of line {refuse.line}, and the base blob "
                "is not available to prove that this is the right place",
            )
        if not heading_fits(hunk.section, self._path, self._target.content[: places[0]]):
            heading = display_text(hunk.section.strip())
            return refuse.because(
                HunkOutcome.UNPROVEN,
                f"the hunk matches at line {line}, but not below `{heading}` as its header says, "
                "and the base blob is not available to prove that this is the right place",
            )
        return HunkResult(HunkOutcome.EXACT, line, line)


def _quoted(scope: Scope) -> str:
    return str(scope) if not scope.steps else f"`{scope}`"


def _numbers(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:_NAMED_PLACES]))
    more = len(numbers) - _NAMED_PLACES
    return f"{text} and {more} more" if more > 0 else text
