"""The stable patch id: the identity of a diff that survives moved lines and changed white space.

It equals ``git patch-id --stable`` (git 2.39 and later) for every diff that git writes. Git's own
count goes wrong on empty context lines that lost their space; here they count as context.
"""

from __future__ import annotations

from collections.abc import Iterable

from dsv4port.patch.model import FilePatch

_BLANKS = b" \t\r\n"
_MARKER = b"\n\\ "


def patch_id(files: Iterable[FilePatch]) -> str:
    """The id of the diff that ``files`` are, in 40 hex digits.

    It does not depend on the order of text sections. As in git, a section without content (mode
    change, pure rename) joins the one below it, a binary section counts by the ids on its index
    line, and the ``diff --git`` line below a binary section does not count.
    """
    import hashlib

    total = 0
    digest = hashlib.sha1()

    def flush() -> None:
        nonlocal total, digest
        total += int.from_bytes(digest.digest(), "little")
        digest = hashlib.sha1()

    previous: FilePatch | None = None
    for file in files:
        header = file.header
        if previous is not None and previous.hunks:
            flush()
        elif previous is not None and previous.binary is not None:
            header = header[1:]
        index = b""
        for line in header:
            if line.startswith(b"index "):
                index = line
            else:
                digest.update(_significant(line))
        for hunk in file.hunks:
            digest.update(_body(hunk.body))
        if file.binary is not None:
            old, _, new = index.removeprefix(b"index ").partition(b"..")
            digest.update(old + new.partition(b" ")[0].rstrip(b"\n"))
            flush()
        previous = file
    flush()
    return (total % (1 << 160)).to_bytes(20, "little").hex()


def _significant(text: bytes) -> bytes:
    # Git handles a line as a C string.
    return text.partition(b"\0")[0].translate(None, _BLANKS)


def _body(lines: tuple[bytes, ...]) -> bytes:
    text = b"".join(lines)
    if _MARKER not in text and b"\0" not in text:
        return text.translate(None, _BLANKS)
    # The last line may carry its "\ No newline" marker, which does not count.
    return b"".join(_significant(line.partition(_MARKER)[0]) for line in lines)
