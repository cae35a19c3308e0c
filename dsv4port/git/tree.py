"""A tree under construction: look entries up by path, change them, write what changed.

Folders are read when they are first entered and written when a new root is asked for, so the
cost follows what is touched, not the size of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dsv4port.git.objects import (
    MODE_TREE,
    Entry,
    ObjectKind,
    encode_entry,
    parse_tree,
    tree_sort_key,
)
from dsv4port.git.pack import ObjectSink


class _Folder:
    """One folder: entries by name in git's order, the bytes of each, and the open subfolders."""

    __slots__ = ("changed", "encoded", "entries", "open", "unsorted")

    def __init__(self, entries: dict[bytes, Entry]) -> None:
        self.entries = entries
        self.encoded = {name: encode_entry(name, entry) for name, entry in entries.items()}
        self.open: dict[bytes, _Folder] = {}
        self.changed = False
        self.unsorted = False

    def put(self, name: bytes, entry: Entry) -> None:
        known = self.entries.get(name)
        # Only the same sort position may be overwritten in place.
        if known is None or (known.mode == MODE_TREE) != (entry.mode == MODE_TREE):
            self.unsorted = True
        self.entries[name] = entry
        self.encoded[name] = encode_entry(name, entry)
        self.changed = True

    def remove(self, name: bytes) -> None:
        del self.entries[name], self.encoded[name]
        self.open.pop(name, None)
        self.changed = True

    def encode(self) -> bytes:
        if self.unsorted:
            order = sorted(
                self.entries, key=lambda name: tree_sort_key(name, self.entries[name].mode)
            )
            self.entries = {name: self.entries[name] for name in order}
            self.encoded = {name: self.encoded[name] for name in order}
            self.unsorted = False
        return b"".join(self.encoded.values())


class PathConflictError(Exception):
    """A path needs a folder where a file is, or a file where a folder is."""

    def __init__(self, path: bytes, obstacle: bytes) -> None:
        super().__init__(path, obstacle)
        self.path = path
        self.obstacle = obstacle


class TreeEditor:
    """Edit the tree `root`.

    Parameters:
        root: id of the tree to start from.
        read_tree: gives the data of a tree object by id.
    """

    def __init__(self, root: str, read_tree: Callable[[str], bytes]) -> None:
        self._read_tree = read_tree
        self._root_id = root
        self._root = _Folder(parse_tree(read_tree(root)))

    def get(self, path: bytes) -> Entry | None:
        """The entry at `path`, a folder's included; None when there is none."""
        folder = self._root
        *parents, name = path.split(b"/")
        for parent in parents:
            inner = self._enter(folder, parent)
            if inner is None:
                return None
            folder = inner
        return folder.entries.get(name)

    def blocker(self, path: bytes) -> bytes | None:
        """The file or folder that keeps `path` from being created as a file, if any."""
        folder = self._root
        parts = path.split(b"/")
        for depth, parent in enumerate(parts[:-1], 1):
            entry = folder.entries.get(parent)
            if entry is None:
                return None
            if entry.mode != MODE_TREE:
                return b"/".join(parts[:depth])
            inner = self._enter(folder, parent)
            assert inner is not None
            folder = inner
        entry = folder.entries.get(parts[-1])
        return path if entry is not None and entry.mode == MODE_TREE else None

    def below(self, path: bytes) -> Iterator[bytes]:
        """Every file below the folder at `path`; nothing where there is none."""
        folder: _Folder | None = self._root
        for name in path.split(b"/"):
            folder = self._enter(folder, name) if folder is not None else None
        if folder is not None:
            yield from (found for found, _ in self._walk(folder, path + b"/"))

    def put(self, path: bytes, entry: Entry) -> None:
        """Set a file's entry, making the folders on the way.

        Raises:
            PathConflictError: a file is in the way of a folder, or the other way round.
        """
        obstacle = self.blocker(path)
        if obstacle is not None:
            raise PathConflictError(path, obstacle)
        folder = self._root
        *parents, name = path.split(b"/")
        for parent in parents:
            folder.changed = True
            inner = self._enter(folder, parent)
            if inner is None:
                inner = folder.open[parent] = _Folder({})
                folder.put(parent, Entry(MODE_TREE, "0" * 40))
            folder = inner
        folder.put(name, entry)

    def remove(self, path: bytes) -> None:
        """Remove a file's entry, and every folder that becomes empty."""
        chain: list[tuple[_Folder, bytes]] = []
        folder = self._root
        *parents, name = path.split(b"/")
        for parent in parents:
            chain.append((folder, parent))
            folder.changed = True
            inner = self._enter(folder, parent)
            if inner is None:
                raise KeyError(path)
            folder = inner
        folder.remove(name)
        while chain and not folder.entries:
            folder, name = chain.pop()
            folder.remove(name)

    def write(self, sink: ObjectSink) -> str:
        """Write every changed folder to `sink`, deepest first, and return the root's id."""
        if self._root.changed:
            self._root_id = self._write(self._root, sink)
        return self._root_id

    def folders(self) -> dict[bytes, str]:
        """Ids of the folders that were entered, as of the last `write`, by path; the root's is
        empty."""
        found = {b"": self._root_id}
        pending = [(b"", self._root)]
        while pending:
            prefix, folder = pending.pop()
            for name, inner in folder.open.items():
                found[prefix + name] = folder.entries[name].id
                pending.append((prefix + name + b"/", inner))
        return found

    def walk(self) -> Iterator[tuple[bytes, Entry]]:
        """Every file of the tree as it stands, in git's order (reads all folders)."""
        yield from self._walk(self._root, b"")

    def _walk(self, folder: _Folder, prefix: bytes) -> Iterator[tuple[bytes, Entry]]:
        folder.encode()
        for name, entry in list(folder.entries.items()):
            if entry.mode == MODE_TREE:
                inner = self._enter(folder, name)
                assert inner is not None
                yield from self._walk(inner, prefix + name + b"/")
            else:
                yield prefix + name, entry

    def _enter(self, folder: _Folder, name: bytes) -> _Folder | None:
        inner = folder.open.get(name)
        if inner is None:
            entry = folder.entries.get(name)
            if entry is None or entry.mode != MODE_TREE:
                return None
            inner = folder.open[name] = _Folder(parse_tree(self._read_tree(entry.id)))
        return inner

    def _write(self, folder: _Folder, sink: ObjectSink) -> str:
        for name, inner in folder.open.items():
            if inner.changed:
                folder.put(name, Entry(MODE_TREE, self._write(inner, sink)))
        folder.changed = False
        return sink.add(ObjectKind.TREE, folder.encode())
