"""Edits whose code upstream moved to another file: merged there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dsv4port.patch.model import Hunk
from dsv4port.port.edits import BaseEdits, Edit, apply_edits
from dsv4port.port.file_merge import Decided
from dsv4port.port.merge import Resolution, Verdict, merged_lines
from dsv4port.port.placement import Place, Proof, compare
from dsv4port.port.presence import weight
from dsv4port.port.relocate import Home, Relocator, is_replaced
from dsv4port.port.scope_merge import innermost, merge_piece
from dsv4port.port.text import Text

_LEFT = 0.4
"""Share of a piece of text that may still be in its file when it is said to have moved."""


@dataclass(frozen=True, slots=True)
class Rehomed:
    """An edit decided in another file; ``reason`` says how the file was found."""

    decided: Decided
    target: Text
    reason: str


class MovedMerge:
    """Merges edits of one file where their code went.

    Parameters:
        base: the file in the base chain.
        located: the patch's hunks in it.
        target: the file in the target, empty where it is gone.
        read: content of another file of the target, with what this patch changed there so far.
    """

    def __init__(
        self,
        relocator: Relocator,
        base: Text,
        located: BaseEdits,
        target: Text,
        read: Callable[[bytes], bytes | None],
    ) -> None:
        self._relocator = relocator
        self._base = base
        self._located = located
        self._target = target
        self._read = read
        self._texts: dict[bytes, Text] = {}
        self._applied: dict[bytes, list[Resolution]] = {}

    def find(self, decided: Sequence[Decided]) -> dict[Edit, Rehomed]:
        """The edits of what is not settled that can be merged in another file."""
        found: dict[Edit, Rehomed] = {}
        for one in decided:
            if one.settled:
                continue
            for edit in one.resolution.edits:
                moved = self._one(edit)
                if moved is not None and self._is_free(moved):
                    found[edit] = moved
                    if moved.decided.resolution.lines is not None:
                        self._applied.setdefault(moved.target.path, []).append(
                            moved.decided.resolution
                        )
        return found

    def contents(self) -> dict[bytes, bytes]:
        """The other files with what was put in."""
        return {
            path: b"".join(merged_lines(self._texts[path].lines, resolutions))
            for path, resolutions in self._applied.items()
        }

    def _is_free(self, moved: Rehomed) -> bool:
        resolution = moved.decided.resolution
        if resolution.lines is None:
            return True
        return not any(
            (resolution.start < other.stop and other.start < resolution.stop)
            or (resolution.start, resolution.stop) == (other.start, other.stop)
            for other in self._applied.get(moved.target.path, ())
        )

    def _text(self, path: bytes) -> Text | None:
        if path not in self._texts:
            content = self._read(path)
            if content is None:
                return None
            self._texts[path] = Text.of(path, content)
        return self._texts[path]

    def _one(self, edit: Edit) -> Rehomed | None:
        holder = innermost(self._base, edit)
        if holder is not None:
            scope, first, stop = holder
            home = None
            if not self._target.span(scope):
                home = self._relocator.definition(self._base, scope, (first, stop))
            if home is not None:
                there = self._text(home.path)
                if there is None or is_replaced(self._base, self._target, scope, there):
                    return None
                return self._in_definition(edit, (first, stop), home)
        return self._in_text(edit)

    def _in_definition(self, edit: Edit, rows: tuple[int, int], home: Home) -> Rehomed | None:
        target = self._text(home.path)
        holder = innermost(self._base, edit)
        if target is None or holder is None:
            return None
        # The patch may have changed that file already.
        spans = target.span(home.scope)
        if len(spans) != 1:
            return None
        found = merge_piece(self._base, edit, target, rows, spans[0])
        if found is None or found.verdict is Verdict.CONFLICT:
            return None
        decided = Decided(
            found, Proof(Place.MOVED, holder[0], home.scope), True, (holder[0], home.scope)
        )
        if found.lines is not None and not self._is_proven(edit, target, decided):
            return None
        return Rehomed(decided, target, home.reason)

    def _is_proven(self, edit: Edit, target: Text, decided: Decided) -> bool:
        """Whether the lines put in have the scope that the move says."""
        assert decided.moved is not None and decided.resolution.lines is not None
        theirs = Text(self._base.path, apply_edits(self._base.lines, [edit]))
        merged = Text(target.path, merged_lines(target.lines, [decided.resolution]))
        if decided.resolution.verdict is Verdict.TOKENS or not any(
            line.strip() for line in edit.lines
        ):
            return True
        start = decided.resolution.start
        proof = compare(
            theirs, range(edit.first, edit.first + len(edit.lines)),
            merged, range(start, start + len(edit.lines)), [decided.moved],
        )  # fmt: skip
        return proof.place in (Place.SAME, Place.MOVED)

    def _in_text(self, edit: Edit) -> Rehomed | None:
        placed = self._located.placed[edit.hunk]
        if placed is None or placed.fuzz:
            return None
        hunk: Hunk = placed.hunk
        # All of the hunk, or all but its outermost lines of context.
        for cut in range(min(2, _context(hunk.kinds)) + 1):
            block = hunk.old_lines[cut : len(hunk.old_lines) - cut]
            if _left_share(self._target.lines, block) > _LEFT:
                # Upstream changed it where it is; what stands elsewhere is a copy.
                return None
            home = self._relocator.text(self._base.path, block)
            if home is not None:
                break
        else:
            return None
        target = self._text(home.path)
        if target is None:
            return None
        places = _places(target.lines, block)
        if len(places) != 1:
            return None
        row = places[0]
        start = row + edit.first - placed.start - cut
        resolution = Resolution(
            (edit,), Verdict.CLEAN, start, start + edit.stop - edit.first, edit.lines, ""
        )
        proof = Proof(Place.MOVED, self._base.scope(placed.start), target.scope(row))
        return Rehomed(Decided(resolution, proof, True), target, home.reason)


def _context(kinds: bytes) -> int:
    """Lines of context that a hunk has at both ends."""
    return min(len(kinds) - len(kinds.lstrip(b" ")), len(kinds) - len(kinds.rstrip(b" ")))


def _places(lines: Sequence[bytes], block: Sequence[bytes]) -> list[int]:
    """Rows at which a block of lines stands."""
    return [
        row
        for row, line in enumerate(lines)
        if line == block[0] and list(lines[row : row + len(block)]) == list(block)
    ]


def _left_share(lines: Sequence[bytes], block: Sequence[bytes]) -> float:
    """Share of a block, by weight, that is still among some lines."""
    there = set(lines)
    total = sum(map(weight, block))
    return sum(weight(line) for line in block if line in there) / total if total else 1.0


def replaced(decided: Sequence[Decided], moved: dict[Edit, Rehomed]) -> list[Decided]:
    """What is left to decide in the file itself."""
    result: list[Decided] = []
    for one in decided:
        left = tuple(edit for edit in one.resolution.edits if edit not in moved)
        if len(left) == len(one.resolution.edits):
            result.append(one)
        elif left:
            result.append(replace(one, resolution=replace(one.resolution, edits=left)))
    return result
