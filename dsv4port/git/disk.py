"""How a path on disk relates to the tree entry it should be, judged by its content."""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path

from dsv4port.git.objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_SUBMODULE,
    MODE_SYMLINK,
    Entry,
    blob_id,
)


class DiskState(Enum):
    """How a path on disk relates to the entry it should be."""

    SAME = "same"
    """Type, executable bit and content agree."""
    MISSING = "missing"
    """Nothing is there."""
    CONTENT = "content"
    """A file or link with other content."""
    MODE = "mode"
    """The content agrees, the executable bit does not."""
    TYPE = "type"
    """Something of another type is there (folder, link, file, device)."""


def disk_state(path: Path | str, entry: Entry) -> DiskState:
    """Compare a path on disk with a tree entry, by content."""
    # Called for hundreds of files: plain os functions cost half of what Path's methods do.
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return DiskState.MISSING
    if entry.mode == MODE_SUBMODULE:
        return DiskState.SAME if stat.S_ISDIR(found.st_mode) else DiskState.TYPE
    if entry.mode == MODE_SYMLINK:
        if not stat.S_ISLNK(found.st_mode):
            return DiskState.TYPE
        same = blob_id(os.fsencode(os.readlink(path))) == entry.id  # noqa: PTH115
        return DiskState.SAME if same else DiskState.CONTENT
    if not stat.S_ISREG(found.st_mode):
        return DiskState.TYPE
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        content = file.readall()
    if blob_id(content) != entry.id:
        return DiskState.CONTENT
    mode = MODE_EXECUTABLE if found.st_mode & stat.S_IXUSR else MODE_FILE
    return DiskState.SAME if mode == entry.mode else DiskState.MODE
