"""Read a patch file as loosely as ``patch -p1`` does, where the strict reader refuses it.

Distributions keep patches whose folder names are ``pkg-1.0.orig/`` and ``pkg-1.0/``, with text
between the sections, a diffstat that was not updated, or a date in another form. Nothing of that
says what the patch does. So the file sections alone are taken, their first folder is replaced by
``a/`` and ``b/``, and the strict reader reads the result: counts, paths and binary data are checked
as ever. A patch for the strict reader is read by it alone, with its message and author.
"""

from __future__ import annotations

import re
from io import BytesIO

from dsv4port.errors import PatchFormatError, UnsafePathError
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import FilePatch, Patch

_RANGE = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_STAMP = re.compile(rb"\t.*|\s+\d{4}-\d\d-\d\d .*|\s+\w{3} \w{3} +\d+ .*")
_EPOCH = re.compile(rb"\s(?:1970-01-01|1969-12-31|Thu Jan +1 |Wed Dec 31 )")
_EXTENDED = (
    b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"rename from ",
    b"rename to ", b"copy from ", b"copy to ", b"similarity index ", b"dissimilarity index ",
    b"index ",
)  # fmt: skip


def read_patch(data: bytes, name: str) -> Patch:
    """Read a patch file that changes no file twice.

    Raises:
        PatchFormatError, UnsafePathError: as :func:`read_patches`; it changes a file twice.
    """
    parts = read_patches(data, name)
    if len(parts) > 1:
        raise PatchFormatError(
            f"{name}: two sections for one file", fix="split the file into one patch for each"
        )
    return parts[0]


def read_patches(data: bytes, name: str) -> tuple[Patch, ...]:
    """Read a patch file: one patch, or several in order where it changes a file again.

    Raises:
        PatchFormatError: it is malformed for the loose reader too; the error is the strict one's.
        UnsafePathError: it would write outside the tree.
    """
    try:
        return (parse_patch(data, name),)
    except (PatchFormatError, UnsafePathError) as error:
        try:
            parts, preamble = _loose(data, name)
        except (PatchFormatError, UnsafePathError):
            raise error from None
        if not parts:
            raise
        return tuple(Patch(preamble, files, b"", None, None, data) for files in parts)


def _loose(data: bytes, name: str) -> tuple[list[tuple[FilePatch, ...]], bytes]:
    lines = BytesIO(data.replace(b"\r\n", b"\n") if _is_converted(data) else data).readlines()
    sections: list[list[bytes]] = []
    first = at = 0
    while at < len(lines):
        section, after = _section(lines, at)
        if section is None:
            at = after
            continue
        if not sections:
            first = at
        sections.append(section)
        at = after
    parts: list[list[FilePatch]] = []
    seen: set[bytes] = set()
    for section in sections:
        found, _ = parse_diff(b"".join(section), name)
        paths = {path for file in found for path in (file.old_path, file.new_path) if path}
        if not parts or paths & seen:
            parts.append([])
            seen = set()
        parts[-1] += found
        seen |= paths
    return [tuple(files) for files in parts], b"".join(lines[:first])


def _is_converted(data: bytes) -> bool:
    """Whether every line of the file ends in CRLF, headers included: then it was converted."""
    return data.count(b"\r\n") == data.count(b"\n") > 0


def _section(lines: list[bytes], at: int) -> tuple[list[bytes] | None, int]:
    """The file section that begins at a line, made strict, and the line after it."""
    line = lines[at]
    if line.startswith(b"diff --git "):
        return _git_section(lines, at)
    if (
        line.startswith(b"--- ")
        and at + 2 < len(lines)
        and lines[at + 1].startswith(b"+++ ")
        and _RANGE.match(lines[at + 2])
    ):
        return _plain_section(lines, at)
    return None, at + 1


def _git_section(lines: list[bytes], at: int) -> tuple[list[bytes] | None, int]:
    header = [lines[at]]
    row = at + 1
    while row < len(lines) and lines[row].startswith(_EXTENDED):
        header.append(lines[row])
        row += 1
    if row < len(lines) and lines[row].startswith(b"GIT binary patch"):
        body = []
        while row < len(lines) and not lines[row].startswith((b"diff --git ", b"-- \n")):
            body.append(lines[row])
            row += 1
        return header + body, row
    if row + 1 < len(lines) and lines[row].startswith(b"--- "):
        if not lines[row + 1].startswith(b"+++ "):
            return None, row
        if any(
            one.startswith((b"rename ", b"copy ", b"old mode ", b"new mode ")) for one in header
        ):
            hunks, after = _hunks(lines, row + 2)
            return [*header, lines[row], lines[row + 1], *hunks], after
        # The names of the section's own lines are what counts.
        return _plain_section(lines, row)
    names = [one for one in header[1:] if not one.startswith(b"index ")]
    # A section without any content (of an empty or removed binary file) changes nothing.
    return (header if names else None), row


def _plain_section(lines: list[bytes], at: int) -> tuple[list[bytes], int]:
    old, new = (_name(lines[at + side][4:]) for side in (0, 1))
    hunks, after = _hunks(lines, at + 2)
    ranges = _RANGE.match(lines[at + 2])
    assert ranges is not None
    if old is None or (_EPOCH.search(lines[at]) and ranges[1] == b"0"):
        old_line = b"--- /dev/null\n"
    else:
        old_line = b"--- a/%s\n" % old
    if new is None or (_EPOCH.search(lines[at + 1]) and ranges[2] == b"0"):
        new_line = b"+++ /dev/null\n"
    else:
        # GNU patch takes the name that exists; backups are only ever on the old side.
        new_line = b"+++ b/%s\n" % (new if old is None or new else old)
        if old is not None and old != new and not old_line.endswith(b"null\n"):
            old_line = b"--- a/%s\n" % new
    return [old_line, new_line, *hunks], after


def _name(text: bytes) -> bytes | None:
    """The path of a header line without its first folder; None for /dev/null."""
    text = text.rstrip(b"\r\n")
    text = _STAMP.sub(b"", text, count=1)
    if text == b"/dev/null":
        return None
    return text.partition(b"/")[2].lstrip(b"/") or text


def _hunks(lines: list[bytes], at: int) -> tuple[list[bytes], int]:
    """All hunks from a line on, by their counts."""
    found: list[bytes] = []
    while at < len(lines) and (ranges := _RANGE.match(lines[at])):
        old, new = (1 if count is None else int(count) for count in ranges.groups())
        found.append(lines[at])
        at += 1
        while at < len(lines) and (old > 0 or new > 0):
            line = lines[at]
            if line in (b"\n", b"\r\n"):
                # A blank context line whose space an editor took away.
                line = b" " + line
            kind = line[:1]
            if kind not in b" -+\\" or not kind:
                break
            old -= kind in b" -"
            new -= kind in b" +"
            found.append(line)
            at += 1
        if at < len(lines) and lines[at].startswith(b"\\ "):
            found.append(lines[at])
            at += 1
    return found, at
