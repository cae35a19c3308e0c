"""One writer at a time, for as long as its work runs: a second one is refused.

A git that goes on after its parent was killed holds the lock too, and is not overtaken.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4port.errors import EnvironmentProblemError, LockHeldError
from dsv4port.git.flock import open_lock, take

_ORPHAN_PATIENCE = 60.0
"""Seconds to wait for a child of a killed command to end."""


@contextmanager
def exclusive(file: Path, what: str) -> Iterator[int]:
    """Hold the lock `file` (made if missing) and yield its descriptor.

    Parameters:
        what: the thing that is locked, in words, for the refusal.

    Raises:
        LockHeldError: another process holds it.
        EnvironmentProblemError: the folder is not writable, or its file system has no locks.
    """
    try:
        descriptor = open_lock(file)
    except OSError as error:
        raise _unlockable(file, what, error, fix=_way_out(file, error)) from error
    try:
        _refuse_second(file, descriptor, what)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_second(file: Path, descriptor: int, what: str) -> None:
    deadline = time.monotonic() + _ORPHAN_PATIENCE
    while not _take(file, descriptor, what):
        holder = os.pread(descriptor, 32, 0).strip().decode("ascii", "replace")
        if _is_alive(holder) or time.monotonic() > deadline:
            raise LockHeldError(
                f"{what} is being changed by another dsv4port (process {holder or 'unknown'})",
                fix="wait until it has ended, then run the command again",
            )
        time.sleep(0.05)


def _take(file: Path, descriptor: int, what: str) -> bool:
    try:
        return take(descriptor)
    except OSError as error:
        fix = "keep project and checkout on a local disk: this file system has no locks"
        raise _unlockable(file, what, error, fix=fix) from error


def _way_out(file: Path, error: OSError) -> str:
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        found = next(up for up in file.parents if os.path.lexists(up))
        return f"move {found} away: a folder belongs there"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, then run the command again"
    return f"make {file.parent} writable for this user"


def _unlockable(file: Path, what: str, error: OSError, *, fix: str) -> EnvironmentProblemError:
    return EnvironmentProblemError(f"cannot lock {what}: {file}: {error.strerror}", fix=fix)


def _is_alive(holder: str) -> bool:
    if not holder.isdigit():
        return True
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
