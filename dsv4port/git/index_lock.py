"""The lock that git and this package take on an index: the file ``index.lock``.

git writes the new index into it at once. This package holds it for a moment before it knows what
to write, and says so in it: left by a process that was killed, it can be told from git's.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_OURS = b"held by dsv4port; nothing is written yet\n"


def lock_file(git_dir: Path) -> Path:
    """Where the lock is."""
    return git_dir / "index.lock"


def take_index_lock(git_dir: Path) -> int:
    """Take the lock and return the descriptor to write to, at its beginning.

    Raises:
        OSError: somebody holds it, or it cannot be made.
    """
    descriptor = os.open(lock_file(git_dir), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    os.write(descriptor, _OURS)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def remove_dead_index_lock(git_dir: Path) -> None:
    """Remove a lock that a killed process of this package left.

    The caller holds the checkout, so no living one can hold it.
    """
    file = lock_file(git_dir)
    with suppress(OSError), file.open("rb") as lock:
        if lock.read(len(_OURS) + 1) == _OURS:
            file.unlink()
