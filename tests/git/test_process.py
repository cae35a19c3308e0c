"""What a git that fails is taken to mean."""

from __future__ import annotations

import pytest

from dsv4port.git.process import failed


@pytest.mark.parametrize(
    "stderr",
    [
        b"error: unable to write file 'a.py'\n",
        b"fatal: sha1 file '/x/.git/index.lock' write error. Out of diskspace\n",
        b"fatal: write error: No space left on device\n",
        b"error: file write error: File too large\nfatal: unable to write loose object file\n",
        b"fatal: unable to write new index file\n",
        b"error: could not write: Disk quota exceeded\n",
    ],
)
def test_a_full_disk_is_taken_for_one(stderr: bytes) -> None:
    error = failed(["read-tree"], 128, stderr)
    assert error.fix is not None
    assert error.fix.startswith("free some space")
    assert error.details == tuple(stderr.decode().splitlines())


@pytest.mark.parametrize(
    "stderr",
    [
        b"fatal: /x/.git/index: index file smaller than expected\n",
        b"error: bad signature 0x6a756e6b\nfatal: index file corrupt\n",
        b"error: bad index file sha1 signature\nfatal: index file corrupt\n",
    ],
)
def test_a_damaged_index_is_taken_for_one(stderr: bytes) -> None:
    assert "remove the file `index`" in (failed(["status"], 128, stderr).fix or "")


def test_anything_else_is_not() -> None:
    stderr = b"fatal: Unable to create '/x/.git/index.lock': File exists.\n" * 20
    error = failed(["read-tree", "x"], 128, stderr)
    assert "`git read-tree x` ended with exit code 128" in error.what
    assert "space" not in (error.fix or "")
    assert len(error.details) == 10
