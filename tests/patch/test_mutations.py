"""Damaged patch files: a refusal or a patch that is written back whole, never another error."""

from __future__ import annotations

import base64
import quopri
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.errors import PatchFormatError, UnsafePathError
from dsv4port.patch.binary import delta_half, encode_half, literal_half
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import Identity
from dsv4port.patch.write import format_mailbox, patch_to_bytes

_IDS = b"index %s..%s 100644\n" % (b"1" * 40, b"2" * 40)
_BINARY = b"".join(
    [
        b"diff --git a/b.bin b/b.bin\n",
        _IDS,
        b"GIT binary patch\n",
        *encode_half(delta_half(b"\x00old" * 9, b"\x00old" * 8 + b"new")),
        *encode_half(literal_half(b"\x00old" * 9)),
    ]
)
_TEXT = (
    b"diff --git a/a b.py b/a b.py\nold mode 100644\nnew mode 100755\nindex 1234567..89abcde\n"
    b"--- a/a b.py\t\n+++ b/a b.py\t\n@@ -1,4 +1,4 @@ def f():\n x\n-y\r\n+z\r\n \n w\n"
    b"@@ -9 +9,2 @@\n-end\n\\ No newline at end of file\n"
    b"+end\n+of it\n\\ No newline at end of file\n"
    b'diff --git "a/caf\\303\\251" "b/caf\\351"\nsimilarity index 100%\n'
    b'rename from "caf\\303\\251"\nrename to "caf\\351"\n'
    b"diff --git a/gone b/gone\ndeleted file mode 120000\nindex 1234567..0000000\n"
    b"--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-target\n\\ No newline at end of file\n"
    b"diff --git a/new b/new\nnew file mode 100644\nindex 0000000..e69de29\n"
)
_PLAIN = (
    b"free text\n\ndiff -ru a/x b/x\n--- a/x\t2024-01-01 00:00:00.000000000 +0000\n"
    b"+++ b/x\t2024-01-02 00:00:00.000000000 +0000\n@@ -1,3 +1,2 @@\n a\n-b\n c\n"
    b"--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+only\n"
)
_AUTHOR = Identity("Jörg Ö.".encode(), b"j@example.com", 1700000000, b"+0200")
_MAIL = format_mailbox(
    author=_AUTHOR, message="[DSV4] Fix — this\n\nWhy.\n---\nmore\n".encode(), diff=_TEXT + _BINARY
)
_EXACT = format_mailbox(
    author=Identity(b" odd  name ", b"x", 0, b"-0000"), message=b"two\nlines", diff=_TEXT
)
_HEAD, _, _BODY = format_mailbox(author=_AUTHOR, message=b"plain\n", diff=_TEXT).partition(b"\n\n")
_QP = _HEAD + b"\nContent-Transfer-Encoding: quoted-printable\n\n" + quopri.encodestring(_BODY)
_BASE64 = _HEAD + b"\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(_BODY)
_STAT_MAIL = _HEAD + (
    b"\n\nWhy.\n---\n a | 2 +-\n 4 files changed, 3 insertions(+), 3 deletions(-)\n\n"
    + _TEXT
    + b"-- \n2.39.5\n\n"
)
DIFFS = [_TEXT, _BINARY, _TEXT + _BINARY, _PLAIN, _STAT_MAIL]
SEEDS = [_STAT_MAIL, _TEXT, _BINARY, _TEXT + _BINARY, _PLAIN, _MAIL, _EXACT, _QP, _BASE64]

_tokens = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b" ",
        b"-",
        b"+",
        b"\\ No newline at end of file\n",
        b"@@ -1 +1 @@\n",
        b"---\n",
        b"diff --git a/x b/x\n",
        b"-- \n",
        b"\x00",
        b"\xff",
        b'"',
        b"\\",
        b"=?UTF-8?b?x?=",
        b"=?x?q?y?=",
        b"/",
        b"../",
        b".git/",
        b"999999999999",
        b"0",
        b"new file mode 100644\n",
        b"literal 5\n",
        b"From x Mon Sep 17 00:00:00 2001\nFrom: a\n",
        b"\nContent-Type: text/plain; charset=utf-16\n",
    ]
)


@st.composite
def _damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        lines = data.splitlines(keepends=True)
        fate = draw(st.sampled_from(["insert", "delete", "cut", "line", "swap", "double", "byte"]))
        at = draw(st.integers(0, len(data)))
        line = draw(st.integers(0, max(len(lines) - 1, 0)))
        if fate == "insert":
            data = data[:at] + draw(_tokens) + data[at:]
        elif fate == "delete":
            data = data[:at] + data[at + draw(st.integers(1, 30)) :]
        elif fate == "cut":
            data = data[:at]
        elif fate == "byte":
            data = data[:at] + draw(st.binary(min_size=1, max_size=2)) + data[at + 1 :]
        elif lines:
            other = draw(st.integers(0, len(lines) - 1))
            if fate == "line":
                del lines[line]
            elif fate == "swap":
                lines[line], lines[other] = lines[other], lines[line]
            else:
                lines.insert(other, lines[line])
            data = b"".join(lines)
    return data


@settings(deadline=None, max_examples=600)
@given(_damaged(SEEDS))
def test_damage_is_refused_or_harmless(data: bytes) -> None:
    try:
        patch = parse_patch(data, "x.patch")
    except (PatchFormatError, UnsafePathError) as error:
        assert error.what.startswith("x.patch:")
        assert error.what.split(":")[1].isdigit()
        assert "\n" not in error.what
        assert error.what.isprintable()
        return
    assert patch_to_bytes(patch) == data
    assert patch.files


@settings(deadline=None, max_examples=300)
@given(data=_damaged(DIFFS))
def test_git_understands_what_is_accepted_in_the_same_way(git: Any, data: bytes) -> None:
    """No section may be skipped, and none read differently, because of some damage."""
    try:
        patch = parse_patch(data, "x")
    except (PatchFormatError, UnsafePathError):
        return
    mine = b""
    for file in patch.files:
        added = sum(hunk.kinds.count(b"+") for hunk in file.hunks)
        removed = sum(hunk.kinds.count(b"-") for hunk in file.hunks)
        mine += b"-\t-" if file.binary is not None else b"%d\t%d" % (added, removed)
        mine += b"\t" + file.path + b"\0"
    assert mine == git("apply", "--numstat", "-z", stdin=data)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_cut_inside_a_hunk_or_binary_half_is_noticed(seed: bytes) -> None:
    """What a cut leaves must be whole: header lines, whole hunks, whole halves.

    A cut between them leaves a valid shorter patch, and one before a ``\\`` marker a valid other
    one; only the ids on the index line can tell, and applying checks those.
    """
    whole = parse_patch(seed, "x")
    for end in range(len(seed)):
        try:
            cut = parse_patch(seed[:end], "x")
        except PatchFormatError:
            continue
        *before, last = cut.files
        full = whole.files[len(before)]
        assert tuple(before) == whole.files[: len(before)]
        assert last.header == full.header[: len(last.header)]
        for mine, theirs in zip(last.hunks, full.hunks, strict=False):
            assert b"".join(theirs.body).startswith(b"".join(mine.body).removesuffix(b"\n"))
            assert mine.kinds == theirs.kinds
        if last.binary is not None:
            assert full.binary is not None
            assert last.binary.forward == full.binary.forward


def test_a_decompression_bomb_is_not_inflated() -> None:
    from dsv4port.patch.binary import encode_lines

    bomb = zlib.compress(bytes(64 << 20), 9)
    for stated in (5, 999_999_999):
        data = b"".join(
            [
                b"diff --git a/b b/b\n",
                _IDS,
                b"GIT binary patch\n",
                b"literal %d\n" % stated,
                *encode_lines(bomb),
                b"\n",
            ]
        )
        with pytest.raises(PatchFormatError, match=r"inflate to the stated|more than"):
            parse_patch(data, "x")
