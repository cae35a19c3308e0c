"""The values that a patch file is made of.

All of them are lossless: each keeps the raw bytes it was read from, so that writing gives the
file back byte for byte, whatever its line ends, encoding or quirks. What the tool works with
(paths, modes, preimage and postimage lines) is derived from those bytes once, at parse time.
Paths are ``bytes``, relative to the root of the tree, without the ``a/`` and ``b/`` prefixes.
Object ids are lower-case hex ``str`` and may be abbreviated where the patch abbreviates them.
"""

from __future__ import annotations

from enum import Enum

from dsv4port.quick_dataclass import dataclass


class ChangeKind(Enum):
    """What a file patch does to the tree entry."""

    MODIFY = "modify"
    """The entry stays; content, mode or both change."""
    ADD = "add"
    """The entry must not exist and is created."""
    DELETE = "delete"
    """The entry must exist with exactly the removed content and goes away."""
    RENAME = "rename"
    """The old path goes, the new path must not exist; content may change too."""
    COPY = "copy"
    """The old path stays, the new path must not exist; content may change too."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One ``@@`` hunk of a text patch.

    ``old_lines`` and ``new_lines`` are the preimage and postimage lines with their own line
    ends; only the last may lack one (``\\ No newline at end of file``).
    ``kinds`` has one byte per line of the body in order: ``b" "``, ``b"-"`` or ``b"+"`` values.
    ``body`` has one element per content line; a ``\\ No newline`` marker belongs to the element of
    the line it speaks of, so ``body`` and ``kinds`` are parallel and joining ``body`` is lossless.
    """

    header: bytes
    body: tuple[bytes, ...]
    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: bytes
    kinds: bytes
    old_lines: tuple[bytes, ...]
    new_lines: tuple[bytes, ...]
    line_number: int


class BinaryMethod(Enum):
    """How one half of a ``GIT binary patch`` holds its content."""

    LITERAL = "literal"
    """The whole content."""
    DELTA = "delta"
    """A git delta against the other side."""


@dataclass(frozen=True, slots=True)
class BinaryHalf:
    """One half of a ``GIT binary patch``: ``data`` is inflated, ``size`` is its length."""

    method: BinaryMethod
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class BinaryPatch:
    """``forward`` makes the new content, ``reverse`` (when present) the old one again."""

    body: tuple[bytes, ...]
    forward: BinaryHalf
    reverse: BinaryHalf | None


@dataclass(frozen=True, slots=True)
class FilePatch:
    """One file of a diff (a ``diff --git`` section, or a plain ``---``/``+++`` pair).

    ``old_path`` is None for ADD, ``new_path`` is None for DELETE. ``old_mode``/``new_mode`` are
    git modes (0o100644, 0o100755, 0o120000, 0o160000) as far as the patch states them, else None.
    ``old_id``/``new_id`` are the ids of the ``index`` line, None where there is none or all zeros.
    """

    header: tuple[bytes, ...]
    change: ChangeKind
    old_path: bytes | None
    new_path: bytes | None
    old_mode: int | None
    new_mode: int | None
    old_id: str | None
    new_id: str | None
    similarity: int | None
    hunks: tuple[Hunk, ...]
    binary: BinaryPatch | None
    line_number: int

    @property
    def path(self) -> bytes:
        """The path the patch is known by: the new one, or the old one of a deletion."""
        path = self.new_path if self.new_path is not None else self.old_path
        assert path is not None
        return path


@dataclass(frozen=True, slots=True)
class Identity:
    """An author: name, e-mail, seconds since 1970, and the zone as git writes it (``+0200``)."""

    name: bytes
    email: bytes
    timestamp: int
    zone: bytes

    def encode(self) -> bytes:
        """The form used in commit objects: ``Name <mail> 1700000000 +0200``."""
        return b"%s <%s> %d %s" % (self.name, self.email, self.timestamp, self.zone)


@dataclass(frozen=True, slots=True)
class Patch:
    """One patch file: a mailbox with one mail, or a plain diff.

    ``preamble`` is everything before the first file patch, ``files`` the diff, ``trailer`` the
    rest (``-- `` signature). ``author`` and ``message`` are None for a plain diff without mail
    headers. ``message`` is the whole commit message (subject with its ``[tags]``, blank line,
    body), ending in one newline, as UTF-8 where the mail declares a charset. A mail that gives no
    date has a message but no author.
    ``raw`` is the file itself where a transfer encoding (quoted-printable, base64) hides the
    diff; ``preamble``, ``files`` and ``trailer`` are then the decoded text.
    """

    preamble: bytes
    files: tuple[FilePatch, ...]
    trailer: bytes
    author: Identity | None
    message: bytes | None
    raw: bytes | None = None
