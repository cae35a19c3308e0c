"""Build a tree and its fixed commit out of files that come in any order."""

from __future__ import annotations

from typing import NamedTuple

from dsv4port.errors import BadInputError, UnsafePathError
from dsv4port.git.objects import (
    MODE_SYMLINK,
    MODE_TREE,
    Entry,
    ObjectKind,
    encode_commit,
    encode_entry,
    tree_sort_key,
)
from dsv4port.git.pack import ObjectSink
from dsv4port.upstream.safety import check_path, check_symlink, shown_path

_FIX = "do not use this source; get the pin from another one and compare the hash"
_IDENTITY = b"dsv4port <dsv4port@dsv4port.invalid> 0 +0000"
"""Author and committer of imports. Second 0: no commit can be older than its base."""


class TreeResult(NamedTuple):
    """Ids of an imported tree and of its commit."""

    tree: str
    commit: str


class _Folder:
    __slots__ = ("entries", "folders")

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.folders: dict[bytes, _Folder] = {}


class TreeBuilder:
    """Collects files and folders, refusing every path that is unsafe or in another one's way.

    Parameters:
        sink: where the objects go.
        where: what the files come from, for messages.
    """

    def __init__(self, sink: ObjectSink, *, where: str) -> None:
        self._sink = sink
        self._where = where
        self._root = _Folder()

    def add_file(self, path: bytes, mode: int, data: bytes) -> None:
        """Add a regular file or, as its target, a symbolic link.

        Raises:
            UnsafePathError: the path is unsafe or lies below a symbolic link.
            BadInputError: there is a file or folder at the path already.
        """
        self._place(path, mode)
        if mode == MODE_SYMLINK:
            check_symlink(path, data, where=self._where)
        self._put(path, Entry(mode, self._sink.add(ObjectKind.BLOB, data)))

    def add_again(self, path: bytes, known: bytes) -> None:
        """Add a file with the content and mode of one that is there, as a hard link does.

        Raises:
            BadInputError: there is no file at `known`, or one at `path`.
            UnsafePathError: as for `add_file`.
        """
        entry = self._find(known)
        if entry is None or entry.mode == MODE_SYMLINK:
            raise UnsafePathError(
                f"{self._where}: {shown_path(path)} is a hard link to {shown_path(known)}, "
                "which is no file before it"
            )
        self._place(path, entry.mode)
        self._put(path, entry)

    def add_folder(self, path: bytes) -> None:
        """Note a folder. Empty ones do not become part of the tree, as everywhere in git.

        Raises:
            UnsafePathError: the path is unsafe or lies below a symbolic link.
            BadInputError: a file is in the way.
        """
        check_path(path, where=self._where)
        self._enter(path, path.split(b"/"))

    def write(self) -> str:
        """Write all folders to the sink and return the id of the root.

        Raises:
            BadInputError: no file was added.
        """
        root = self._write(self._root)
        if root is None:
            raise BadInputError(f"{self._where}: there is no file in it", fix=_FIX)
        return root

    def _place(self, path: bytes, mode: int) -> None:
        check_path(path, where=self._where)
        *parents, name = path.split(b"/")
        folder = self._enter(path, parents)
        if name in folder.entries or name in folder.folders:
            raise BadInputError(
                f"{self._where}: the path {shown_path(path)} comes twice",
                fix=_FIX,
            )

    def _put(self, path: bytes, entry: Entry) -> None:
        *parents, name = path.split(b"/")
        self._enter(path, parents).entries[name] = entry

    def _enter(self, path: bytes, parents: list[bytes]) -> _Folder:
        folder = self._root
        for depth, name in enumerate(parents, 1):
            inner = folder.folders.get(name)
            if inner is None:
                obstacle = folder.entries.get(name)
                if obstacle is not None:
                    self._refuse_obstacle(path, b"/".join(parents[:depth]), obstacle)
                inner = folder.folders[name] = _Folder()
            folder = inner
        return folder

    def _refuse_obstacle(self, path: bytes, obstacle: bytes, entry: Entry) -> None:
        if entry.mode == MODE_SYMLINK:
            raise UnsafePathError(
                f"{self._where}: {shown_path(path)} would be written through the symbolic link "
                f"{shown_path(obstacle)}",
                fix=_FIX,
            )
        raise BadInputError(
            f"{self._where}: {shown_path(obstacle)} is a file and has {shown_path(path)} below it",
            fix=_FIX,
        )

    def _find(self, path: bytes) -> Entry | None:
        folder: _Folder | None = self._root
        *parents, name = path.split(b"/")
        for parent in parents:
            folder = folder.folders.get(parent) if folder is not None else None
        return folder.entries.get(name) if folder is not None else None

    def _write(self, folder: _Folder) -> str | None:
        entries = dict(folder.entries)
        for name, inner in folder.folders.items():
            identifier = self._write(inner)
            if identifier is not None:
                entries[name] = Entry(MODE_TREE, identifier)
        if not entries:
            return None
        order = sorted(entries, key=lambda name: tree_sort_key(name, entries[name].mode))
        data = b"".join(encode_entry(name, entries[name]) for name in order)
        return self._sink.add(ObjectKind.TREE, data)


def write_commit(sink: ObjectSink, tree: str, *, name: str, version: str, sha256: str) -> str:
    """Write the commit of an sdist: a root commit whose id follows from the arguments alone."""
    data = encode_commit(
        tree=tree,
        parents=(),
        author=_IDENTITY,
        committer=_IDENTITY,
        message=f"{name} {version} (sdist)\n\nsha256: {sha256}\n".encode(),
    )
    return sink.add(ObjectKind.COMMIT, data)
