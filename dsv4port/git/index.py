"""git's index file: read it, replace what changed, write it, without starting git.

Only the plain form is understood: version 2, every entry merged and without flags, no extension
but the cached trees (``TREE``). Anything else raises NotPlainIndexError, and git does the work.

Format: git's ``gitformat-index``. An entry is 62 bytes of stat data, object id and flags, the
path, and one to eight zero bytes up to a multiple of eight.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dsv4port.git.index_lock import lock_file, take_index_lock
from dsv4port.git.objects import Entry

_ENTRY = struct.Struct(">10I20sH")
_FLAGS_AT = 60
_PATH_AT = 62
_LENGTH_MASK = 0x0FFF
_WORD = 0xFFFFFFFF


class NotPlainIndexError(Exception):
    """The index is not in the form that is understood here, or holds something unexpected."""


class _Node(NamedTuple):
    """A folder of the cached trees: how many entries lie below it (-1: not known), its tree."""

    entries: int
    tree: bytes
    folders: dict[bytes, _Node]


class Written(NamedTuple):
    """A file as it was written to disk: its entry, and what lstat said right afterwards."""

    entry: Entry
    found: os.stat_result


class Index:
    """The index of a repository, with the lock on it held until `write` or `release`.

    Parameters:
        git_dir: the repository's folder.

    Attributes:
        second: when it was written, in whole seconds.

    Raises:
        NotPlainIndexError: it cannot be handled here, or somebody else holds its lock.
    """

    def __init__(self, git_dir: Path) -> None:
        self._file = git_dir / "index"
        self._lock = lock_file(git_dir)
        try:
            self._descriptor = take_index_lock(git_dir)
        except OSError as error:
            raise NotPlainIndexError(f"{self._lock}: {error.strerror}") from error
        try:
            self._data = self._file.read_bytes()
            self.second = int(self._file.stat().st_mtime)
            self._entries = self._find_entries()
            self._trees = self._read_trees()
        except (OSError, struct.error, IndexError, ValueError) as error:
            self.release()
            raise NotPlainIndexError(f"{self._file}: {error}") from error
        except NotPlainIndexError:
            self.release()
            raise

    def entry(self, path: bytes) -> Entry | None:
        """The entry of a path."""
        at = self._entries.get(path)
        if at is None:
            return None
        mode, identifier = struct.unpack_from(">I12x20s", self._data, at + 24)
        return Entry(mode, identifier.hex())

    def racy(self) -> dict[bytes, Entry]:
        """Entries whose file may have changed without its time telling so.

        Such a file was written in the second of the index itself. git compares its content for
        as long as the index is that old; a new index would hide a change.
        """
        second = self.second & _WORD
        unpack, data = struct.Struct(">I").unpack_from, self._data
        return {
            path: found
            for path, at in self._entries.items()
            if unpack(data, at + 8)[0] >= second and (found := self.entry(path)) is not None
        }

    def write(
        self,
        changes: Mapping[bytes, Written | None],
        unsure: set[bytes],
        trees: Mapping[bytes, str],
    ) -> None:
        """Replace the index by one with the changes, and give up the lock.

        Parameters:
            changes: what is at a path now; None removes it.
            unsure: entries that keep their content but lose their stat data, so that git will
                look at the files.
            trees: ids of trees by folder (the root is empty) after the changes, as far as known.
        """
        body = self._body(changes, unsure)
        root = self._updated_trees(changes, trees)
        (count,) = struct.unpack_from(">I", body, 8)
        if root is not None and root.entries in (-1, count):
            cached = _encode_tree(b"", root)
            body += b"TREE" + struct.pack(">I", len(cached)) + cached
        body += hashlib.sha1(body, usedforsecurity=False).digest()
        # Longer than what the lock held, so nothing of that stays. Left open when writing fails,
        # for `release`.
        with os.fdopen(self._descriptor, "wb", closefd=False) as file:
            file.write(body)
        os.close(self._descriptor)
        self._descriptor = -1
        self._lock.replace(self._file)

    def release(self) -> None:
        """Give up the lock; the index stays as it is. Does nothing after `write`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._lock.unlink()

    def _find_entries(self) -> dict[bytes, int]:
        """Where each path's entry begins."""
        data = self._data
        signature, version, count = struct.unpack_from(">4sII", data)
        if signature != b"DIRC" or version != 2:
            raise NotPlainIndexError(f"{self._file}: version {version}")
        if hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
            raise NotPlainIndexError(f"{self._file}: no or a wrong checksum")
        entries: dict[bytes, int] = {}
        at = 12
        for _ in range(count):
            flags = data[at + _FLAGS_AT] << 8 | data[at + _FLAGS_AT + 1]
            if flags >= _LENGTH_MASK:
                # A stage, a flag like assume-unchanged, or a path of more than 4094 bytes.
                raise NotPlainIndexError(f"{self._file}: flags {flags:x}")
            start = at + _PATH_AT
            entries[data[start : start + flags]] = at
            at = at + (_PATH_AT + flags + 8 & ~7)
        self._end = at
        return entries

    def _read_trees(self) -> _Node | None:
        data, at = self._data, self._end
        root = None
        while at < len(data) - 20:
            signature, size = struct.unpack_from(">4sI", data, at)
            content = data[at + 8 : at + 8 + size]
            if signature != b"TREE" or root is not None:
                raise NotPlainIndexError(f"{self._file}: extension {signature!r}")
            name, root, end = _decode_tree(content, 0)
            if name or end != size:
                raise NotPlainIndexError(f"{self._file}: malformed cached trees")
            at += 8 + size
        if at != len(data) - 20:
            raise NotPlainIndexError(f"{self._file}: malformed")
        return root

    def _body(self, changes: Mapping[bytes, Written | None], unsure: set[bytes]) -> bytearray:
        data, entries = self._data, self._entries
        if all(path in entries and new is not None for path, new in changes.items()):
            # Nothing moves: the usual case.
            body = bytearray(data[: self._end])
            for path, new in changes.items():
                assert new is not None
                encoded = _encode(path, new)
                body[entries[path] : entries[path] + len(encoded)] = encoded
            for path in unsure - changes.keys():
                body[entries[path] : entries[path] + 40] = _without_stat(data, entries[path])
            return body
        rows: dict[bytes, bytes] = {}
        for path, at in entries.items():
            row = data[at : at + (_PATH_AT + len(path) + 8 & ~7)]
            rows[path] = _without_stat(data, at) + row[40:] if path in unsure else row
        for path, new in changes.items():
            if new is None:
                rows.pop(path, None)
            else:
                rows[path] = _encode(path, new)
        header = struct.pack(">4sII", b"DIRC", 2, len(rows))
        return bytearray(header + b"".join(rows[path] for path in sorted(rows)))

    def _updated_trees(
        self, changes: Mapping[bytes, Written | None], trees: Mapping[bytes, str]
    ) -> _Node | None:
        if self._trees is None:
            return None
        grown: dict[bytes, int] = {}
        for path, new in changes.items():
            if new is not None and new.entry == self.entry(path):
                continue
            step = (new is not None) - (path in self._entries)
            for folder in _folders(path):
                grown[folder] = grown.get(folder, 0) + step
        below: dict[bytes, set[bytes]] = {}
        for folder in grown.keys() - {b""}:
            above, _, name = folder.rpartition(b"/")
            below.setdefault(above, set()).add(name)
        return _updated(self._trees, b"", _Growth(grown, below, trees))


def _folders(path: bytes) -> list[bytes]:
    """The folders above a path, the root (empty) first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(len(parts))]


class _Growth(NamedTuple):
    """By changed folder: entries more than before, changed folders in it, and its new tree."""

    grown: Mapping[bytes, int]
    below: Mapping[bytes, set[bytes]]
    trees: Mapping[bytes, str]


def _updated(node: _Node, folder: bytes, growth: _Growth) -> _Node:
    if folder not in growth.grown:
        return node
    folders = {}
    complete = node.entries >= 0
    for name, inner in node.folders.items():
        found = _updated(inner, folder + b"/" + name if folder else name, growth)
        if found.entries != 0:
            folders[name] = found
        # A folder that is gone, or not known any more, makes the one above it unknown.
        complete = complete and found.entries > 0
    identifier = growth.trees.get(folder)
    known = growth.below.get(folder, set()) <= node.folders.keys()
    if not complete or not known or identifier is None:
        return _Node(-1, b"", folders)
    return _Node(node.entries + growth.grown[folder], bytes.fromhex(identifier), folders)


def _decode_tree(data: bytes, at: int) -> tuple[bytes, _Node, int]:
    end = data.index(b"\0", at)
    name = data[at:end]
    line = data.index(b"\n", end)
    count, subtrees = map(int, data[end + 1 : line].split(b" "))
    at = line + 1
    tree = b""
    if count >= 0:
        tree, at = data[at : at + 20], at + 20
    folders: dict[bytes, _Node] = {}
    for _ in range(subtrees):
        inner, node, at = _decode_tree(data, at)
        folders[inner] = node
    return name, _Node(count, tree, folders), at


def _encode_tree(name: bytes, node: _Node) -> bytes:
    head = b"%s\0%d %d\n%s" % (name, node.entries, len(node.folders), node.tree)
    return head + b"".join(_encode_tree(inner, found) for inner, found in node.folders.items())


def _encode(path: bytes, written: Written) -> bytes:
    found = written.found
    row = _ENTRY.pack(
        found.st_ctime_ns // 10**9 & _WORD, found.st_ctime_ns % 10**9,
        found.st_mtime_ns // 10**9 & _WORD, found.st_mtime_ns % 10**9,
        found.st_dev & _WORD, found.st_ino & _WORD, written.entry.mode,
        found.st_uid & _WORD, found.st_gid & _WORD, found.st_size & _WORD,
        bytes.fromhex(written.entry.id), len(path),
    )  # fmt: skip
    return (row + path).ljust(_PATH_AT + len(path) + 8 & ~7, b"\0")


def _without_stat(data: bytes, at: int) -> bytes:
    """The first 40 bytes of an entry, with the mode alone: git takes the file for unseen."""
    return bytes(24) + data[at + 24 : at + 28] + bytes(12)
