"""Locks between processes that share the cache: a second one waits for the first."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsv4port.git.flock import open_lock, take, wait_for
from dsv4port.upstream.files import writing
from dsv4port.upstream.progress import NO_PROGRESS, Progress


@contextlib.contextmanager
def exclusive(file: Path, *, what: str, progress: Progress = NO_PROGRESS) -> Iterator[None]:
    """Hold the lock `file` while the body runs; wait for whoever holds it.

    Parameters:
        what: what the other process is doing, for the notice that this one waits.

    Raises:
        EnvironmentProblemError: the file system has no locks, or is not writable.
    """
    with _opened(file) as descriptor:
        with writing(file):
            free = take(descriptor)
        if not free:
            progress.notice(f"waiting for another dsv4port that is {what}")
            with writing(file):
                wait_for(descriptor)
        yield


@contextlib.contextmanager
def exclusive_if_free(file: Path) -> Iterator[bool]:
    """Hold the lock while the body runs if nobody else has it; yields whether it is held.

    Raises:
        EnvironmentProblemError: the file system has no locks, or is not writable.
    """
    with _opened(file) as descriptor:
        with writing(file):
            free = take(descriptor)
        yield free


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    with writing(file):
        descriptor = open_lock(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
