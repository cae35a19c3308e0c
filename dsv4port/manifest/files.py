"""Writing a file so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path

_DEFAULT_MODE = 0o666


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``; a crash at any moment leaves the old file or the new one.

    The permissions of an existing file are kept; a symbolic link is followed, not replaced.

    Raises:
        OSError: the folder cannot be written to.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _DEFAULT_MODE)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if target.exists():
                os.fchmod(stream.fileno(), target.stat().st_mode & 0o7777)
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    # Without it a power cut can lose the rename although the content is on the disk.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
