"""The two trees of a port as they change patch by patch: the base chain and the target."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.objects import MODE_SUBMODULE, MODE_TREE, Entry, ObjectKind
from dsv4port.git.pack import ObjectSink
from dsv4port.git.reader import ObjectReader
from dsv4port.git.tree import PathConflictError, TreeEditor


class Blobs:
    """Contents by id, read in batches, the latest kept."""

    _BUDGET = 256 << 20

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader
        self._kept: dict[str, bytes] = {}
        self._trees: dict[str, bytes] = {}
        self._size = 0

    def read(self, identifier: str) -> bytes:
        """The content of a blob."""
        found = self._kept.get(identifier)
        if found is None:
            found = self._reader.read(identifier)[1]
            self._keep(identifier, found)
        return found

    def read_tree(self, identifier: str) -> bytes:
        """The data of a tree."""
        found = self._trees.get(identifier)
        return self._reader.read(identifier)[1] if found is None else found

    def find(self, abbreviated: str) -> bytes | None:
        """The blob with this (perhaps abbreviated) id, None where there is not exactly one."""
        found = self._reader.find(abbreviated)
        return found[2] if found is not None and found[1] is ObjectKind.BLOB else None

    def fetch(self, identifiers: Iterable[str]) -> None:
        """Read what is not kept yet, in one go."""
        missing = [one for one in dict.fromkeys(identifiers) if one not in self._kept]
        for identifier, (_, data) in zip(missing, self._reader.read_many(missing), strict=True):
            self._keep(identifier, data)

    def fetch_paths(self, tree: str, paths: Iterable[bytes]) -> None:
        """Read files of a tree and the folders they are in, in one go."""
        wanted = [path for path in paths if b"\n" not in path]
        folders = {b"/".join(parts[:depth]) for path in wanted for parts in (path.split(b"/"),)
                   for depth in range(1, len(parts))}  # fmt: skip
        names = [f"{tree}:{os.fsdecode(path)}" for path in (*sorted(folders), *wanted)]
        for found in self._reader.find_many(names):
            if found is None:
                continue
            if found[1] is ObjectKind.BLOB:
                self._keep(found[0], found[2])
            elif found[1] is ObjectKind.TREE:
                self._trees[found[0]] = found[2]

    def _keep(self, identifier: str, content: bytes) -> None:
        if identifier not in self._kept:
            self._size += len(content)
        self._kept[identifier] = content
        while self._size > self._BUDGET and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest))


class Side:
    """A tree with what was changed in it; a file that was not changed is read when asked for.

    Parameters:
        tree: id of the tree to start from.
    """

    def __init__(self, blobs: Blobs, tree: str) -> None:
        self._blobs = blobs
        self._editor = TreeEditor(tree, blobs.read_tree)
        self._changed: dict[bytes, File | None] = {}
        self._entries: dict[bytes, Entry | None] = {}
        self.tree = tree

    def get(self, path: bytes) -> File | None:
        """The file at a path; None where there is none (a folder is none)."""
        if path in self._changed:
            return self._changed[path]
        entry = self._entry(path)
        if entry is None or entry.mode == MODE_TREE:
            return None
        if entry.mode == MODE_SUBMODULE:
            return File(entry.mode, b"")
        return File(entry.mode, self._blobs.read(entry.id))

    def _entry(self, path: bytes) -> Entry | None:
        """The entry of a path that was not changed; the walk down to it is done once."""
        if path not in self._entries:
            self._entries[path] = self._editor.get(path)
        return self._entries[path]

    def blob_of(self, path: bytes) -> str | None:
        """Id of the blob at a path that was not changed."""
        entry = None if path in self._changed else self._entry(path)
        return None if entry is None or entry.mode in (MODE_TREE, MODE_SUBMODULE) else entry.id

    def put(self, changes: dict[bytes, File | None]) -> None:
        """Remember changes, without writing."""
        self._changed.update(changes)

    def obstacle(self, changes: dict[bytes, File | None]) -> bytes | None:
        """What keeps a change from being written: a file where a folder must be, or the reverse."""
        gone = {path for path, file in changes.items() if file is None}
        for path, file in changes.items():
            if file is None:
                continue
            found = self._editor.blocker(path)
            if found is not None and found not in gone:
                return found
        return None

    def write(self, changes: dict[bytes, File | None], sink: ObjectSink) -> str:
        """Make the changes, write blobs and trees to ``sink``; returns the tree's id.

        Raises:
            PathConflictError: see :meth:`obstacle`.
        """
        self._changed.update(changes)
        for path, file in changes.items():
            if file is None and self._editor.get(path) is not None:
                self._editor.remove(path)
        for path, file in changes.items():
            if file is not None:
                identifier = sink.add(ObjectKind.BLOB, file.content)
                self._editor.put(path, Entry(file.mode, identifier))
        self.tree = self._editor.write(sink)
        return self.tree


__all__ = ["Blobs", "PathConflictError", "Side"]
