"""Commit messages of applied patches: the patch's own, and trailers that say where it is from."""

from __future__ import annotations

import re
from collections.abc import Sequence

PATCHSET_TRAILER = "Patchset"
FILE_TRAILER = "Patch-File"

_TRAILER_LINE = re.compile(rb"[A-Za-z0-9-]+: \S")
_OURS = re.compile(rb"\n(\n?)Patchset: ([^\n]+)\nPatch-File: ([^\n]+)\n\Z")


def with_trailers(message: bytes, trailers: Sequence[tuple[str, str]]) -> bytes:
    """Append trailers to `message` (which ends in one newline), in its trailer block if any."""
    if not trailers:
        return message
    last = message.rstrip(b"\n").rpartition(b"\n\n")[2].split(b"\n")
    in_block = b"\n\n" in message.rstrip(b"\n") and all(map(_TRAILER_LINE.match, last))
    lines = "".join(f"{key}: {value}\n" for key, value in trailers)
    return message + (b"" if in_block else b"\n") + lines.encode()


def without_trailers(message: bytes) -> tuple[bytes, tuple[str, str] | None]:
    """Undo `with_trailers`: the patch's own message, and (patchset, file) where they were there."""
    found = _OURS.search(message)
    if found is None:
        return message, None
    patchset, file = found.group(2).decode(), found.group(3).decode()
    return message[: found.start()] + b"\n", (patchset, file)
