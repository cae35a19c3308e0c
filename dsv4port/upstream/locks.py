"""Locks between processes that share the cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsv4port.upstream.files import unwritable
from dsv4port.upstream.progress import NO_PROGRESS, Progress


@contextlib.contextmanager
def exclusive(file: Path, *, what: str, progress: Progress = NO_PROGRESS) -> Iterator[None]:
    """Hold the lock `file` while the body runs; wait for whoever holds it.

    The kernel lets go of a lock when its process ends, however it ends. The file stays: removing
    it would let two processes hold the lock at once.

    Parameters:
        what: what the other process is doing, for the notice that this one waits.

    Raises:
        EnvironmentProblemError: the file system has no locks, or is not writable.
    """
    descriptor = _open(file)
    try:
        if not _take(file, descriptor, wait=False):
            progress.notice(f"waiting for another dsv4port that is {what}")
            _take(file, descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_if_free(file: Path) -> Iterator[bool]:
    """Hold the lock while the body runs if nobody else has it; yields whether it is held.

    Raises:
        EnvironmentProblemError: the file system has no locks, or is not writable.
    """
    descriptor = _open(file)
    try:
        yield _take(file, descriptor, wait=False)
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise unwritable(file, error) from error


def _take(file: Path, descriptor: int, *, wait: bool) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise unwritable(file, error) from error
    return True
