"""Which paths and links a source may bring into a tree."""

from __future__ import annotations

import re

from dsv4port.errors import UnsafePathError
from dsv4port.patch.paths import unsafe_reason

MAX_NAME = 255
"""Longest name of a file or folder, in bytes, that the usual file systems take."""

_LONG_NAME = re.compile(rb"[^/]{%d}" % (MAX_NAME + 1))
_GIT_MODULES = re.compile(rb"\.gitmodules[. ]*(?::.*)?", re.IGNORECASE | re.DOTALL)
_FIX = "do not use this source; get the pin from another one and compare the hash"


def check_path(path: bytes, *, where: str) -> None:
    """Refuse a path, relative to the tree's root, that is not safe to write.

    Parameters:
        where: what the path was found in, for the message.

    Raises:
        UnsafePathError: the path is not safe.
    """
    reason = unsafe_reason(path)
    if reason is None and _LONG_NAME.search(path) is not None:
        reason = f"has a name longer than {MAX_NAME} bytes"
    if reason is not None:
        raise UnsafePathError(f"{where}: the path {shown_path(path)} {reason}", fix=_FIX)


def check_symlink(path: bytes, target: bytes, *, where: str) -> None:
    """Refuse a symbolic link that git would follow or that cannot be made.

    Where the link points to is not judged: it is content, and nothing is written through it.

    Raises:
        UnsafePathError: the link is not safe.
    """
    if not target or b"\0" in target:
        reason = "is a symbolic link without a usable target"
    elif _GIT_MODULES.fullmatch(path.rsplit(b"/", 1)[-1]) is not None:
        reason = "would make `.gitmodules` a symbolic link"
    else:
        return
    raise UnsafePathError(f"{where}: the path {shown_path(path)} {reason}", fix=_FIX)


def shown_path(path: bytes) -> str:
    """A path for a message: control and undecodable bytes escaped, long ones cut."""
    text = path.decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"`{text if len(text) <= 200 else text[:200] + '…'}`"
