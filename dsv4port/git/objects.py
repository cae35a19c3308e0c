"""Git objects as bytes: ids, trees, commits. SHA-1 repositories only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

NULL_ID = "0" * 40

MODE_FILE = 0o100644
MODE_EXECUTABLE = 0o100755
MODE_SYMLINK = 0o120000
MODE_SUBMODULE = 0o160000
MODE_TREE = 0o040000


class ObjectKind(Enum):
    """The kinds of object; the value is the type number used in pack files."""

    COMMIT = 1
    """A commit."""
    TREE = 2
    """A folder."""
    BLOB = 3
    """The content of a file, or the target of a symbolic link."""

    @property
    def word(self) -> bytes:
        """The word that git hashes and prints for the kind."""
        return _WORDS[self]


_WORDS = {ObjectKind.COMMIT: b"commit", ObjectKind.TREE: b"tree", ObjectKind.BLOB: b"blob"}
KIND_OF_WORD = {word: kind for kind, word in _WORDS.items()}


class Entry(NamedTuple):
    """One entry of a tree: mode and object id (hex)."""

    mode: int
    id: str


def object_id(kind: ObjectKind, data: bytes) -> str:
    """The id git gives to an object: SHA-1 of ``<word> <length>\\0`` and the data, in hex."""
    digest = hashlib.sha1(b"%s %d\0" % (kind.word, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def blob_id(data: bytes) -> str:
    """The id of a blob with this content."""
    return object_id(ObjectKind.BLOB, data)


def encode_entry(name: bytes, entry: Entry) -> bytes:
    """One entry as it stands inside a tree object."""
    return b"%o %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id))


def tree_sort_key(name: bytes, mode: int) -> bytes:
    """Git orders the entries of a tree as if folder names ended in a slash."""
    return name + b"/" if mode == MODE_TREE else name


def parse_tree(data: bytes) -> dict[bytes, Entry]:
    """Entries of a tree object by name, in git's order."""
    entries: dict[bytes, Entry] = {}
    position, end = 0, len(data)
    while position < end:
        space = data.index(b" ", position)
        zero = data.index(b"\0", space)
        name = data[space + 1 : zero]
        entries[name] = Entry(int(data[position:space], 8), data[zero + 1 : zero + 21].hex())
        position = zero + 21
    return entries


def encode_commit(
    *, tree: str, parents: Iterable[str], author: bytes, committer: bytes, message: bytes
) -> bytes:
    """A commit object. ``author`` and ``committer`` are in commit form (``N <m> secs zone``)."""
    lines = [b"tree %s\n" % tree.encode()]
    lines.extend(b"parent %s\n" % parent.encode() for parent in parents)
    lines.append(b"author %s\ncommitter %s\n\n" % (author, committer))
    lines.append(message)
    return b"".join(lines)


class Commit(NamedTuple):
    """The parts of a commit object that this package reads."""

    tree: str
    parents: tuple[str, ...]
    author: bytes
    committer: bytes
    message: bytes


def parse_commit(data: bytes) -> Commit:
    """Read a commit object; headers that are not ours (signatures, encoding) are skipped."""
    head, _, message = data.partition(b"\n\n")
    tree, parents, author, committer = "", [], b"", b""
    for line in head.split(b"\n"):
        word, _, value = line.partition(b" ")
        if word == b"tree":
            tree = value.decode()
        elif word == b"parent":
            parents.append(value.decode())
        elif word == b"author":
            author = value
        elif word == b"committer":
            committer = value
    return Commit(tree, tuple(parents), author, committer, message)
