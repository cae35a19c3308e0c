"""One writer at a time, for as long as its work runs.

The lock is the kernel's (``flock``): it ends with the process, whatever ends the process, so there
is no stale lock to clean up. A child that inherits the descriptor keeps it held: a git that goes
on after its parent was killed is not overtaken.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsv4port.errors import EnvironmentProblemError, LockHeldError

_ORPHAN_PATIENCE = 60.0
"""Seconds to wait for a child of a killed command to end."""


@contextmanager
def exclusive(file: Path, what: str) -> Iterator[int]:
    """Hold the lock `file` (made if missing) and yield its descriptor.

    Parameters:
        what: the thing that is locked, in words, for the refusal.

    Raises:
        LockHeldError: another process holds it.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EnvironmentProblemError(
            f"cannot lock {what}: {file}: {error.strerror}", fix="make that folder writable"
        ) from error
    try:
        _lock(descriptor, what)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, what: str) -> None:
    deadline = time.monotonic() + _ORPHAN_PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).strip().decode("ascii", "replace")
            if _is_alive(holder) or time.monotonic() > deadline:
                raise LockHeldError(
                    f"{what} is being changed by another dsv4port (process {holder or 'unknown'})",
                    fix="wait until it has ended, then run the command again",
                ) from error
            time.sleep(0.05)
        else:
            return


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
