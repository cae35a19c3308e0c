"""Bring a clean work tree and its index from one commit to another, without starting git.

Does what ``git read-tree -m -u`` does, for the plain case. Everything is checked before the first
file changes; what is not plain is refused then, and left to git.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from dsv4port.git.index import Index, NotPlainIndexError, Written
from dsv4port.git.objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_SYMLINK,
    Entry,
    blob_id,
)

_WRITABLE = frozenset((MODE_FILE, MODE_EXECUTABLE, MODE_SYMLINK))


def settle_new_files(git_dir: Path, work_tree: Path) -> None:
    """Give the newest files of a work tree that nobody has seen yet a time before their index.

    git compares by content whatever was written in the second of the index, again and again until
    somebody writes a new index; after a quick checkout that is every file.
    """
    try:
        index = Index(git_dir)
    except NotPlainIndexError:
        return
    try:
        changes: dict[bytes, Written | None] = {}
        for path, entry in index.racy().items():
            disk = os.path.join(os.fsencode(work_tree), path)  # noqa: PTH118
            before = (index.second - 1) * 10**9
            os.utime(disk, ns=(before, before), follow_symlinks=False)
            changes[path] = Written(entry, os.lstat(disk))
        if changes:
            index.write(changes, set(), {})
    finally:
        index.release()


class Switch:
    """A switch that was checked and can be done. A context manager: it holds the index's lock.

    Parameters:
        git_dir, work_tree: the checkout.
        touched: by path the entry before and after; the work tree holds what is before.

    Raises:
        NotPlainIndexError: something is out of the ordinary; nothing was changed.
    """

    def __init__(
        self,
        git_dir: Path,
        work_tree: Path,
        touched: Mapping[bytes, tuple[Entry | None, Entry | None]],
    ) -> None:
        self._root = os.fsencode(work_tree)
        self._touched = touched
        self._index = Index(git_dir)
        try:
            self._check()
            self._unsure = self._unsure_entries()
        except BaseException:
            self._index.release()
            raise

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._index.release()

    def run(self, content: Callable[[str], bytes], trees: Mapping[bytes, str]) -> None:
        """Write the files, then the index.

        Parameters:
            content: gives the content of a blob by its id.
            trees: ids of trees of the new commit by folder, as far as known (may be empty).
        """
        changes: dict[bytes, Written | None] = {}
        for path, (old, new) in self._touched.items():
            if new is None:
                self._remove(path)
                changes[path] = None
            else:
                changes[path] = Written(new, self._write(path, old, new, content))
        self._index.write(changes, self._unsure, trees)

    def _check(self) -> None:
        folders: dict[bytes, bool] = {}
        for path, (old, new) in self._touched.items():
            if self._index.entry(path) != old:
                raise NotPlainIndexError("the index holds something else than the commit")
            if not {entry.mode for entry in (old, new) if entry is not None} <= _WRITABLE:
                raise NotPlainIndexError("a submodule changes")
            if old is None and os.path.lexists(self._disk(path)):
                raise NotPlainIndexError("something is where a new file goes")
            self._check_folders(path, folders, new=old is None)

    def _check_folders(self, path: bytes, folders: dict[bytes, bool], *, new: bool) -> None:
        """Every folder above `path` must be one; above a new file it may be missing."""
        at = path.find(b"/")
        while at >= 0:
            folder = path[:at]
            there = folders.get(folder)
            if there is None:
                try:
                    there = stat.S_ISDIR(os.lstat(self._disk(folder)).st_mode)
                except FileNotFoundError:
                    # Only new files may lie in it; an old one would have been missed before.
                    if not new:
                        raise NotPlainIndexError("a folder is missing") from None
                    return
                if not there:
                    raise NotPlainIndexError("something is where a folder should be")
                folders[folder] = there
            at = path.find(b"/", at + 1)

    def _unsure_entries(self) -> set[bytes]:
        """Entries that a new index must not vouch for: their files may have changed unseen."""
        second = int(time.time())
        return {
            path
            for path, entry in self._index.racy().items()
            if path not in self._touched and not self._is_same(path, entry, second)
        }

    def _is_same(self, path: bytes, entry: Entry, second: int) -> bool:
        """Whether the file holds the entry's content, and a later change would show in its time."""
        try:
            found = os.lstat(self._disk(path))
            if not stat.S_ISREG(found.st_mode) or int(found.st_mtime) >= second:
                return False
            with open(self._disk(path), "rb", buffering=0) as file:  # noqa: PTH123
                return blob_id(file.readall()) == entry.id
        except OSError:
            return False

    def _write(
        self, path: bytes, old: Entry | None, new: Entry, content: Callable[[str], bytes]
    ) -> os.stat_result:
        disk = self._disk(path)
        if old is not None:
            # As git does: a new file, so that a hard link elsewhere keeps the old content.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(disk)  # noqa: PTH108
        else:
            os.makedirs(os.path.dirname(disk), exist_ok=True)  # noqa: PTH103, PTH120
        if new.mode == MODE_SYMLINK:
            os.symlink(content(new.id), disk)  # noqa: PTH211
            return os.lstat(disk)
        mode = 0o777 if new.mode == MODE_EXECUTABLE else 0o666
        descriptor = os.open(disk, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123
            data = memoryview(content(new.id))
            while data:
                data = data[file.write(data) :]
            return os.fstat(descriptor)

    def _remove(self, path: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._disk(path))  # noqa: PTH108
        at = path.rfind(b"/")
        while at > 0:
            try:
                os.rmdir(self._disk(path[:at]))  # noqa: PTH106
            except OSError:
                return
            at = path.rfind(b"/", 0, at)

    def _disk(self, path: bytes) -> bytes:
        return self._root + b"/" + path
