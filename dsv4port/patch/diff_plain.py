"""Plain sections, as GNU diff, quilt and svn write them: ``---``, ``+++``, hunks."""

from __future__ import annotations

from dsv4port.patch.diff_advice import FROM_GIT
from dsv4port.patch.diff_checks import check_whole_file
from dsv4port.patch.diff_hunks import HunkParser
from dsv4port.patch.diff_names import file_name
from dsv4port.patch.model import ChangeKind, FilePatch
from dsv4port.patch.quote import display_path
from dsv4port.patch.source import Source

_DIGITS = b"0123456789"
# Lines that GNU diff, quilt and svn put before a plain section.
_PLAIN_LEADERS = (b"diff ", b"Index: ", b"====")


def starts_plain(source: Source, index: int) -> bool:
    """Whether the names and the first hunk header of a plain section begin at this line."""
    lines = source.lines
    return (
        index + 2 < len(lines)
        and lines[index].startswith(b"--- ")
        and lines[index + 1].startswith(b"+++ ")
        and lines[index + 2].startswith(b"@@ -")
    )


def plain_header(source: Source, at: int) -> int | None:
    """The index of the ``---`` line of a plain section that begins here, or None."""
    header = at
    while header < len(source.lines) and source.lines[header].startswith(_PLAIN_LEADERS):
        if source.lines[header].startswith((b"diff --git ", b"diff --cc ", b"diff --combined ")):
            return None
        header += 1
    return header if header < len(source.lines) and starts_plain(source, header) else None


def parse_plain_section(
    source: Source, hunk_parser: HunkParser, start: int, header: int
) -> tuple[FilePatch, int]:
    """Parse the plain section at line ``start`` whose ``---`` line is at ``header``.

    Returns:
        The file patch, and the index of the line after it.

    Raises:
        PatchFormatError, UnsafePathError: it is malformed, or names a path outside of the tree.
    """
    old_path, old_stamp = file_name(source, header, b"a/")
    new_path, new_stamp = file_name(source, header + 1, b"b/")
    hunks, at = hunk_parser.parse(header + 2)
    first = hunks[0]
    # GNU diff -N marks a missing file with the epoch as its time instead of /dev/null.
    old_gone = first.old_count == 0 and first.old_start == 0 and _is_epoch(old_stamp)
    new_gone = first.new_count == 0 and first.new_start == 0 and _is_epoch(new_stamp)
    if len(hunks) == 1 and old_path is not None and new_path is not None:
        if (old_gone and _is_epoch(new_stamp)) or (new_gone and _is_epoch(old_stamp)):
            raise source.error(
                header,
                "cannot tell an empty file from a missing one: both times are the epoch",
                fix="write the missing side as /dev/null",
            )
        if old_path == new_path and old_gone:
            old_path = None
        elif old_path == new_path and new_gone:
            new_path = None
    if old_path is None:
        change = ChangeKind.ADD
    elif new_path is None:
        change = ChangeKind.DELETE
    elif old_path == new_path:
        change = ChangeKind.MODIFY
    else:
        raise source.error(
            header,
            f"the two names differ: {display_path(old_path)} and {display_path(new_path)}",
            fix="a plain diff cannot rename; use a git diff",
        )
    if old_path is None and new_path is None:
        raise source.error(header, "both names are /dev/null", fix=FROM_GIT)
    file = FilePatch(
        header=tuple(source.lines[start : header + 2]),
        change=change,
        old_path=old_path,
        new_path=new_path,
        old_mode=None,
        new_mode=None,
        old_id=None,
        new_id=None,
        similarity=None,
        hunks=hunks,
        binary=None,
        line_number=start + 1,
    )
    check_whole_file(source, file, header)
    source.check_path(header, file.path)
    return file, at


def _is_epoch(stamp: bytes) -> bool:
    """Whether a time after a file name is 1970-01-01 00:00:00 UTC in some zone."""
    parts = stamp.split()
    if len(parts) != 3 or parts[1].partition(b".")[2].strip(b"0"):
        return False
    clock = parts[1].partition(b".")[0].split(b":")
    zone = parts[2]
    digits = b"".join(clock) + zone[1:]
    if len(clock) != 3 or zone[:1] not in (b"+", b"-") or len(zone) != 5 or digits.strip(_DIGITS):
        return False
    if len(digits) != 10:
        return False
    days = {b"1969-12-31": -1, b"1970-01-01": 0}.get(parts[0])
    if days is None:
        return False
    local = days * 86400 + int(clock[0]) * 3600 + int(clock[1]) * 60 + int(clock[2])
    offset = int(zone[1:3]) * 3600 + int(zone[3:]) * 60
    return local == (offset if zone[:1] == b"+" else -offset)
