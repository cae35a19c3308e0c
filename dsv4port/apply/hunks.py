"""Strict placement of the hunks of one file: the right place or a refusal, no fuzz ever.

A hunk that was written for this very blob must stand at its stated line. Otherwise all its context
and removed lines must match somewhere, and the place must be proven: the lines that change, and
the context next to them, lie in the same qualified scopes as in the base. A match at the stated
line needs that proof too (look-alike functions may have changed places). Where a scope holds the
same lines twice, nothing proves which is meant, and the hunk is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dsv4port.patch.model import Hunk

if TYPE_CHECKING:
    from dsv4port.apply.scopes import Scope, ScopeMap
_HEADING_LIMIT = 80
"""Bytes after which git cuts the text behind the second ``@@``."""


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
    """They match only in another scope than the one the hunk was written for."""
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

    Parameters:
        content: the file as it is in the target tree.
        path: decides which grammar reads the scopes.
        base: the file that the hunks were written for (the blob of ``old_id``), None if unknown.
        preimage_is_target: the caller knows that ``content`` is that file (equal blob ids).
    """
    lines = split_lines(content)
    results: list[HunkResult] = []
    if preimage_is_target:
        results.extend(_at_stated_line(hunk, lines) for hunk in hunks)
    else:
        placement = _Placement(lines, content, path, base)
        results.extend(placement.place(hunk) for hunk in hunks)
    if not all(result.outcome.applied for result in results):
        return FileResult(None, tuple(results))
    pieces: list[bytes] = []
    position = 0
    for hunk, result in zip(hunks, results, strict=True):
        start = _index(hunk) + result.offset
        pieces.extend(lines[position:start])
        pieces.extend(hunk.new_lines)
        position = start + len(hunk.old_lines)
    pieces.extend(lines[position:])
    return FileResult(b"".join(pieces), tuple(results))


def split_lines(content: bytes) -> list[bytes]:
    """Lines with their ends; only LF ends a line, as in git."""
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    if parts[-1]:
        lines.append(parts[-1])
    return lines


def _index(hunk: Hunk) -> int:
    """Index of the first preimage line; a hunk without any stands behind its stated line."""
    return hunk.old_start if not hunk.old_lines else hunk.old_start - 1


def _at_stated_line(hunk: Hunk, lines: list[bytes]) -> HunkResult:
    start = _index(hunk)
    if _matches(hunk, lines, start):
        return HunkResult(HunkOutcome.EXACT, start + 1, start + 1)
    return HunkResult(
        HunkOutcome.BASE_MISMATCH,
        start + 1,
        reason="the file is the one the patch names, yet the hunk does not match it there: "
        "the patch was edited by hand",
    )


def _matches(hunk: Hunk, lines: list[bytes], start: int) -> bool:
    end = start + len(hunk.old_lines)
    return start >= 0 and end <= len(lines) and tuple(lines[start:end]) == hunk.old_lines


def _places(hunk: Hunk, lines: list[bytes]) -> list[int]:
    """Every index at which all preimage lines match.

    As in git, a hunk that starts at the first line belongs to the beginning of the file, and one
    without context behind its changes to the end.
    """
    if hunk.old_start <= 1:
        return [0] if _matches(hunk, lines, 0) else []
    if not hunk.kinds.endswith(b" "):
        last = len(lines) - len(hunk.old_lines)
        return [last] if _matches(hunk, lines, last) else []
    first, start = hunk.old_lines[0], -1
    found: list[int] = []
    while True:
        try:
            start = lines.index(first, start + 1)
        except ValueError:
            return found
        if _matches(hunk, lines, start):
            found.append(start)


def _witnesses(hunk: Hunk) -> list[int]:
    """Preimage lines whose scopes prove the place, as offsets into ``old_lines``.

    The removed lines, and around each change the nearest context that is not blank.
    """
    chosen: set[int] = set()
    position = 0
    for kind in hunk.kinds:
        if kind == ord("+"):
            neighbours = (range(position - 1, -1, -1), range(position, len(hunk.old_lines)))
        elif kind == ord("-"):
            chosen.add(position)
            neighbours = (
                range(position - 1, -1, -1),
                range(position + 1, len(hunk.old_lines)),
            )
            position += 1
        else:
            position += 1
            continue
        for side in neighbours:
            near = next((at for at in side if hunk.old_lines[at].strip()), None)
            if near is not None:
                chosen.add(near)
    return sorted(chosen)


class _Placement:
    """Places hunks, in order, in a file that is not the one they were written for."""

    def __init__(self, lines: list[bytes], content: bytes, path: bytes, base: bytes | None) -> None:
        self._lines = lines
        self._content = content
        self._path = path
        self._base = base
        self._base_lines = split_lines(base) if base is not None else []
        self._maps: tuple[ScopeMap | None, ScopeMap | None] | None = None
        self._end = 0

    def place(self, hunk: Hunk) -> HunkResult:
        result = self._find(hunk)
        if result.new_line is not None and result.outcome.applied:
            start = result.new_line - 1
            if start < self._end:
                return HunkResult(
                    HunkOutcome.NO_MATCH,
                    result.old_line,
                    old_scope=result.old_scope,
                    reason=f"matches only at line {start + 1}, before an earlier hunk",
                )
            self._end = start + len(hunk.old_lines)
        return result

    def _find(self, hunk: Hunk) -> HunkResult:
        stated = _index(hunk)
        if not hunk.old_lines and self._lines:
            return HunkResult(
                HunkOutcome.UNPROVEN,
                stated + 1,
                reason="the hunk has no context, and the file is not the one it was written for",
            )
        if self._base is not None and not _matches(hunk, self._base_lines, stated):
            return HunkResult(
                HunkOutcome.BASE_MISMATCH,
                stated + 1,
                reason="the hunk does not match the base that the patch names: "
                "the patch was edited by hand",
            )
        places = _places(hunk, self._lines)
        if not places:
            return HunkResult(HunkOutcome.NO_MATCH, stated + 1, reason=self._nearest(hunk))
        if self._base is None:
            return self._without_base(hunk, stated, places)
        return self._with_base(hunk, stated, places)

    def _without_base(self, hunk: Hunk, stated: int, places: list[int]) -> HunkResult:
        line = stated + 1
        if len(places) > 1:
            return HunkResult(HunkOutcome.AMBIGUOUS, line, reason=_several(places))
        if places[0] != stated:
            return HunkResult(
                HunkOutcome.UNPROVEN,
                line,
                reason=f"matches at line {places[0] + 1}, but the base blob is not available, "
                "so the scope it was written for is unknown",
            )
        heading = hunk.section.rstrip()
        found = _heading(self._lines, stated)
        if heading and not found.startswith(heading):
            shown = heading.decode("utf-8", "backslashreplace")
            return HunkResult(
                HunkOutcome.UNPROVEN,
                line,
                reason=f"the base blob is not available, and the hunk names `{shown}`, which is "
                "not what stands above the place",
            )
        return HunkResult(HunkOutcome.EXACT, line, line)

    def _with_base(self, hunk: Hunk, stated: int, places: list[int]) -> HunkResult:
        line = stated + 1
        base_map, target_map = self._scope_maps()
        if base_map is None or target_map is None:
            if len(places) > 1:
                return HunkResult(HunkOutcome.AMBIGUOUS, line, reason=_several(places))
            return _placed(line, places[0] + 1, None, None)
        witnesses = _witnesses(hunk)
        old_scope = _scope(base_map, hunk, stated)
        twins = [
            place
            for place in _places(hunk, self._base_lines)
            if self._proven(base_map, base_map, witnesses, stated, place)
        ]
        if len(twins) > 1:
            return HunkResult(
                HunkOutcome.AMBIGUOUS,
                line,
                old_scope=old_scope,
                reason="the base has the same lines more than once in that scope "
                f"(lines {_listed(twins)}), so nothing proves which are meant",
            )
        proven = [
            place
            for place in places
            if self._proven(base_map, target_map, witnesses, stated, place)
        ]
        if len(proven) == 1:
            place = proven[0]
            return _placed(line, place + 1, old_scope, _scope(target_map, hunk, place))
        if len(proven) > 1:
            return HunkResult(
                HunkOutcome.AMBIGUOUS, line, old_scope=old_scope, reason=_several(proven)
            )
        new_scope = _scope(target_map, hunk, places[0])
        if old_scope is None or (new_scope is None and len(places) == 1):
            where = "base" if old_scope is None else "target"
            return HunkResult(
                HunkOutcome.UNPROVEN,
                line,
                old_scope=old_scope,
                reason=f"the scope in the {where} is unknown (the file does not parse there)",
            )
        found = ", ".join(
            f"`{_scope(target_map, hunk, place) or 'unknown'}` (line {place + 1})"
            for place in places
        )
        return HunkResult(
            HunkOutcome.MISPLACED,
            line,
            old_scope=old_scope,
            new_scope=new_scope,
            reason=f"written for `{old_scope}`, matches only in {found}",
        )

    @staticmethod
    def _proven(
        base_map: ScopeMap, target_map: ScopeMap, witnesses: list[int], stated: int, place: int
    ) -> bool:
        from dsv4port.apply.scopes import same_scope

        for witness in witnesses:
            old = base_map.scope_of_line(stated + witness + 1)
            new = target_map.scope_of_line(place + witness + 1)
            if old is None or new is None or not same_scope(old, new):
                return False
        return bool(witnesses)

    def _scope_maps(self) -> tuple[ScopeMap | None, ScopeMap | None]:
        if self._maps is None:
            from dsv4port.apply.scopes import scope_map

            assert self._base is not None
            self._maps = (
                scope_map(self._path, self._base),
                scope_map(self._path, self._content),
            )
        return self._maps

    def _nearest(self, hunk: Hunk) -> str:
        """Which part of the preimage is there, to help a person find the place."""
        for position, wanted in enumerate(hunk.old_lines):
            if wanted.strip() and wanted not in self._lines:
                text = wanted.strip()[:60].decode("utf-8", "backslashreplace")
                return f"line {position + 1} of its context is nowhere in the file: `{text}`"
        return "its context and removed lines stand nowhere together"


def _scope(scopes: ScopeMap, hunk: Hunk, place: int) -> Scope | None:
    """The scope a hunk is said to change: of its first removed line, else of what it follows."""
    removed = hunk.kinds.replace(b"+", b"").find(b"-")
    if removed < 0:
        before = hunk.kinds.find(b"+") - 1
        removed = max(before, 0)
        while removed > 0 and not hunk.old_lines[removed].strip():
            removed -= 1
    return scopes.scope_of_line(place + removed + 1)


def _placed(
    old_line: int, new_line: int, old_scope: Scope | None, new_scope: Scope | None
) -> HunkResult:
    if old_line == new_line:
        return HunkResult(HunkOutcome.EXACT, old_line, new_line, old_scope, new_scope)
    where = f" in `{new_scope}`" if new_scope is not None else ", the only place that matches"
    return HunkResult(
        HunkOutcome.OFFSET,
        old_line,
        new_line,
        old_scope,
        new_scope,
        f"moved by {new_line - old_line:+d} lines to line {new_line}{where}",
    )


def _several(places: list[int]) -> str:
    return f"matches at lines {_listed(places)}, and nothing proves which is meant"


def _listed(places: list[int]) -> str:
    return ", ".join(str(place + 1) for place in places)


def _heading(lines: list[bytes], start: int) -> bytes:
    """What git would write behind the second ``@@`` of a hunk that starts at index `start`."""
    for line in reversed(lines[:start]):
        first = line[:1]
        if first.isalpha() or first in (b"_", b"$"):
            return line[:_HEADING_LIMIT].rstrip()
    return b""
