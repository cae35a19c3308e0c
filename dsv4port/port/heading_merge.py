"""Merge below the heading that an edit was written for, where a merge of the file left it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsv4port.port.file_merge import Decided
from dsv4port.port.headings import rows_below
from dsv4port.port.placement import Place, Proof
from dsv4port.port.scope_merge import merge_piece, without_overlaps
from dsv4port.port.text import Text


def retry_below_headings(base: Text, target: Text, decided: Sequence[Decided]) -> list[Decided]:
    """Decide again, below their own headings, the edits that slipped; the rest stays as it is.

    A heading that is not unique in both versions decides nothing. What is found this way carries a
    doubt: a heading is no scope.
    """
    return without_overlaps([_retry(base, target, one) for one in decided])


def _retry(base: Text, target: Text, one: Decided) -> Decided:
    if one.slip is None or len(one.resolution.edits) != 1:
        return one
    rows = rows_below(base.lines, one.slip.heading)
    target_rows = rows_below(target.lines, one.slip.heading)
    edit = one.resolution.edits[0]
    if rows is None or target_rows is None or not rows[0] < edit.first <= edit.stop <= rows[1]:
        return one
    found = merge_piece(base, edit, target, rows, target_rows)
    if found is None or not found.verdict.applied:
        return one
    heading = one.slip.heading.decode("utf-8", "replace")
    doubt = f"a look-alike stands nearby; this one was found below `{heading}`"
    found = replace(found, doubt="; ".join(filter(None, (found.doubt, doubt))))
    return Decided(found, Proof(Place.UNKNOWN), in_scope=True)
