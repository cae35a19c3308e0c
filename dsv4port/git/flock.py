"""The kernel's lock on a file (``flock``), which both kinds of locks here are built on.

It ends with the process, whatever ends the process, so there is no stale lock to clean up. A child
that inherits the descriptor keeps it held. The file stays: removing it would let two processes
hold the lock at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_PAUSE = 0.05
"""Seconds between two tries."""


def open_lock(file: Path) -> int:
    """A descriptor of the lock file, made where it is missing. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Several users may share a cache; their umask decides.
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def take(descriptor: int) -> bool:
    """Take the lock if it is free, and say whether it was. Raises OSError without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for(descriptor: int) -> None:
    """Take the lock soon after nobody else holds it. Raises OSError without locks.

    It asks again and again: a blocking call would sleep through a Ctrl-C that came just before it.
    """
    while not take(descriptor):
        time.sleep(_PAUSE)
