"""Where the message of a mail ends and its diff begins.

``git am`` cuts at the first line that looks like either, and so loses text when a message holds a
``---`` line or quotes a diff. Here a split counts only when the diff parses to the end of the
file; the diffstat tells apart what is left, and what even that cannot tell is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from dsv4port.errors import BadInputError, PatchFormatError
from dsv4port.patch.diff import parse_diff_at, starts_diff
from dsv4port.patch.diff_git import EXTENDED_HEADERS
from dsv4port.patch.mail_header import starts_mail
from dsv4port.patch.message_form import LINES_FIELD
from dsv4port.patch.model import FilePatch
from dsv4port.patch.source import Source
from dsv4port.quick_dataclass import dataclass

_MAX_CANDIDATES = 16
_SEPARATOR = b"---\n"
_FIX_AMBIGUOUS = (
    f"add the header '{LINES_FIELD.decode()}: N' with the number of lines of the message"
    " above its '---' line, or export the patch with a diffstat"
)


@dataclass(frozen=True, slots=True)
class MailSplit:
    """``message_end`` is the line after the message, ``diff_start`` the first of the diff."""

    message_end: int
    diff_start: int
    files: tuple[FilePatch, ...]
    trailer_start: int


@dataclass(frozen=True, slots=True)
class _Stat:
    files: int
    insertions: int
    deletions: int

    def matches(self, files: Sequence[FilePatch]) -> bool:
        return (
            self.files == _file_count(files)
            and self.insertions == _count(files, b"+")
            and self.deletions == _count(files, b"-")
        )


def _file_count(files: Sequence[FilePatch]) -> int:
    # A file that becomes a symlink is two sections but one file.
    return len({file.path for file in files})


def _count(files: Sequence[FilePatch], kind: bytes) -> int:
    return sum(hunk.kinds.count(kind) for file in files for hunk in file.hunks)


def first_diff_line(source: Source, start: int) -> int:
    """The first line at or after ``start`` where a file section can begin.

    Raises:
        PatchFormatError: there is none.
    """
    for index in range(start, len(source.lines)):
        if source.firsts[index] in b"d-" and starts_diff(source, index):
            return index
    for index in range(start, len(source.lines)):
        if source.lines[index].startswith((b"diff --cc ", b"diff --combined ", b"@@@ ")):
            raise source.error(
                index,
                "combined diff of a merge",
                fix="a merge cannot be a patch; make one against a single parent",
            )
    raise source.error(
        max(len(source.lines) - 1, 0),
        "no diff in this file",
        fix="a patch file is the output of 'git format-patch', 'git diff' or 'diff -u'",
    )


def refuse_hidden_diff(source: Source, start: int, end: int) -> None:
    """Refuse text above a diff that is itself a section whose first lines were damaged.

    A tool that takes such a section for a comment would apply the rest and report success.

    Raises:
        PatchFormatError: with the line.
    """
    hidden = [
        index
        for index in range(start, end)
        if source.firsts[index] in b"@G"
        and source.lines[index].startswith((b"@@ -", b"GIT binary patch"))
    ]
    # The extended header of the first section stands directly above it.
    index = end - 1
    while index >= start and source.firsts[index] != 0x0A:
        if source.lines[index].startswith(EXTENDED_HEADERS) and (
            source.firsts[index] != 0x69 or b".." in source.lines[index]
        ):
            hidden.append(index)
        index -= 1
    if hidden:
        raise source.error(
            min(hidden),
            "part of a diff without the file header that must stand above it",
            fix="repair the 'diff --git' line of its section; indent it if it is only quoted",
        )


def split_exactly(source: Source, start: int, count: int) -> MailSplit:
    """The split that a header states: ``count`` message lines from ``start`` on.

    Raises:
        PatchFormatError: the separator does not stand where it is stated, or the diff is malformed.
    """
    end = start + count
    lines = source.lines
    if end >= len(lines) or lines[end] != _SEPARATOR:
        raise source.error(
            min(end, len(lines) - 1),
            f"no '---' line after the {count} message lines that the mail header states",
            fix=f"correct the number in '{LINES_FIELD.decode()}'",
        )
    diff_start = first_diff_line(source, end + 1)
    files, trailer_start = parse_diff_at(source, diff_start)
    return MailSplit(end, diff_start, files, trailer_start)


def find_split(source: Source, start: int) -> MailSplit:
    """Find the split of a mail whose body begins at line ``start``.

    Raises:
        PatchFormatError: no diff parses to the end of the file, or several splits are possible.
        UnsafePathError: the diff names a path that must not be written.
    """
    diff_start = first_diff_line(source, start)
    problem: BadInputError | None = None
    try:
        files, trailer_start = parse_diff_at(source, diff_start)
    except BadInputError as error:
        problem = error
    else:
        separators = [i for i in range(start, diff_start) if _is_separator(source.lines[i])]
        stat = _stat_between(source, separators[-1] + 1, diff_start) if separators else None
        if stat is not None and stat.matches(files):
            _refuse_second_mail(source, start, diff_start)
            refuse_hidden_diff(source, separators[-1] + 1, diff_start)
            return MailSplit(separators[-1], diff_start, files, trailer_start)
    # The first diff may be a quotation in the message. Only a diffstat can prove another reading;
    # without that proof a malformed patch must not pass by calling its first half a message.
    later = _later_splits(source, diff_start)
    if len(later) > 1:
        raise source.error(
            later[1].message_end, "several places could end the message", fix=_FIX_AMBIGUOUS
        )
    if later:
        _refuse_second_mail(source, start, later[0].message_end)
        return later[0]
    _refuse_second_mail(source, start, diff_start)
    if problem is not None:
        raise problem
    refuse_hidden_diff(source, separators[-1] + 1 if separators else start, diff_start)
    if stat is not None and stat.files != _file_count(files):
        raise source.error(
            diff_start,
            f"the diffstat counts {stat.files} files but the diff has {_file_count(files)}",
            fix="get the whole file, or correct the diffstat if the patch was edited on purpose",
        )
    message_end = _message_end(source, separators, diff_start, stat)
    return MailSplit(message_end, diff_start, files, trailer_start)


def _is_separator(line: bytes) -> bool:
    return line.startswith(b"---") and not line[3:].strip()


def _message_end(
    source: Source, separators: Sequence[int], diff_start: int, stat: _Stat | None
) -> int:
    if not separators:
        # git format-patch --no-stat writes no separator.
        return diff_start
    last = separators[-1]
    if stat is not None:
        return last
    gap = source.lines[last + 1 : diff_start]
    text = [line for line in gap if line[:1] not in (b" ", b"\n")]
    if len(separators) == 1 and (not text or text[0].startswith(b"Notes")):
        return last
    what = (
        "several '---' lines could end the message"
        if len(separators) > 1
        else "text between '---' and the diff may be part of the message"
    )
    raise source.error(last, what, fix=_FIX_AMBIGUOUS)


def _stat_between(source: Source, start: int, end: int) -> _Stat | None:
    for line in source.lines[start:end]:
        stat = _parse_stat(line)
        if stat is not None:
            return stat
    return None


def _parse_stat(line: bytes) -> _Stat | None:
    """The totals of a diffstat: `` 2 files changed, 3 insertions(+), 1 deletion(-)``."""
    if b" changed" not in line or not line.startswith(b" "):
        return None
    totals = {b"file": 0, b"insertion": 0, b"deletion": 0}
    for part in line.strip().removesuffix(b" changed").replace(b" changed,", b",").split(b", "):
        number, _, word = part.partition(b" ")
        key = word.partition(b"(")[0].removesuffix(b"s")
        if key not in totals or not number.isdigit() or len(number) > 9:
            return None
        totals[key] = int(number)
    return _Stat(totals[b"file"], totals[b"insertion"], totals[b"deletion"])


def _later_splits(source: Source, start: int) -> list[MailSplit]:
    """Splits after ``start`` with a separator, a diffstat, and a diff that is what it says."""
    lines = source.lines
    found: list[MailSplit] = []
    tried = 0
    at = start
    while True:
        try:
            separator = lines.index(_SEPARATOR, at)
        except ValueError:
            return found
        at = separator + 1
        while at < len(lines) and lines[at].startswith((b" ", b"\n", b"Notes")):
            at += 1
        stat = _stat_between(source, separator + 1, at)
        if stat is None or at == len(lines) or not starts_diff(source, at):
            continue
        tried += 1
        if tried > _MAX_CANDIDATES:
            raise source.error(
                separator, "too many places could end the message", fix=_FIX_AMBIGUOUS
            )
        try:
            files, trailer_start = parse_diff_at(source, at)
        except BadInputError:
            continue
        if stat.matches(files):
            found.append(MailSplit(separator, at, files, trailer_start))


def _refuse_second_mail(source: Source, start: int, end: int) -> None:
    for index in range(start, end):
        if source.firsts[index] == 0x46 and starts_mail(source, index):
            raise second_mail(source, index)


def second_mail(source: Source, index: int) -> PatchFormatError:
    """The error for a file that holds more than one mail."""
    return source.error(
        index, "a second mail starts here", fix="put each mail in a file of its own (git mailsplit)"
    )
