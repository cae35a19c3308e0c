"""Both kinds of locks stand on one: what holds for it holds for both."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dsv4port.apply.exclusive import exclusive as refusing
from dsv4port.errors import EnvironmentProblemError, LockHeldError
from dsv4port.git.flock import open_lock, take, wait_for
from dsv4port.upstream.locks import exclusive as waiting
from dsv4port.upstream.locks import exclusive_if_free

Lock = Callable[[Path], AbstractContextManager[Any]]
BOTH: list[Lock] = [
    lambda file: refusing(file, "the thing"),
    lambda file: waiting(file, what="working"),
]


@pytest.mark.parametrize("lock", BOTH)
def test_each_kind_keeps_the_other_out(lock: Lock, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "lock"
    with lock(file):
        with pytest.raises(LockHeldError), refusing(file, "the thing"):
            pass
        with exclusive_if_free(file) as free:
            assert not free
    with exclusive_if_free(file) as free:
        assert free
    assert file.exists(), "removing it would let two processes hold it at once"


@pytest.mark.parametrize("lock", BOTH)
def test_a_file_system_without_locks_is_named(
    lock: Lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with (
        pytest.raises(EnvironmentProblemError, match="No locks available") as caught,
        lock(tmp_path / "lock"),
    ):
        pass
    assert "local disk" in (caught.value.fix or "")


@pytest.mark.parametrize("lock", BOTH)
def test_a_folder_that_cannot_be_made_is_named(lock: Lock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblemError) as caught, lock(tmp_path / "file" / "lock"):
        pass
    assert caught.value.fix


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dsv4port.git.flock import open_lock, take\n"
        "assert take(open_lock(Path(sys.argv[1]))); print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    descriptor = open_lock(tmp_path / "lock")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not take(descriptor)
        holder.kill()
        wait_for(descriptor)
    finally:
        holder.kill()
        holder.wait()
        os.close(descriptor)
