"""Files of the cache: written whole or not at all, and errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dsv4port.errors import EnvironmentProblemError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system in the body into one that says what to do.

    Raises:
        EnvironmentProblemError: the body could not write.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> EnvironmentProblemError:
    """The error for a cache that cannot be written to, with the way out."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "free some space, or set DSV4PORT_CACHE to a folder on another disk"
    else:
        fix = "set DSV4PORT_CACHE to a folder that you may write to, on a local disk"
    return EnvironmentProblemError(
        f"cannot write to the cache: {path}: {error.strerror or error}", fix=fix
    )


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file's content, in hex. Raises OSError."""
    import hashlib

    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_atomically(file: Path, data: bytes) -> None:
    """Write a file so that every reader sees the old or the new content, also after a crash.

    The caller holds the lock that the file belongs to: two writers would share a temporary file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
    sync_folder(file.parent)


def remove_tree(folder: Path) -> int:
    """Remove a folder with everything in it, if it exists; returns the bytes freed."""
    import shutil

    if not folder.is_dir() or folder.is_symlink():
        return remove_file(folder)
    freed = sum(
        status.st_size
        for path in folder.rglob("*")
        if (status := path.lstat()).st_nlink == 1 and path.is_file()
    )
    shutil.rmtree(folder)
    return freed


def remove_file(file: Path) -> int:
    """Remove a file, if it exists; returns the bytes freed, none where a checkout has a link."""
    try:
        status = file.lstat()
        file.unlink()
    except FileNotFoundError:
        return 0
    return status.st_size if status.st_nlink == 1 else 0


def children(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where there is no folder."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_folder(folder: Path) -> None:
    """Make sure that names put into a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
