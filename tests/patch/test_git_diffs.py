"""Diffs of random trees, written by git: read back whole, applied, reversed, identified."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import unidiff
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.patch.binary import apply_half
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.model import ChangeKind, FilePatch
from dsv4port.patch.patch_id import patch_id
from dsv4port.patch.write import diff_to_bytes, file_to_bytes
from dsv4port.patch.write_diff import reverse_patch

_STYLES = [
    ("--full-index", "--binary", "-M"),
    ("--full-index", "--binary", "-M", "-C", "--find-copies-harder", "-l0"),
    ("--full-index", "--binary", "--no-renames", "-U0"),
    ("--full-index", "--binary", "-B", "-M", "-U1"),
    ("--abbrev=7", "--binary", "-M"),
]


def _content(file: FilePatch, before: bytes) -> bytes:
    if file.binary is not None:
        return apply_half(file.binary.forward, before)
    lines = io.BytesIO(before).readlines()
    out: list[bytes] = []
    at = 0
    for hunk in file.hunks:
        begin = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        out += lines[at:begin]
        assert tuple(lines[begin : begin + hunk.old_count]) == hunk.old_lines
        out += hunk.new_lines
        at = begin + hunk.old_count
    return b"".join(out + lines[at:])


def _apply(files: tuple[FilePatch, ...], tree: Any) -> dict[bytes, tuple[int, bytes]]:
    """The oracle's opposite: the simplest strict apply, with modes, renames and copies."""

    def raw(mode: int, content: bytes) -> bytes:
        return b"Subproject commit %s\n" % content if mode == 0o160000 else content

    out = dict(tree)
    for file in files:
        if file.change in (ChangeKind.DELETE, ChangeKind.RENAME) and file.old_path is not None:
            del out[file.old_path]
    for file in files:
        if file.new_path is None:
            continue
        mode, content = (0, b"") if file.old_path is None else tree[file.old_path]
        after = _content(file, raw(mode, content))
        mode = file.new_mode or mode
        out[file.new_path] = (mode, after.split()[-1] if mode == 0o160000 else after)
    return out


@settings(deadline=None, max_examples=150)
@given(data=st.data(), style=st.sampled_from(_STYLES))
def test_what_git_writes_is_read_whole(
    git: Any, strategies: SimpleNamespace, data: st.DataObject, style: tuple[str, ...]
) -> None:
    old, new = data.draw(strategies.tree_pairs)
    git.commits(old, new)
    diff = git.diff(*style)
    if not diff:
        return
    files, trailer = parse_diff(diff, "x")
    assert trailer == b""
    assert diff_to_bytes(files) == diff
    assert _apply(files, old) == new

    if not any(file.change is ChangeKind.COPY for file in files):
        reverse = tuple(map(reverse_patch, files))
        assert _apply(reverse, new) == old
        # What the reverse says must also be a diff, with the same meaning.
        again = tuple(parse_diff(file_to_bytes(file), "x")[0][0] for file in reverse)
        assert _apply(again, new) == old

    expected = git("patch-id", "--stable", stdin=diff).split()
    assert not expected or patch_id(files) == expected[0].decode()


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_unidiff_counts_the_same(
    git: Any, strategies: SimpleNamespace, data: st.DataObject
) -> None:
    texts = st.dictionaries(
        st.sampled_from([b"a", b"b.py", b"d/c"]),
        # unidiff splits at every kind of line end that str knows.
        strategies.text.map(
            lambda content: (0o100644, content.translate(None, b"\r\x0c\xe9\xc3\xa9"))
        ),
    )
    old, new = data.draw(texts), data.draw(texts)
    git.commits(old, new)
    diff = git.diff("--full-index", "--no-renames")
    if not diff:
        return
    mine = {
        file.path.decode(): (
            len(file.hunks),
            sum(hunk.kinds.count(b"+") for hunk in file.hunks),
            sum(hunk.kinds.count(b"-") for hunk in file.hunks),
        )
        for file in parse_diff(diff, "x")[0]
    }
    theirs = {
        file.path: (len(file), file.added, file.removed)
        for file in unidiff.PatchSet(diff.decode().splitlines(keepends=True))
    }
    assert mine == theirs
