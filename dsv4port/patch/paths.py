"""Which paths of a patch may be written: nothing outside the tree, nothing that is ``.git``.

The look-alike rules are those of git's ``core.protectNTFS`` and ``core.protectHFS``, on every
machine: a patch that is safe here must be safe where the result is checked out next.
"""

from __future__ import annotations

import re

MAX_PATH_BYTES = 4096
"""Longest path accepted: the limit of the systems that the tree is checked out on."""

# A path without any of these cannot be unsafe; nearly all paths stop here.
_SUSPECT = re.compile(rb"(?i)(?:^|/)(?:[./]|$)|^.:|git~|[\\\x00\x80-\xff]")

# Code points that HFS+ ignores in names.
_HFS_IGNORED = dict.fromkeys(
    (*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF)
)


def unsafe_reason(path: bytes) -> str | None:
    """Why ``path`` must not be written, or None when it is safe."""
    if len(path) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if path and not _SUSPECT.search(path):
        return None
    if not path:
        return "is empty"
    if b"\0" in path:
        return "contains a NUL byte"
    if path[:1] in (b"/", b"\\") or (path[1:2] == b":" and path[:1].isalpha()):
        return "is absolute"
    if b"" in path.split(b"/"):
        return "has an empty component"
    # A backslash separates directories on Windows, so what it would separate must be safe as well.
    for component in path.replace(b"\\", b"/").split(b"/"):
        if component in (b".", b".."):
            return f"has a {component.decode()!r} component"
        if _is_dot_git(component):
            return "has a component that is, or that some file systems take for, '.git'"
    return None


def _is_dot_git(component: bytes) -> bool:
    if not component.isascii():
        try:
            text = component.decode("utf-8")
        except UnicodeDecodeError:
            return False
        component = text.translate(_HFS_IGNORED).encode("utf-8")
    # NTFS ignores trailing dots and spaces, and what follows a colon names a stream of the file.
    name = component.split(b":", 1)[0].rstrip(b" .").lower()
    return name == b".git" or (name.startswith(b"git~") and name[4:].isdigit())
