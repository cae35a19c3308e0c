"""Reverse a file patch: the patch that takes the change back, in git's own form.

Diffs of two trees are left to git; only what exists as a patch is turned around here.
"""

from __future__ import annotations

from dataclasses import replace

from dsv4port.errors import PatchFormatError
from dsv4port.patch.binary import encode_half
from dsv4port.patch.model import BinaryPatch, ChangeKind, FilePatch, Hunk
from dsv4port.patch.quote import display_path, quote

_ZERO_ID = "0" * 40
_REVERSED_KIND = {ChangeKind.ADD: ChangeKind.DELETE, ChangeKind.DELETE: ChangeKind.ADD}


def reverse_patch(file: FilePatch) -> FilePatch:
    """The file patch that undoes ``file``.

    Raises:
        PatchFormatError: it is a copy (undoing one means deleting content that the patch does not
            hold), or a binary patch without its reverse half.
    """
    if file.change is ChangeKind.COPY:
        raise PatchFormatError(
            f"copy to {display_path(file.path)} cannot be reversed",
            fix="make the patch without copy detection (git diff --no-renames)",
        )
    binary = _reverse_binary(file) if file.binary is not None else None
    reversed_file = FilePatch(
        header=(),
        change=_REVERSED_KIND.get(file.change, file.change),
        old_path=file.new_path,
        new_path=file.old_path,
        old_mode=file.new_mode,
        new_mode=file.old_mode,
        old_id=file.new_id,
        new_id=file.old_id,
        similarity=file.similarity,
        hunks=tuple(map(_reverse_hunk, file.hunks)),
        binary=binary,
        line_number=file.line_number,
    )
    git = file.header[0].startswith(b"diff --git ")
    return replace(reversed_file, header=_header(reversed_file, git=git))


def _reverse_binary(file: FilePatch) -> BinaryPatch:
    assert file.binary is not None
    if file.binary.reverse is None:
        raise PatchFormatError(
            f"binary patch of {display_path(file.path)} has no reverse half",
            fix="make the patch with 'git diff --binary'",
        )
    forward, reverse = file.binary.reverse, file.binary.forward
    body = (b"GIT binary patch\n", *encode_half(forward), *encode_half(reverse))
    return BinaryPatch(body, forward, reverse)


def _reverse_hunk(hunk: Hunk) -> Hunk:
    body: list[bytes] = []
    added: list[bytes] = []
    # In every run of changes the lines to remove come first.
    for line, kind in zip(hunk.body, hunk.kinds, strict=True):
        if kind == 0x2D:
            added.append(b"+" + line[1:])
        elif kind == 0x2B:
            body.append(b"-" + line[1:])
        else:
            body += added
            added.clear()
            body.append(line)
    body += added
    header = b"@@ -%s +%s @@%s\n" % (
        _range(hunk.new_start, hunk.new_count),
        _range(hunk.old_start, hunk.old_count),
        b" " + hunk.section if hunk.section else b"",
    )
    return Hunk(
        header=header,
        body=tuple(body),
        old_start=hunk.new_start,
        old_count=hunk.new_count,
        new_start=hunk.old_start,
        new_count=hunk.old_count,
        section=hunk.section,
        kinds=b"".join(line[:1] if line != b"\n" else b" " for line in body),
        old_lines=hunk.new_lines,
        new_lines=hunk.old_lines,
        line_number=hunk.line_number,
    )


def _range(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)


def _header(file: FilePatch, *, git: bool) -> tuple[bytes, ...]:
    old = file.old_path if file.old_path is not None else file.path
    new = file.path
    lines: list[bytes] = []
    if git:
        lines.append(b"diff --git %s %s\n" % (quote(b"a/" + old), quote(b"b/" + new)))
        modes_differ = file.old_mode != file.new_mode
        if file.change is ChangeKind.ADD:
            lines.append(b"new file mode %o\n" % (file.new_mode or 0o100644))
        elif file.change is ChangeKind.DELETE:
            lines.append(b"deleted file mode %o\n" % (file.old_mode or 0o100644))
        elif modes_differ:
            lines.append(b"old mode %o\n" % (file.old_mode or 0))
            lines.append(b"new mode %o\n" % (file.new_mode or 0))
        if file.change is ChangeKind.RENAME:
            if file.similarity is not None:
                lines.append(b"similarity index %d%%\n" % file.similarity)
            lines += (b"rename from %s\n" % quote(old), b"rename to %s\n" % quote(new))
        if file.old_id is not None or file.new_id is not None:
            known = file.old_id or file.new_id or _ZERO_ID
            zero = "0" * len(known)
            mode = b" %o" % file.old_mode if file.old_mode and not modes_differ else b""
            ids = (file.old_id or zero).encode(), (file.new_id or zero).encode()
            lines.append(b"index %s..%s%s\n" % (*ids, mode))
    if file.hunks:
        lines.append(b"--- " + _name(b"a/", file.old_path))
        lines.append(b"+++ " + _name(b"b/", file.new_path))
    return tuple(lines)


def _name(prefix: bytes, path: bytes | None) -> bytes:
    if path is None:
        return b"/dev/null\n"
    name = quote(prefix + path)
    # A TAB ends a name with spaces, as git writes it.
    return name + (b"\t\n" if b" " in name else b"\n")
