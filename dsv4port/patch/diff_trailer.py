"""What may follow a diff, and what text there most likely is when it may not."""

from __future__ import annotations

from dsv4port.errors import PatchFormatError
from dsv4port.patch.diff_advice import FIX_COUNTS, combined, mixed
from dsv4port.patch.diff_plain import starts_plain
from dsv4port.patch.model import FilePatch
from dsv4port.patch.source import Source

_TRAILER_FIELDS = (b"base-commit: ", b"prerequisite-patch-id: ")


def check_trailer(source: Source, start: int, last: FilePatch) -> None:
    """Only blank lines, what format-patch adds, and one signature may follow the diff."""
    for at in range(start, len(source.lines)):
        line = source.lines[at]
        if line == b"\n" or line.startswith(_TRAILER_FIELDS):
            continue
        if line in (b"-- \n", b"-- ") or (line == b"--\n" and _is_version(source, at + 1)):
            _check_signature(source, at + 1)
            return
        raise _garbage(source, at, start, last)


def _is_version(source: Source, at: int) -> bool:
    """Whether this is the git version of a signature whose ``-- `` lost its space."""
    rest = b"".join(source.lines[at:]).strip()
    return rest[:1].isdigit() and b"\n" not in rest and b"." in rest and b" " not in rest


def _check_signature(source: Source, start: int) -> None:
    for at in range(start, len(source.lines)):
        line = source.lines[at]
        if line.startswith(b"From "):
            raise _second_mail(source, at)
        if source.firsts[at] in b" +-@\\" or line.startswith((b"diff ", b"Index: ")):
            raise source.error(
                at,
                f"line after the signature could belong to the diff: {source.shown(at)}",
                fix="remove what follows the signature, or correct the hunk above it",
            )


def _second_mail(source: Source, at: int) -> PatchFormatError:
    return source.error(
        at,
        "a second mail starts here",
        fix="put each mail in a file of its own (git mailsplit)",
    )


def _garbage(source: Source, at: int, start: int, last: FilePatch) -> PatchFormatError:
    line = source.lines[at]
    if line.endswith(b"\r\n") and line.startswith((b"diff ", b"--- ", b"\r")):
        return source.converted(at)
    if line.startswith(b"From "):
        return _second_mail(source, at)
    if line.startswith((b"diff --cc ", b"diff --combined ", b"@@@")):
        return combined(source, at)
    if line.startswith((b"diff --git ", b"--- ", b"Index: ")) and at > start:
        return source.error(
            at, "blank line inside the diff", fix="remove the blank lines between its sections"
        )
    if line.startswith((b"Binary files ", b"Files ", b"Only in ")):
        return source.error(
            at,
            f"a change that the diff does not hold: {source.shown(at)}",
            fix="make the patch with 'git diff --binary'",
        )
    if starts_plain(source, at):
        return mixed(source, at)
    if at == start and source.firsts[at] in b" +-\\" and last.hunks:
        return source.error(
            at,
            f"hunk at line {last.hunks[-1].line_number} has more lines than it states",
            fix=FIX_COUNTS,
        )
    return source.error(
        at,
        f"text after the diff: {source.shown(at)}",
        fix="remove it, or put it before the diff",
    )
