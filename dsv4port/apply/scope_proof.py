"""Which lines of a hunk prove where it belongs, and what their scopes say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from dsv4port.apply.file_text import FileText
from dsv4port.patch.model import Hunk
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.apply.scopes import Scope

_CONTEXT, _, _ADDED = b" -+"


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scopes of a hunk in the base and at a place; ``same`` None when one of them is unknown."""

    same: bool | None
    old: Scope | None
    new: Scope | None
    old_line: int
    new_line: int


def compare_scopes(
    before: FileText, old_start: int, after: FileText, new_start: int, rows: ProofRows
) -> Comparison:
    """Compare the scopes of a hunk's lines at its place in one text with those in another."""
    from dsv4port.apply.scopes import same_scope

    old_first = before.row_of(old_start) + 1
    new_first = after.row_of(new_start) + 1
    old_scopes, new_scopes = before.scopes, after.scopes
    if old_scopes is None or new_scopes is None:
        # No grammar: a place is as good as it is unique. Over the size limit on one side
        # only: nothing to compare.
        known = True if old_scopes is new_scopes else None
        return Comparison(known, None, None, old_first, new_first)
    found: list[Comparison] = []
    for row in rows:
        old_line, new_line = old_first + row, new_first + row
        old, new = old_scopes.scope_of_line(old_line), new_scopes.scope_of_line(new_line)
        same = None if old is None or new is None else same_scope(old, new)
        found.append(Comparison(same, old, new, old_line, new_line))
        if same is False:
            return found[-1]
    unknown = [one for one in found if one.same is None]
    if unknown or not found:
        return unknown[0] if unknown else Comparison(None, None, None, old_first, new_first)
    if rows.changed:
        return found[0]
    # An insertion is in the innermost of the scopes beside it, or next to it.
    return max(found, key=lambda one: 0 if one.old is None else len(one.old.steps))


def is_unmoved(
    base: FileText,
    old_start: int,
    target: FileText,
    new_start: int,
    rows: ProofRows,
    length: int | None,
) -> bool:
    """Whether what surrounds the hunk is unchanged and the hunk stands at its old place there.

    That is all of the innermost definition around each line that is compared. With the
    ``length`` of the hunk it may also be all of the file after it; the caller has made sure
    that the file has as many look-alikes as the base, so none can have been added before.
    """
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


def has_twins(scope: Scope | None) -> bool:
    """Whether only its number tells some definition around from another one."""
    return scope is not None and any(step.twins > 1 for step in scope.steps)
