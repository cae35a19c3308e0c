"""The files of a work tree, brought to what a commit says whatever they hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dsv4port.errors import RefusedError
from dsv4port.git.checkout import Checkout, DiskState, disk_state
from dsv4port.git.objects import MODE_SUBMODULE, Entry
from dsv4port.git.on_disk import link_above


def replace_files(checkout: Checkout, lock: int, paths: set[bytes], commit: str) -> None:
    """Bring exactly `paths` to what the commit says, over whatever is there, by git.

    Every other file of the work tree is left alone, whatever it holds.

    Parameters:
        lock: descriptor of the lock on the checkout; git keeps it until it has ended.
    """
    inherit = (lock,)
    listed = checkout.repository.list_tree(commit)
    # A whole new index: flags in the old one (assume-unchanged, skip-worktree) make git refuse.
    checkout.read_tree(commit, inherit=inherit)
    for path in sorted(paths, reverse=True):
        if link_above(checkout.path, path) is not None:
            continue  # Behind the link are somebody else's files; git puts a folder in its place.
        entry = listed.get(path)
        if entry is None or not _may_be_overwritten(checkout.disk_path(path)):
            _remove(checkout, path)
    kept = sorted(p for p in paths if p in listed and listed[p].mode != MODE_SUBMODULE)
    checkout.write_files(kept, inherit=inherit)
    checkout.refresh_index()


def _may_be_overwritten(disk: Path) -> bool:
    try:
        return stat.S_ISREG(disk.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True


def _remove(checkout: Checkout, path: bytes) -> None:
    """Remove a file and the folders that it leaves empty."""
    disk = checkout.disk_path(path)
    if disk.is_dir() and not disk.is_symlink():
        # A folder in the way of a file: its files were saved and removed one by one before.
        _remove_empty(disk)
        return
    try:
        disk.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    folder = disk.parent
    while folder != checkout.path:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _remove_empty(folder: Path) -> None:
    try:
        for inner, _, _ in os.walk(folder, topdown=False):
            Path(inner).rmdir()
    except OSError as error:
        raise RefusedError(
            f"the folder {folder} is in the way of a file and is not empty",
            fix="move it away, then run the command again",
        ) from error


def is_ours(checkout: Checkout, path: bytes, old: Entry | None, new: Entry | None) -> bool:
    """Whether what is on disk can come from the interrupted publish (or from before it)."""
    if link_above(checkout.path, path) is not None:
        return False
    disk = checkout.disk_path(path)
    states = [disk_state(disk, entry) for entry in (old, new) if entry is not None]
    if DiskState.SAME in states or DiskState.MISSING in states:
        return True
    if new is None or not disk.is_file() or disk.is_symlink():
        return False
    # A kill can leave the beginning of the new file.
    whole = checkout.git.run("cat-file", "blob", new.id).stdout
    return whole.startswith(disk.read_bytes())
