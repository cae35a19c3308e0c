"""Laws that every merge must obey, whatever the texts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.port.align import LARGEST_GAP, Method, align, common_rows
from dsv4port.port.edits import Edit, apply_edits
from dsv4port.port.file_merge import merge_file
from dsv4port.port.merge import Verdict, merge, merged_lines, slides
from dsv4port.port.text import Text
from dsv4port.port.tokens import merge_tokens

LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"def f():\n", b"    x = 1\n", b"}\n"]),
    max_size=24,
)


@st.composite
def edits_of(draw: st.DrawFn, base: Sequence[bytes]) -> list[Edit]:
    """Edits in ascending order with at least one line between two of them."""
    found: list[Edit] = []
    row = 0
    while row <= len(base) and len(found) < 4 and draw(st.booleans()):
        first = draw(st.integers(row, len(base)))
        stop = draw(st.integers(first, min(first + 3, len(base))))
        lines = tuple(draw(st.lists(st.sampled_from([b"new\n", b"other\n", b"a\n"]), max_size=3)))
        if first == stop and not lines:
            break
        if first < stop and lines and (base[first], base[stop - 1]) != (lines[0], lines[-1]):
            # As a diff has it: no line is removed and written again at either end.
            lines = tuple(line for line in lines if line not in (base[first], base[stop - 1]))
        elif first < stop and lines:
            break
        found.append(Edit(first, stop, lines, 0))
        row = stop + 1
    return found


@st.composite
def merges(draw: st.DrawFn) -> tuple[list[bytes], list[Edit], list[Edit]]:
    base = draw(LINES)
    return base, draw(edits_of(base)), draw(edits_of(base))


def settled(base: list[bytes], edits: list[Edit], target: list[bytes]) -> list[bytes] | None:
    """The merge of whole texts, None where anything is in conflict."""
    found = merge_file(Text(b"f.txt", base), edits, Text(b"f.txt", target))
    if not all(one.settled for one in found):
        return None
    return merged_lines(target, [one.resolution for one in found])


@given(LINES, LINES, st.sampled_from(Method))
@settings(deadline=None)
def test_an_alignment_matches_equal_lines_in_order(
    old: list[bytes], new: list[bytes], method: Method
) -> None:
    found = align(old, new, method)
    assert len(found) == len(old)
    pairs = [(row, at) for row, at in enumerate(found) if at >= 0]
    assert all(old[row] == new[at] for row, at in pairs)
    assert all(left[1] < right[1] for left, right in itertools.pairwise(pairs))
    if method is Method.MINIMAL:
        assert len(pairs) == len(common_rows(old, new))


@given(merges())
@settings(deadline=None)
def test_onto_the_base_itself_it_is_an_apply(
    case: tuple[list[bytes], list[Edit], list[Edit]],
) -> None:
    base, edits, _ = case
    for method in Method:
        found = merge(base, edits, base, align(base, base, method))
        assert {one.verdict for one in found} <= {Verdict.CLEAN}
        assert merged_lines(base, found) == apply_edits(base, edits)


@given(merges())
@settings(deadline=None)
def test_onto_its_own_result_nothing_is_applied_again(
    case: tuple[list[bytes], list[Edit], list[Edit]],
) -> None:
    base, edits, _ = case
    target = apply_edits(base, edits)
    result = settled(base, edits, target)
    assert result is None or result == target


@given(merges(), st.sampled_from(Method))
@settings(deadline=None)
def test_every_edit_is_decided_once_and_places_do_not_overlap(
    case: tuple[list[bytes], list[Edit], list[Edit]], method: Method
) -> None:
    base, edits, theirs = case
    target = apply_edits(base, theirs)
    found = merge(base, edits, target, align(base, target, method))
    assert sorted(edit.first for one in found for edit in one.edits) == [
        edit.first for edit in edits
    ]
    applied = sorted((one.start, one.stop) for one in found if one.lines is not None)
    assert all(0 <= start <= stop <= len(target) for start, stop in applied)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(applied))


@given(st.lists(st.integers(0, 9), min_size=12, max_size=40), st.data())
@settings(deadline=None)
def test_changes_apart_from_each_other_commute(numbers: list[int], data: st.DataObject) -> None:
    base = [b"line %d is %d\n" % pair for pair in enumerate(numbers)]
    middle = data.draw(st.integers(4, len(base) - 4))
    top = Edit(data.draw(st.integers(0, middle - 3)), middle - 2, (b"mine\n",), 0)
    bottom = Edit(middle + 1, data.draw(st.integers(middle + 1, len(base))), (b"theirs\n",), 0)
    both = apply_edits(base, [top, bottom])
    assert settled(base, [top], apply_edits(base, [bottom])) == both
    assert settled(base, [bottom], apply_edits(base, [top])) == both


@given(merges())
@settings(deadline=None)
def test_what_upstream_did_alone_survives_every_merge(
    case: tuple[list[bytes], list[Edit], list[Edit]],
) -> None:
    """Lines that only upstream added are in the result as often as in the target."""
    base, edits, _ = case
    target = [b"upstream's first\n", *base, b"upstream's last\n"]
    result = settled(base, edits, target)
    if result is not None:
        assert result.count(b"upstream's first\n") == 1
        assert result.count(b"upstream's last\n") == 1
        assert result[0] == b"upstream's first\n" or not base or (edits and edits[0].first == 0)


WORDS = st.lists(st.sampled_from([b"alpha", b"beta", b"(", b")", b", ", b" "]), max_size=12)


@given(WORDS, WORDS)
@settings(deadline=None)
def test_a_change_of_one_side_alone_is_the_merge(old: list[bytes], new: list[bytes]) -> None:
    base, changed = b"".join(old), b"".join(new)
    assert merge_tokens(base, changed, base) == changed
    assert merge_tokens(base, base, changed) == changed
    assert merge_tokens(base, changed, changed) == changed


@given(WORDS, WORDS, WORDS)
@settings(deadline=None)
def test_a_merge_by_tokens_does_not_depend_on_the_side(
    old: list[bytes], left: list[bytes], right: list[bytes]
) -> None:
    base, ours, theirs = b"".join(old), b"".join(left), b"".join(right)
    assert merge_tokens(base, ours, theirs) == merge_tokens(base, theirs, ours)


@given(merges())
@settings(deadline=None)
def test_an_edit_that_slides_says_the_same(
    case: tuple[list[bytes], list[Edit], list[Edit]],
) -> None:
    base, edits, _ = case
    for edit in edits:
        for other in slides(base, edit):
            assert apply_edits(base, [other]) == apply_edits(base, [edit])


def test_a_gap_too_large_for_a_common_subsequence_is_cut_at_unique_lines() -> None:
    old = [b"%d\n" % row for row in range(LARGEST_GAP + 10)]
    new = [b"%d\n" % row if row % 7 else b"new %d\n" % row for row in range(LARGEST_GAP + 10)]

    rows = align(old, new, Method.MINIMAL)

    assert rows == [row if row % 7 else -1 for row in range(LARGEST_GAP + 10)]


def test_edits_in_a_large_file_written_anew_are_one_conflict() -> None:
    base = [b"old %d\n" % row for row in range(LARGEST_GAP + 10)]
    target = [b"new %d\n" % row for row in range(LARGEST_GAP + 10)]
    edits = [Edit(row, row + 1, (b"patched\n",), 0) for row in range(0, LARGEST_GAP, 50)]

    found = merge(base, edits, target, align(base, target, Method.PATIENCE))

    assert [one.verdict for one in found] == [Verdict.CONFLICT]
    assert found[0].edits == tuple(edits)
