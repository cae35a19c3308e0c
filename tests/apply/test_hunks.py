"""Placement by properties: random files and edits, against difflib-made patches."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.apply.file_text import MAX_PLACES
from dsv4port.apply.hunk_result import FileResult, HunkOutcome, HunkResult
from dsv4port.apply.hunks import apply_hunks
from dsv4port.apply.scope_proof import ProofRows, proof_rows
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.model import Hunk

_LINES = st.sampled_from(
    [b"a\n", b"b\n", b"c\r\n", b"\n", b"  x\n", b"\x0c\n", b"\xff\n", b"d\re\n", b"- m\n", b"+ p\n"]
)
_FILES = st.tuples(
    st.lists(_LINES, max_size=30).map(b"".join), st.sampled_from([b"", b"end", b"\r"])
).map(b"".join)


def lines_of(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def diff(old: bytes, new: bytes, context: int = 3, path: bytes = b"f.txt") -> tuple[Hunk, ...]:
    """Hunks of a unified diff of two versions that differ."""
    body = []
    for line in difflib.diff_bytes(
        difflib.unified_diff, lines_of(old), lines_of(new), b"a/" + path, b"b/" + path, n=context
    ):
        body.append(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n")
    files, _ = parse_diff(b"".join(body), "patch")
    return files[0].hunks


def one(result: FileResult) -> HunkResult:
    (hunk,) = result.hunks
    return hunk


@given(_FILES, _FILES, st.integers(0, 4))
def test_a_patch_makes_of_its_base_what_it_was_made_from(
    old: bytes, new: bytes, context: int
) -> None:
    if old == new:
        return
    hunks = diff(old, new, context)

    result = apply_hunks(old, hunks, path=b"f.txt", base=None, preimage_is_target=True)

    assert result.content == new
    assert {hunk.outcome for hunk in result.hunks} == {HunkOutcome.EXACT}


@given(_FILES, _FILES, st.integers(0, 4))
def test_a_patch_turned_round_gives_the_old_file_back(old: bytes, new: bytes, context: int) -> None:
    if old == new:
        return
    there = apply_hunks(
        old, diff(old, new, context), path=b"f.txt", base=None, preimage_is_target=True
    )
    assert there.content is not None

    back = apply_hunks(
        there.content, diff(new, old, context), path=b"f.txt", base=None, preimage_is_target=True
    )

    assert back.content == old


@given(_FILES, _FILES)
def test_a_base_equal_to_the_target_is_the_preimage(old: bytes, new: bytes) -> None:
    if old == new:
        return

    assert apply_hunks(old, diff(old, new), path=b"f.txt", base=old).content == new


@given(_FILES, _FILES, st.lists(_LINES, min_size=1, max_size=5).map(b"".join), st.booleans())
def test_lines_added_at_an_end_never_lead_astray(
    old: bytes, new: bytes, more: bytes, above: bool
) -> None:
    """Either the edit is where it belongs, or it is refused."""
    if old == new or (not above and not old.endswith(b"\n")):
        return
    target, wanted = (more + old, more + new) if above else (old + more, new + more)

    result = apply_hunks(target, diff(old, new), path=b"f.txt", base=old)

    if result.content is not None:
        assert result.content == wanted


@st.composite
def _modules(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Python functions with bodies of few different lines."""
    names = draw(st.lists(st.sampled_from("fghij"), min_size=1, max_size=5, unique=True))
    line = st.sampled_from(["a()", "b()", "c()", "d()"])
    return [(name, draw(st.lists(line, min_size=1, max_size=6))) for name in names]


def _source(functions: list[tuple[str, list[str]]]) -> bytes:
    return "\n\n".join(
        f"def {name}():\n" + "".join(f"    {line}\n" for line in body) for name, body in functions
    ).encode()


@given(_modules(), st.data())
def test_an_edit_stays_in_its_function_when_functions_change_places(
    functions: list[tuple[str, list[str]]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(functions) - 1))
    name, body = functions[index]
    at = data.draw(st.integers(0, len(body)))
    edited = (name, [*body[:at], "new()", *body[at:]])
    order = data.draw(st.permutations(range(len(functions))))
    context = data.draw(st.integers(1, 3))
    changed = [*functions[:index], edited, *functions[index + 1 :]]
    base, target = _source(functions), _source([functions[i] for i in order])
    right = _source([edited if i == index else functions[i] for i in order])

    result = apply_hunks(
        target, diff(base, _source(changed), context, b"f.py"), path=b"f.py", base=base
    )

    assert result.content in (None, right)


def test_an_edited_hunk_is_refused_on_its_own_base() -> None:
    old = b"a\nb\nc\n"
    hunks = diff(old, b"a\nx\nc\n")

    result = apply_hunks(b"a\nB\nc\n", hunks, path=b"f", base=None, preimage_is_target=True)

    assert result.content is None
    assert one(result).outcome is HunkOutcome.NO_MATCH
    assert "edited by hand" in one(result).reason


def test_on_its_own_base_a_hunk_matches_at_its_stated_line_only() -> None:
    hunks = diff(b"a\nb\nc\nd\n", b"a\nx\nc\nd\n", 1)

    moved = apply_hunks(b"0\na\nb\nc\nd\n", hunks, path=b"f", base=None, preimage_is_target=True)

    assert moved.content is None


def test_hunks_without_context_apply_to_their_own_base_only() -> None:
    old, new = b"a\nb\n", b"a\nx\nb\n"
    hunks = diff(old, new, 0)

    assert apply_hunks(old, hunks, path=b"f", base=old).content == new
    for base in (None, old):
        refused = apply_hunks(old + b"c\n", hunks, path=b"f", base=base)
        assert one(refused).outcome is HunkOutcome.UNPROVEN
        assert "neither context nor removed lines" in one(refused).reason


def test_an_empty_file_takes_a_new_content() -> None:
    hunks = diff(b"", b"a\n")

    assert apply_hunks(b"", hunks, path=b"f", base=None).content == b"a\n"


def test_an_insertion_after_a_line_without_line_feed_is_refused() -> None:
    files, _ = parse_diff(b"--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+b\n", "patch")

    result = apply_hunks(b"a", files[0].hunks, path=b"f", base=None, preimage_is_target=True)

    assert result.content is None


def test_every_hunk_is_tried() -> None:
    old = b"".join(b"%d\n" % number for number in range(40))
    new = old.replace(b"\n5\n", b"\nV\n").replace(b"\n30\n", b"\nW\n")
    target = b"x\n" + old.replace(b"\n4\n", b"\nIV\n")

    result = apply_hunks(target, diff(old, new), path=b"f.txt", base=old)

    assert result.content is None
    assert [hunk.outcome for hunk in result.hunks] == [HunkOutcome.NO_MATCH, HunkOutcome.OFFSET]
    assert result.hunks[1].offset == 1


def test_lines_and_offset_of_a_moved_hunk() -> None:
    old = b"".join(b"%d\n" % number for number in range(20))
    new = old.replace(b"\n10\n", b"\nX\n")

    found = one(apply_hunks(b"a\nb\n" + old, diff(old, new), path=b"f.txt", base=old))

    assert (found.old_line, found.new_line, found.offset) == (8, 10, 2)
    assert found.reason == "moved from line 8 to line 10"


def test_more_places_than_are_looked_at_are_ambiguous() -> None:
    old = b"x\n" * (MAX_PLACES + 20) + b"y\n"
    new = b"x\n" * 5 + b"z\n" + b"x\n" * (MAX_PLACES + 15) + b"y\n"

    found = one(apply_hunks(b"w\n" + old + b"v\n", diff(old, new), path=b"f.txt", base=old))

    assert found.outcome is HunkOutcome.AMBIGUOUS


def test_a_result_cannot_be_applied_without_a_line() -> None:
    with pytest.raises(ValueError, match="has a line"):
        HunkResult(HunkOutcome.EXACT, 1)
    with pytest.raises(ValueError, match="has a line"):
        HunkResult(HunkOutcome.NO_MATCH, 1, 1)


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b" a\n+n\n b\n", ProofRows((), (0, 1))),
        (b" a\n-o\n b\n", ProofRows((1,), (0, 2))),
        (b" a\n \n+n\n \n b\n", ProofRows((), (0, 3))),
        (b" a\n-\n b\n", ProofRows((), (0, 2))),
        (b" a\n b\n-o\n-p\n c\n d\n", ProofRows((2, 3), (1, 4))),
        (b" a\n+n\n b\n c\n d\n-o\n e\n", ProofRows((4,), (0, 1, 3, 5))),
        (b" a\n-o\n+n\n b\n+m\n", ProofRows((1,), (0, 2))),
        (b" \n+n\n \n", ProofRows((), ())),
    ],
)
def test_the_lines_that_prove_a_place(body: bytes, rows: ProofRows) -> None:
    lines = lines_of(body)
    old = sum(not line.startswith(b"+") for line in lines)
    new = sum(not line.startswith(b"-") for line in lines)
    files, _ = parse_diff(b"--- a/f\n+++ b/f\n@@ -4,%d +4,%d @@\n%s" % (old, new, body), "patch")

    assert proof_rows(files[0].hunks[0]) == rows
