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

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from dsv4port.patch.model import Hunk
from dsv4port.patch.quote import display_text
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.apply.scopes import Scope, ScopeMap

MAX_PLACES = 1000
"""Most places considered for one hunk; more are ambiguous without a look at their scopes."""

_NAMED_PLACES = 8
_SHORTEST_CUT = 40
_HEADING_LINE = re.compile(rb"^[A-Za-z_$][^\n]*", re.MULTILINE)
_PYTHON_HEADING_LINE = re.compile(
    rb"^[ \t]*((?:class|(?:async[ \t]+)?def)[ \t][^\n]*)", re.MULTILINE
)
_CONTEXT, _REMOVED, _ADDED = b" -+"
_FEED = 0x0A
_MORE_CONTEXT = "make the patch with more context lines"


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


@dataclass(frozen=True, slots=True)
class ProofRows:
    """The preimage lines (0-based within the hunk) whose scopes decide where it belongs.

    ``changed`` are the removed ones, ``beside`` the nearest ones on both sides of each run of
    changes; none is blank.
    """

    changed: tuple[int, ...]
    beside: tuple[int, ...]

    def __iter__(self) -> Iterator[int]:
        yield from self.changed
        yield from self.beside


def proof_rows(hunk: Hunk) -> ProofRows:
    """The lines of a hunk that have their scope compared."""
    solid = [bool(line.strip()) for line in hunk.old_lines]
    changed: set[int] = set()
    beside: set[int] = set()
    for first, stop in _runs(hunk.kinds):
        changed.update(row for row in range(first, stop) if solid[row])
        beside.update(islice((row for row in range(first - 1, -1, -1) if solid[row]), 1))
        beside.update(islice((row for row in range(stop, len(solid)) if solid[row]), 1))
    return ProofRows(tuple(sorted(changed)), tuple(sorted(beside - changed)))


def _runs(kinds: bytes) -> Iterator[tuple[int, int]]:
    """The runs of changes, as ranges of preimage lines: empty ones where lines are only added."""
    row = first = 0
    changing = False
    for kind in kinds:
        if kind != _CONTEXT and not changing:
            first, changing = row, True
        elif kind == _CONTEXT and changing:
            yield first, row
            changing = False
        row += kind != _ADDED
    if changing:
        yield first, row


def _stated_row(hunk: Hunk) -> int:
    # Without old lines the header names the line after which to insert.
    return hunk.old_start - 1 if hunk.old_lines else hunk.old_start


def _apply_at_stated_lines(content: bytes, hunks: Sequence[Hunk]) -> FileResult:
    pieces: list[bytes] = []
    results: list[HunkResult] = []
    offset = row = 0
    for hunk in hunks:
        old = b"".join(hunk.old_lines)
        stated = _stated_row(hunk)
        start = _find_at_row(content, old, offset, stated - row)
        end = None if start is None else start + len(old)
        if start is None or end is None or _ends_early(hunk, content, end):
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


def _find_at_row(content: bytes, old: bytes, offset: int, rows: int) -> int | None:
    """Where ``old`` stands, if that is ``rows`` lines after the line at ``offset``."""
    if rows < 0:
        return None
    start = offset
    if not old:
        for _ in range(rows):
            start = content.find(b"\n", start) + 1
            if start == 0:
                return None
        return start if _is_whole_lines(content, start, len(content)) else None
    while (at := content.find(old, start)) >= 0:
        rows -= content.count(b"\n", offset, at)
        if rows < 0:
            return None
        if rows == 0 and _is_whole_lines(content, at, at + len(old)):
            return at
        offset, start = at, at + 1
    return None


def _is_whole_lines(content: bytes, start: int, end: int) -> bool:
    return (start == 0 or content[start - 1] == _FEED) and (
        end == len(content) or content[end - 1] == _FEED
    )


def _ends_early(hunk: Hunk, content: bytes, end: int) -> bool:
    """Whether the hunk makes the file end without a line feed although more follows."""
    lines = hunk.new_lines
    return bool(lines) and not lines[-1].endswith(b"\n") and end != len(content)


class _Text:
    """One version of the file: its bytes, where its lines start, and its scopes."""

    def __init__(self, content: bytes, path: bytes) -> None:
        self.content = content
        self._path = path
        self._starts = [0, *(found.end() for found in re.finditer(rb"\n", content))]
        if content.endswith(b"\n") or not content:
            self._starts.pop()
        self.taken: list[tuple[int, int]] = []

    def row_of(self, offset: int) -> int:
        return max(bisect_right(self._starts, offset) - 1, 0)

    def start_of(self, row: int) -> int:
        return self._starts[row] if row < len(self._starts) else len(self.content)

    @property
    def scopes(self) -> ScopeMap | None:
        from dsv4port.apply.scopes import scope_map

        return scope_map(self._path, self.content)

    def lines(self, first: int, last: int) -> bytes:
        """The 1-based lines ``first`` to ``last``."""
        return self.content[self.start_of(first - 1) : self.start_of(last)]

    def line(self, row: int) -> bytes:
        return self.content[self.start_of(row) : self.start_of(row + 1)]

    def places(self, hunk: Hunk) -> list[int]:
        """Offsets at which the hunk's preimage matches, outside of ``taken``.

        At most one more than :data:`MAX_PLACES`.
        """
        return list(islice(self._places(hunk), MAX_PLACES + 1))

    def _places(self, hunk: Hunk) -> Iterator[int]:
        old = b"".join(hunk.old_lines)
        content = self.content
        at = content.find(old)
        while at >= 0:
            end = at + len(old)
            if _is_whole_lines(content, at, end) and not any(
                start < end and at < stop for start, stop in self.taken
            ):
                yield at
            at = content.find(old, at + 1)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Scopes of a hunk in the base and at a place; ``same`` None when one of them is unknown."""

    same: bool | None
    old: Scope | None
    new: Scope | None
    old_line: int
    new_line: int


class _Placing:
    """Places hunks one after the other in a target that is not known to be their base."""

    def __init__(self, content: bytes, base: bytes | None, path: bytes) -> None:
        self._path = path
        self._target = _Text(content, path)
        self._base = None if base is None else _Text(base, path)

    def apply(self, hunks: Sequence[Hunk]) -> FileResult:
        content = self._target.content
        pieces: list[bytes] = []
        results: list[HunkResult] = []
        end = base_end = 0
        for hunk in hunks:
            result = self._place(hunk, end, base_end)
            results.append(result)
            base_end = _stated_row(hunk) + len(hunk.old_lines)
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
        line = _stated_row(hunk) + 1
        refuse = _Refuse(line)
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
            return refuse.because(HunkOutcome.NO_MATCH, self._why_nowhere(hunk))
        if base_start is None:
            result = self._place_without_base(hunk, places, refuse)
        else:
            result = self._place_with_base(hunk, places, base_start, refuse)
        if result.new_line is None:
            return result
        start = self._target.start_of(result.new_line - 1)
        if anchors := self._missed_anchors(hunk, start):
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
        row = _stated_row(hunk)
        old = b"".join(hunk.old_lines)
        start = base.start_of(row)
        end = start + len(old)
        if (
            row < base_end
            or not base.content.startswith(old, start)
            or not _is_whole_lines(base.content, start, end)
            or _ends_early(hunk, base.content, end)
        ):
            return None
        base.taken.append((start, end))
        return start

    # With the base.

    def _place_with_base(
        self, hunk: Hunk, places: list[int], base_start: int, refuse: _Refuse
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
                f"the hunk's lines match at more than {MAX_PLACES} places; {_MORE_CONTEXT}",
            )
        rows = proof_rows(hunk)
        compared = {place: self._compare(base, base_start, target, place, rows) for place in places}
        same = [place for place, found in compared.items() if found.same]
        if not same:
            return self._nowhere_the_same(compared, refuse)
        rivals = [
            peer
            for peer in peers
            if self._compare(base, base_start, base, peer, rows).same is not False
        ]
        chosen = same
        if len(same) > 1 or rivals or _has_twins(compared[same[0]].new):
            rest_counts = len(places) == len(peers) + 1
            chosen = [
                place
                for place in same
                if self._is_unmoved(base_start, place, rows, length if rest_counts else None)
            ]
        if len(chosen) != 1:
            return self._too_many(same, rivals, compared, refuse)
        found = compared[chosen[0]]
        return self._applied(refuse.line, chosen[0], found)

    def _applied(self, line: int, place: int, found: _Comparison) -> HunkResult:
        new_line = self._target.row_of(place) + 1
        if new_line == line:
            return HunkResult(HunkOutcome.EXACT, line, line, found.old, found.new)
        where = "" if found.new is None else f" in {_quoted(found.new)}"
        return HunkResult(
            HunkOutcome.OFFSET, line, new_line, found.old, found.new,
            f"moved from line {line} to line {new_line}{where}",
        )  # fmt: skip

    def _compare(
        self, before: _Text, old_start: int, after: _Text, new_start: int, rows: ProofRows
    ) -> _Comparison:
        from dsv4port.apply.scopes import same_scope

        old_first = before.row_of(old_start) + 1
        new_first = after.row_of(new_start) + 1
        old_scopes, new_scopes = before.scopes, after.scopes
        if old_scopes is None or new_scopes is None:
            # No grammar: a place is as good as it is unique. Over the size limit on one side
            # only: nothing to compare.
            known = True if old_scopes is new_scopes else None
            return _Comparison(known, None, None, old_first, new_first)
        found: list[_Comparison] = []
        for row in rows:
            old_line, new_line = old_first + row, new_first + row
            old, new = old_scopes.scope_of_line(old_line), new_scopes.scope_of_line(new_line)
            same = None if old is None or new is None else same_scope(old, new)
            found.append(_Comparison(same, old, new, old_line, new_line))
            if same is False:
                return found[-1]
        unknown = [one for one in found if one.same is None]
        if unknown or not found:
            return unknown[0] if unknown else _Comparison(None, None, None, old_first, new_first)
        if rows.changed:
            return found[0]
        # An insertion is in the innermost of the scopes beside it, or next to it.
        return max(found, key=lambda one: 0 if one.old is None else len(one.old.steps))

    def _is_unmoved(
        self, old_start: int, new_start: int, rows: ProofRows, length: int | None
    ) -> bool:
        """Whether what surrounds the hunk is unchanged and the hunk stands at its old place there.

        That is all of the innermost definition around each line that is compared. With the
        ``length`` of the hunk it may also be all of the file after it; the caller has made sure
        that the file has as many look-alikes as the base, so none can have been added before.
        """
        base, target = self._base, self._target
        assert base is not None
        if (
            length is not None
            and base.content[old_start + length :] == target.content[new_start + length :]
        ):
            return True
        old_scopes, new_scopes = base.scopes, target.scopes
        if old_scopes is None or new_scopes is None:
            return False
        old_first, new_first = base.row_of(old_start) + 1, target.row_of(new_start) + 1
        for row in rows:
            old_span = old_scopes.lines_of_scope(old_first + row)
            new_span = new_scopes.lines_of_scope(new_first + row)
            if old_span is None or new_span is None:
                return False
            if old_first - old_span[0] != new_first - new_span[0]:
                return False
            if base.lines(*old_span) != target.lines(*new_span):
                return False
        return bool(rows.changed or rows.beside)

    def _nowhere_the_same(self, compared: dict[int, _Comparison], refuse: _Refuse) -> HunkResult:
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
        compared: dict[int, _Comparison],
        refuse: _Refuse,
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
            f"{text}; nothing proves which place is meant: {_MORE_CONTEXT}",
            found.old,
            found.new,
        )

    def _lines(self, places: list[int]) -> str:
        numbers = sorted(self._target.row_of(place) + 1 for place in places)
        return f"line{'s' if len(numbers) > 1 else ''} {_numbers(numbers)}"

    # Without the base.

    def _place_without_base(self, hunk: Hunk, places: list[int], refuse: _Refuse) -> HunkResult:
        if len(places) > 1:
            return refuse.because(
                HunkOutcome.AMBIGUOUS,
                f"the hunk's lines match at {self._lines(places)} and the base blob is not "
                f"available to tell them apart; {_MORE_CONTEXT} or make the base available",
            )
        line = self._target.row_of(places[0]) + 1
        if line != refuse.line:
            return refuse.because(
                HunkOutcome.UNPROVEN,
                f"the hunk matches at line {line} instead of line {refuse.line}, and the base blob "
                "is not available to prove that this is the right place",
            )
        if not self._heading_fits(hunk.section, places[0]):
            heading = display_text(hunk.section.strip())
            return refuse.because(
                HunkOutcome.UNPROVEN,
                f"the hunk matches at line {line}, but not below `{heading}` as its header says, "
                "and the base blob is not available to prove that this is the right place",
            )
        return HunkResult(HunkOutcome.EXACT, line, line)

    def _heading_fits(self, section: bytes, place: int) -> bool:
        """Whether git would print this text after ``@@`` for a hunk at this place.

        By default git prints the nearest line above that begins with a letter, ``_`` or ``$``, cut
        to 80 bytes (GNU diff: 40); with its driver for Python, the nearest ``def`` or ``class``.
        """
        heading = section.strip()
        if not heading:
            return True
        above = self._target.content[:place]
        lines = [_last(_HEADING_LINE, above, 0)]
        if self._path.endswith((b".py", b".pyi")):
            lines.append(_last(_PYTHON_HEADING_LINE, above, 1))
        return any(
            found is not None
            and found.startswith(heading)
            and (len(heading) >= _SHORTEST_CUT or found.rstrip() == heading)
            for found in lines
        )

    # Nowhere.

    def _missed_anchors(self, hunk: Hunk, start: int) -> list[str]:
        """Where the hunk must match as for ``git apply`` but does not."""
        missed = []
        if hunk.old_start <= 1 and start != 0:
            missed.append("at the beginning of the file, since it starts at line 1")
        end = start + sum(map(len, hunk.old_lines))
        if hunk.kinds[-1] != _CONTEXT and end != len(self._target.content):
            missed.append("at the end of the file, since it has no context after its changes")
        return missed

    def _why_nowhere(self, hunk: Hunk) -> str:
        target = self._target
        old = b"".join(hunk.old_lines)
        new = b"".join(hunk.new_lines)
        elsewhere = _whole_match(target.content, old)
        text = "the hunk's context and removed lines are nowhere in the file"
        if elsewhere is not None:
            text += " outside of what other hunks change"
        bare = old.replace(b"\r\n", b"\n")
        if elsewhere is None and bare in target.content.replace(b"\r\n", b"\n"):
            return f"{text}: only the line ends differ (CRLF and LF)"
        if new and (there := _whole_match(target.content, new)) is not None:
            text += f"; the lines it would produce stand at line {target.row_of(there) + 1}"
        return text + self._nearest(hunk)

    def _nearest(self, hunk: Hunk) -> str:
        """The place where most of the preimage's lines stand, for the reason of a refusal."""
        target = self._target
        rows_of: dict[bytes, list[int]] = {}
        wanted = {line for line in hunk.old_lines if line.strip()}
        for row, line in enumerate(target.content.split(b"\n")):
            if line + b"\n" in wanted or line in wanted:
                rows_of.setdefault(line, []).append(row)
        votes: Counter[int] = Counter()
        for index, line in enumerate(hunk.old_lines):
            for row in rows_of.get(line.removesuffix(b"\n"), ())[:MAX_PLACES]:
                votes[row - index] += 1
        votes = Counter({row: count for row, count in votes.items() if row >= 0})
        if not votes:
            return ""
        stated = _stated_row(hunk)
        best = min(votes, key=lambda row: (-votes[row], abs(row - stated)))
        for index, line in enumerate(hunk.old_lines):
            if target.line(best + index) != line:
                solid = sum(1 for line in hunk.old_lines if line.strip())
                return (
                    f"; nearest is line {best + 1}, where {votes[best]} of {solid} lines agree "
                    f"and line {best + index + 1} is the first to differ"
                )
        return ""


@dataclass(frozen=True, slots=True)
class _Refuse:
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


def _whole_match(content: bytes, lines: bytes) -> int | None:
    at = content.find(lines)
    while at >= 0:
        if _is_whole_lines(content, at, at + len(lines)):
            return at
        at = content.find(lines, at + 1)
    return None


def _last(pattern: re.Pattern[bytes], text: bytes, group: int) -> bytes | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return None if found is None else found[group]


def _has_twins(scope: Scope | None) -> bool:
    """Whether only its number tells some definition around from another one."""
    return scope is not None and any(step.twins > 1 for step in scope.steps)


def _quoted(scope: Scope) -> str:
    return str(scope) if not scope.steps else f"`{scope}`"


def _numbers(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:_NAMED_PLACES]))
    more = len(numbers) - _NAMED_PLACES
    return f"{text} and {more} more" if more > 0 else text
