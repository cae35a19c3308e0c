"""What lies at a tree's path on disk, never seen through a link on the way there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def is_on_disk(root: Path, path: bytes) -> bool:
    """Whether anything is at `path` below `root` itself."""
    return os.path.lexists(root / os.fsdecode(path)) and link_above(root, path) is None


def link_above(root: Path, path: bytes) -> bytes | None:
    """The symbolic link that stands where a folder above `path` should be, if any.

    What is reached through one lies somewhere else, perhaps outside of `root`.
    """
    at = path.find(b"/")
    while at > 0:
        if (root / os.fsdecode(path[:at])).is_symlink():
            return path[:at]
        at = path.find(b"/", at + 1)
    return None


def has_file(root: Path, path: bytes) -> bool:
    """Whether a file or link is at `path` itself; a folder there is none."""
    disk = root / os.fsdecode(path)
    return is_on_disk(root, path) and (disk.is_symlink() or not disk.is_dir())


def files_at(root: Path, path: bytes) -> Iterator[bytes]:
    """The paths of what is at `path`: the file or link itself, or everything in the folder."""
    if has_file(root, path):
        yield path
    elif is_on_disk(root, path):
        top = os.fsencode(root / os.fsdecode(path))
        for folder, folders, files in os.walk(top):
            below = path + folder.removeprefix(top) + b"/"
            here = Path(os.fsdecode(folder))
            yield from (below + name for name in files)
            yield from (below + name for name in folders if (here / os.fsdecode(name)).is_symlink())
