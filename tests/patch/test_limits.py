"""Start-up, limits, and hostile files: nothing here may take more than linear time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import dsv4port
from dsv4port.errors import PatchFormatError
from dsv4port.patch import diff_hunks as hunks_module
from dsv4port.patch import source as source_module
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.write import patch_to_bytes
from dsv4port.patch.write_diff import reverse_patch

_HEAD = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n"
_MAIL = b"From: A <a@example.com>\nDate: Tue, 14 Nov 2023 22:13:20 +0000\nSubject: x\n"
_MANY = 60_000

# Without site packages (-S) an editable install is not found by itself.
_ROOT = Path(dsv4port.__file__).parents[1]


def _hunks(count: int) -> bytes:
    return b"".join(b"@@ -%d +%d @@\n-x\n+y\n" % (n, n) for n in range(1, 2 * count, 2))


@pytest.mark.parametrize(
    "data",
    [
        _HEAD + _hunks(_MANY),
        _HEAD + b"@@ -1,%d +1,%d @@\n" % (_MANY, _MANY) + b"-x\n+y\n" * _MANY,
        _HEAD + b"@@ -1,%d +0,0 @@\n" % _MANY + b"---\n" * _MANY + b"\n" * _MANY,
        b"\n".join(
            b"diff --git a/%d b/%d\nold mode 100644\nnew mode 100755" % (n, n) for n in range(9000)
        )
        + b"\n",
        b"diff --git a/" + b"x b/" * _MANY + b"\n",
        b'diff --git "a/' + b"\\a" * _MANY + b"\n",
        _MAIL + b" folded\n" * _MANY + b"\n" + _HEAD + _hunks(1),
        _MAIL + b"\nSubject: y\n" + b" folded\n" * _MANY + b"\n---\n\n" + _HEAD + _hunks(1),
        _MAIL.replace(b"x", b"=?UTF-8?q?x?= " * _MANY) + b"\n---\n\n" + _HEAD + _hunks(1),
        _MAIL.replace(b"x", b"=?" * _MANY) + b"\n---\n\n" + _HEAD + _hunks(1),
        _MAIL + b"\n" + b"---\n" * _MANY + _HEAD + _hunks(1),
        _MAIL + b"\n" + (b"---\n 1 file changed\n\n" + _HEAD) * (_MANY // 4),
        b"Index: f\n" * _MANY + b"--- a/f\n+++ b/f\n" + _hunks(1),
    ],
)
def test_hostile_files_take_linear_time(data: bytes) -> None:
    start = time.process_time()
    try:
        assert patch_to_bytes(parse_patch(data, "x")) == data
    except PatchFormatError as error:
        assert len(error.what) < 300
    # Each takes well below half a second; anything quadratic takes minutes.
    assert time.process_time() - start < 5


def test_limits_are_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunks_module, "MAX_HUNKS", 3)
    parse_diff(_HEAD + _hunks(3), "x")
    with pytest.raises(PatchFormatError, match="more than 3 hunks"):
        parse_diff(_HEAD + _hunks(4), "x")
    monkeypatch.setattr(source_module, "MAX_PATCH_BYTES", 10)
    with pytest.raises(PatchFormatError, match="larger than 10 bytes"):
        parse_patch(_HEAD + _hunks(1), "x")


def test_parsing_mails_imports_nothing_heavy() -> None:
    code = (
        "import sys; from dsv4port.patch.mailbox import parse_patch\n"
        "parse_patch(sys.stdin.buffer.read(), 'x')\n"
        "print(*{'email', 'base64', 'hashlib', 'zlib', 'datetime'} & set(sys.modules))"
    )
    mail = _MAIL.replace(b"A <", b"=?UTF-8?q?J=C3=B6rg?= <") + b"\n---\n\n" + _HEAD + _hunks(1)
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            code.replace("import sys", f"import sys; sys.path = {[str(_ROOT), *sys.path]}", 1),
        ],
        input=mail,
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_what_cannot_be_reversed_is_refused() -> None:
    copy = b"diff --git a/a b/b\nsimilarity index 100%\ncopy from a\ncopy to b\n"
    with pytest.raises(PatchFormatError, match="copy to b cannot be reversed"):
        reverse_patch(parse_diff(copy, "x")[0][0])
    one_way = (
        b"diff --git a/x b/x\nindex %s..%s 100644\nGIT binary patch\nliteral 0\nHc$@<O00001\n\n"
        % (b"1" * 40, b"2" * 40)
    )
    with pytest.raises(PatchFormatError, match="no reverse half"):
        reverse_patch(parse_diff(one_way, "x")[0][0])
