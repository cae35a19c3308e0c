"""Parse the diff of a patch file, strictly: what is not understood is refused, never skipped.

Git's and GNU diff's own formats are read (``diff --git`` sections with extended headers, plain
``---``/``+++`` pairs, ``GIT binary patch``). Where ``git apply`` guesses or skips (wrong counts,
text after a hunk, names that disagree), this parser raises with file and line.

Time is linear in the size of the file. Limits: :data:`~dsv4port.patch.source.MAX_PATCH_BYTES`,
:data:`MAX_HUNKS`, :data:`~dsv4port.patch.binary.MAX_INFLATED_BYTES`.
"""

from __future__ import annotations

from itertools import compress

from dsv4port.errors import PatchFormatError
from dsv4port.patch.model import (
    BinaryHalf,
    BinaryMethod,
    BinaryPatch,
    ChangeKind,
    FilePatch,
    Hunk,
)
from dsv4port.patch.paths import MAX_PATH_BYTES
from dsv4port.patch.quote import display_path, unquote, unquote_prefix
from dsv4port.patch.source import Source

MAX_HUNKS = 1_000_000
"""Most hunks in one patch file."""

EXTENDED_HEADERS = (
    b"index ",
    b"new file mode ",
    b"deleted file mode ",
    b"old mode ",
    b"new mode ",
    b"similarity index ",
    b"dissimilarity index ",
    b"rename from ",
    b"rename to ",
    b"copy from ",
    b"copy to ",
)
"""The lines of a git section's header, the most frequent first."""

_SPACE, _MINUS, _PLUS, _BACKSLASH, _FEED, _AT = b" -+\\\n@"
# First bytes that can begin a line of a hunk stay, every other becomes X.
_BODY_OR_X = bytes(code if code in b" -+\\\n" else ord("X") for code in range(256))
_IS_OLD = bytes(code in b" -" for code in range(256))
_IS_NEW = bytes(code in b" +" for code in range(256))
_FILE_TYPE = 0o170000
_MODES = {b"%o" % mode: mode for mode in (0o100644, 0o100755, 0o120000, 0o160000)}
_EMPTY_BLOB_IDS = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_HEX = b"0123456789abcdef"
_DIGITS = b"0123456789"
_MAX_DIGITS = 9
_FROM_GIT = "regenerate the patch with 'git format-patch --full-index --binary'"
_FIX_COUNTS = "regenerate the patch from git, or correct the hunk and its counts by hand"
_TRAILER_FIELDS = (b"base-commit: ", b"prerequisite-patch-id: ")
# Lines that GNU diff, quilt and svn put before a plain section.
_PLAIN_LEADERS = (b"diff ", b"Index: ", b"====")


def parse_diff(data: bytes, name: str) -> tuple[tuple[FilePatch, ...], bytes]:
    """Parse a diff that begins at the first byte.

    Parameters:
        data: the diff.
        name: how errors call it.

    Returns:
        Its file patches, and the trailer after the last of them.

    Raises:
        PatchFormatError: it is malformed, or does not begin with a file section.
        UnsafePathError: it would write outside the tree or into ``.git``.
    """
    source = Source(data, name)
    files, end = parse_diff_at(source, 0)
    return files, b"".join(source.lines[end:])


def starts_diff(source: Source, index: int) -> bool:
    """Whether a file section can begin at this line."""
    first = source.firsts[index]
    if first == 0x64:  # d
        return source.lines[index].startswith(b"diff --git ")
    return first == _MINUS and _starts_plain(source, index)


def _starts_plain(source: Source, index: int) -> bool:
    lines = source.lines
    return (
        index + 2 < len(lines)
        and lines[index].startswith(b"--- ")
        and lines[index + 1].startswith(b"+++ ")
        and lines[index + 2].startswith(b"@@ -")
    )


def parse_diff_at(source: Source, start: int) -> tuple[tuple[FilePatch, ...], int]:
    """Parse the diff that begins at line ``start`` and must go on to the end of the file.

    Returns:
        Its file patches, and the index of the first line of the trailer.

    Raises:
        PatchFormatError, UnsafePathError: as :func:`parse_diff`.
    """
    return _DiffParser(source).parse(start)


class _DiffParser:
    """The state of one parse: where the binary budget and the paths seen so far are."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines = source.lines
        self.firsts = source.firsts
        self.classes = source.firsts.translate(_BODY_OR_X)
        self.end = len(source.lines)
        self.hunk_count = 0
        self.inflated = 0
        self.removed: dict[bytes, FilePatch] = {}
        self.written: dict[bytes, FilePatch] = {}

    def parse(self, start: int) -> tuple[tuple[FilePatch, ...], int]:
        files: list[FilePatch] = []
        git_style: bool | None = None
        at = start
        while at < self.end:
            first = self.firsts[at]
            line = self.lines[at]
            if first == 0x64 and line.startswith(b"diff --git "):
                if git_style is False:
                    raise self._mixed(at)
                git_style = True
                file, at = _GitSection(self, at).parse()
            elif git_style is not True and (header := self._plain_header(at)) is not None:
                git_style = False
                file, at = self._plain_section(at, header)
            else:
                break
            self._check_paths(file)
            files.append(file)
        if not files:
            raise self.source.error(at, "no diff starts here", fix=_FROM_GIT)
        self._check_trailer(at, files[-1])
        return tuple(files), at

    def _mixed(self, at: int) -> PatchFormatError:
        return self.source.error(
            at, "git sections and plain sections in one patch", fix="split them into two patches"
        )

    # Plain sections

    def _plain_header(self, at: int) -> int | None:
        """The index of the ``---`` line of a plain section that begins here, or None."""
        header = at
        while header < self.end and self.lines[header].startswith(_PLAIN_LEADERS):
            if self.lines[header].startswith((b"diff --git ", b"diff --cc ", b"diff --combined ")):
                return None
            header += 1
        return header if header < self.end and _starts_plain(self.source, header) else None

    def _plain_section(self, start: int, header: int) -> tuple[FilePatch, int]:
        old_path, old_stamp = self.file_name(header, b"a/")
        new_path, new_stamp = self.file_name(header + 1, b"b/")
        hunks, at = self.hunks(header + 2)
        first = hunks[0]
        # GNU diff -N marks a missing file with the epoch as its time instead of /dev/null.
        old_gone = first.old_count == 0 and first.old_start == 0 and _is_epoch(old_stamp)
        new_gone = first.new_count == 0 and first.new_start == 0 and _is_epoch(new_stamp)
        if len(hunks) == 1 and old_path is not None and new_path is not None:
            if (old_gone and _is_epoch(new_stamp)) or (new_gone and _is_epoch(old_stamp)):
                raise self.source.error(
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
            raise self.source.error(
                header,
                f"the two names differ: {display_path(old_path)} and {display_path(new_path)}",
                fix="a plain diff cannot rename; use a git diff",
            )
        if old_path is None and new_path is None:
            raise self.source.error(header, "both names are /dev/null", fix=_FROM_GIT)
        file = FilePatch(
            header=tuple(self.lines[start : header + 2]),
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
        self.check_whole_file(file, header)
        self.source.check_path(header, file.path)
        return file, at

    def file_name(self, index: int, prefix: bytes) -> tuple[bytes | None, bytes]:
        """The path of a ``---`` or ``+++`` line (None for /dev/null) and the time after it."""
        line = self.lines[index]
        if line.endswith(b"\r\n"):
            raise self.source.converted(index)
        if not line.endswith(b"\n"):
            raise self._cut_off(index)
        text = line[4:-1]
        stamp = b""
        if text.startswith(b'"'):
            try:
                text, end = unquote_prefix(text)
            except ValueError as problem:
                raise self.source.error(
                    index, f"badly quoted name: {problem}", fix=_FROM_GIT
                ) from None
            stamp = line[4 + end : -1]
            if stamp and not stamp.startswith(b"\t"):
                raise self.source.error(index, "text after the quoted name", fix=_FROM_GIT)
        elif b"\t" in text:
            text, _, stamp = text.partition(b"\t")
        if text == b"/dev/null":
            return None, stamp
        if not text.startswith(prefix):
            self.source.check_path(index, text)
            raise self.source.error(
                index,
                f"name {display_path(text)} does not start with {prefix.decode()!r}",
                fix="make the patch with the prefixes a/ and b/"
                " (git diff --src-prefix=a/ --dst-prefix=b/)",
            )
        return text[2:], stamp

    def check_whole_file(self, file: FilePatch, index: int) -> None:
        """An addition has no old lines, a deletion no new ones, and each one hunk at most."""
        if file.change is ChangeKind.ADD:
            wrong = any(hunk.old_count for hunk in file.hunks)
            what = "a new file has lines to remove or keep"
        elif file.change is ChangeKind.DELETE:
            wrong = any(hunk.new_count for hunk in file.hunks)
            what = "a deleted file has lines left"
        else:
            return
        if wrong:
            raise self.source.error(index, what, fix=_FROM_GIT)
        if len(file.hunks) > 1:
            raise self.source.error(
                index, "a new or deleted file has more than one hunk", fix=_FROM_GIT
            )

    def _check_paths(self, file: FilePatch) -> None:
        """Refuse two sections that speak of one path, except where git itself writes two."""
        if file.change in (ChangeKind.DELETE, ChangeKind.RENAME) and file.old_path is not None:
            gone, other = file.old_path, self.written.get(file.old_path)
            if other is not None and (
                file.change is ChangeKind.DELETE or other.change is ChangeKind.MODIFY
            ):
                raise self._twice(file, gone, other)
            if gone in self.removed:
                raise self._twice(file, gone, self.removed[gone])
            self.removed[gone] = file
        if file.new_path is not None:
            other = self.written.get(file.new_path)
            if other is None:
                other = self.removed.get(file.new_path)
                if other is not None and _may_replace(other, file):
                    other = None
            if other is not None:
                raise self._twice(file, file.new_path, other)
            self.written[file.new_path] = file

    def _twice(self, file: FilePatch, path: bytes, other: FilePatch) -> PatchFormatError:
        return self.source.error(
            file.line_number - 1,
            f"{display_path(path)} is changed twice in one patch, first at line"
            f" {other.line_number}",
            fix="merge the two sections, or split the patch",
        )

    # Hunks

    def hunks(self, at: int) -> tuple[tuple[Hunk, ...], int]:
        """Parse the hunks that begin at line ``at``; at least one is there."""
        hunks: list[Hunk] = []
        position = 0
        ended = ""
        while at < self.end and self.firsts[at] == _AT:
            hunk_at = at
            hunk, at, ends = self._hunk(at)
            begin = hunk.old_start - 1 if hunk.old_count else hunk.old_start
            if hunks:
                self._check_order(hunk_at, hunk, hunks[-1], begin, position)
            if ended:
                raise self.source.error(
                    hunk_at,
                    f"a hunk follows the one that reaches the end of the {ended} file"
                    " (a line without line end)",
                    fix=_FIX_COUNTS,
                )
            position = begin + hunk.old_count
            ended = ends
            hunks.append(hunk)
        self.hunk_count += len(hunks)
        if self.hunk_count > MAX_HUNKS:
            raise self.source.error(
                at - 1, f"more than {MAX_HUNKS} hunks", fix="split the patch into smaller ones"
            )
        return tuple(hunks), at

    def _check_order(
        self, index: int, hunk: Hunk, previous: Hunk, begin: int, position: int
    ) -> None:
        if begin > position or (begin == position and (hunk.old_count or previous.old_count)):
            return
        if hunk.old_start == previous.old_start and hunk.body == previous.body:
            what = "duplicate hunk"
        elif hunk.old_start < previous.old_start:
            what = "hunk is out of order: it begins before the one above it"
        else:
            what = "hunk overlaps the one above it"
        raise self.source.error(
            index, f"{what} (line {previous.line_number})", fix="regenerate the patch from git"
        )

    def _hunk(self, at: int) -> tuple[Hunk, int, str]:
        header = self.lines[at]
        old_start, old_count, new_start, new_count, section = self._hunk_header(at)
        begin = at + 1
        end = self.classes.find(b"X", begin)
        if end < 0:
            end = self.end
        kinds = self.firsts[begin:end]
        ends = ""
        if _BACKSLASH in kinds or _FEED in kinds:
            exact = False
        else:
            exact = self._has_counts(kinds, old_count, new_count)
            if not exact and self.lines[end - 1] == b"-- \n":
                # Most often the run of hunk lines is too long by the signature of the mail.
                exact = self._has_counts(kinds[:-1], old_count, new_count)
                if exact:
                    end -= 1
                    kinds = kinds[:-1]
        if exact:
            body = self.lines[begin:end]
            if not body[-1].endswith(b"\n"):
                raise self._cut_off(end - 1)
            content = [line[1:] for line in body]
        else:
            body, content, kinds, end, ends = self._careful_body(at, old_count, new_count)
        if b"+" not in kinds and b"-" not in kinds:
            raise self.source.error(at, "hunk changes nothing", fix=_FIX_COUNTS)
        hunk = Hunk(
            header,
            tuple(body),
            old_start,
            old_count,
            new_start,
            new_count,
            section,
            kinds,
            tuple(compress(content, kinds.translate(_IS_OLD))),
            tuple(compress(content, kinds.translate(_IS_NEW))),
            at + 1,
        )
        return hunk, end, ends

    @staticmethod
    def _has_counts(kinds: bytes, old_count: int, new_count: int) -> bool:
        length = len(kinds)
        return length - kinds.count(b"+") == old_count and length - kinds.count(b"-") == new_count

    def _hunk_header(self, at: int) -> tuple[int, int, int, int, bytes]:
        line = self.lines[at]
        if line.startswith(b"@@@"):
            raise self._combined(at)
        close = line.find(b" @@", 4)
        old, plus, new = line[4:close].partition(b" +")
        if not line.startswith(b"@@ -") or close < 0 or not plus or not line.endswith(b"\n"):
            raise self.source.error(
                at, f"malformed hunk header {self.source.shown(at)}", fix=_FIX_COUNTS
            )
        old_start, old_count = self._range(at, old)
        new_start, new_count = self._range(at, new)
        if not old_count and not new_count:
            raise self.source.error(at, "hunk is empty", fix=_FIX_COUNTS)
        return old_start, old_count, new_start, new_count, line[close + 3 : -1].removeprefix(b" ")

    def _range(self, at: int, text: bytes) -> tuple[int, int]:
        start, comma, count = text.partition(b",")
        if not start or (comma and not count) or (start + count).strip(_DIGITS):
            raise self.source.error(
                at, f"malformed hunk header {self.source.shown(at)}", fix=_FIX_COUNTS
            )
        if len(start) > _MAX_DIGITS or len(count) > _MAX_DIGITS:
            raise self.source.error(at, "line number of the hunk is out of range", fix=_FIX_COUNTS)
        first, length = int(start), int(count) if comma else 1
        if length and not first:
            raise self.source.error(at, "hunk starts at line 0 but has lines", fix=_FIX_COUNTS)
        return first, length

    def _careful_body(
        self, header: int, old_left: int, new_left: int
    ) -> tuple[list[bytes], list[bytes], bytes, int, str]:
        """The body line by line: with markers, with lost spaces, or with wrong counts.

        Returns:
            The body, the content of its lines, their kinds, the index after it, and which file
            it reaches the end of (``old``, ``new`` or neither).
        """
        body: list[bytes] = []
        content: list[bytes] = []
        kinds = bytearray()
        old_ended = new_ended = False
        at = header + 1
        while True:
            first = self.firsts[at] if at < self.end else 0
            line = self.lines[at] if at < self.end else b""
            if first == _BACKSLASH and kinds:
                if not line.startswith(b"\\ ") or not content[-1].endswith(b"\n"):
                    raise self.source.error(at, "misplaced '\\' line", fix=_FIX_COUNTS)
                if line.endswith(b"\r\n"):
                    raise self.source.converted(at)
                body[-1] += line
                content[-1] = content[-1][:-1]
                old_ended |= kinds[-1] != _PLUS
                new_ended |= kinds[-1] != _MINUS
                if (old_ended and old_left) or (new_ended and new_left):
                    raise self.source.error(
                        at, "a line without line end is not the last of its side", fix=_FIX_COUNTS
                    )
                at += 1
                continue
            if not old_left and not new_left:
                break
            # git and GNU diff accept an empty context line whose space an editor removed.
            kind = _SPACE if line == b"\n" else first
            if kind not in b" -+" or at >= self.end:
                raise self._too_short(header, at, old_left, new_left)
            if (kind != _PLUS and not old_left) or (kind != _MINUS and not new_left):
                raise self.source.error(
                    at,
                    f"line does not fit the counts of the hunk at line {header + 1}:"
                    f" {old_left} old and {new_left} new lines are left",
                    fix=_FIX_COUNTS,
                )
            if not line.endswith(b"\n"):
                raise self._cut_off(at)
            old_left -= kind != _PLUS
            new_left -= kind != _MINUS
            body.append(line)
            content.append(line[1:] if first != _FEED else line)
            kinds.append(kind)
            at += 1
        ends = "old" if old_ended else "new" if new_ended else ""
        return body, content, bytes(kinds), at, ends

    def _too_short(self, header: int, at: int, old_left: int, new_left: int) -> PatchFormatError:
        missing = (
            f"hunk at line {header + 1} states more lines than it has:"
            f" {old_left} old and {new_left} new lines are missing"
        )
        if at >= self.end:
            return self.source.error(
                max(at - 1, header), f"the patch is cut off; {missing}", fix="get the whole file"
            )
        if self.lines[at] == b"\r\n":
            return self.source.error(
                at,
                "an empty context line lost its leading space",
                fix="put the space back at the start of the line",
            )
        return self.source.error(at, missing, fix=_FIX_COUNTS)

    def _cut_off(self, at: int) -> PatchFormatError:
        return self.source.error(
            at,
            "the last line has no line end: the patch is cut off",
            fix="get the whole file, or add the missing line feed if it is complete",
        )

    def _combined(self, at: int) -> PatchFormatError:
        return self.source.error(
            at,
            "combined diff of a merge",
            fix="a merge cannot be a patch; make one against a single parent",
        )

    # Binary patches

    def binary(self, at: int) -> tuple[BinaryPatch, int]:
        """Parse a ``GIT binary patch`` whose first line is at ``at``."""
        start = at
        forward, at = self._binary_half(at + 1)
        reverse: BinaryHalf | None = None
        if at < self.end and self.lines[at].startswith((b"literal ", b"delta ")):
            reverse, at = self._binary_half(at)
        return BinaryPatch(tuple(self.lines[start:at]), forward, reverse), at

    def _binary_half(self, at: int) -> tuple[BinaryHalf, int]:
        from dsv4port.patch.binary import MAX_INFLATED_BYTES, decode_lines, inflate

        word, _, count = (self.lines[at] if at < self.end else b"").partition(b" ")
        if count.endswith(b"\r\n"):
            raise self.source.converted(at)
        digits = count.removesuffix(b"\n")
        if (
            word not in (b"literal", b"delta")
            or not digits
            or digits.strip(_DIGITS)
            or len(digits) > _MAX_DIGITS
            or digits == count
        ):
            raise self.source.error(
                min(at, self.end - 1),
                "binary patch without 'literal N' or 'delta N'",
                fix=_FROM_GIT,
            )
        size = int(digits)
        self.inflated += size
        if self.inflated > MAX_INFLATED_BYTES:
            raise self.source.error(
                at,
                f"binary content of more than {MAX_INFLATED_BYTES} bytes",
                fix="keep such files out of patches",
            )
        begin = at + 1
        end = begin
        while end < self.end and self.firsts[end] != _FEED:
            end += 1
        if end == self.end:
            raise self.source.error(
                end - 1, "binary patch is cut off: no blank line ends it", fix="get the whole file"
            )
        try:
            deflated = decode_lines(self.lines[begin:end])
        except ValueError as problem:
            what, index = problem.args
            raise self.source.error(begin + index, what, fix=_FROM_GIT) from None
        try:
            content = inflate(deflated, size)
        except ValueError as problem:
            raise self.source.error(at, str(problem), fix=_FROM_GIT) from None
        return BinaryHalf(BinaryMethod(word.decode("ascii")), size, content), end + 1

    # After the diff

    def _check_trailer(self, start: int, last: FilePatch) -> None:
        """Only blank lines, what format-patch adds, and one signature may follow the diff."""
        for at in range(start, self.end):
            line = self.lines[at]
            if line == b"\n" or line.startswith(_TRAILER_FIELDS):
                continue
            if line in (b"-- \n", b"-- ") or (line == b"--\n" and self._is_version(at + 1)):
                self._check_signature(at + 1)
                return
            raise self._garbage(at, start, last)

    def _is_version(self, at: int) -> bool:
        """Whether this is the git version of a signature whose ``-- `` lost its space."""
        rest = b"".join(self.lines[at:]).strip()
        return rest[:1].isdigit() and b"\n" not in rest and b"." in rest and b" " not in rest

    def _check_signature(self, start: int) -> None:
        for at in range(start, self.end):
            line = self.lines[at]
            if line.startswith(b"From "):
                raise self._second_mail(at)
            if self.firsts[at] in b" +-@\\" or line.startswith((b"diff ", b"Index: ")):
                raise self.source.error(
                    at,
                    f"line after the signature could belong to the diff: {self.source.shown(at)}",
                    fix="remove what follows the signature, or correct the hunk above it",
                )

    def _second_mail(self, at: int) -> PatchFormatError:
        return self.source.error(
            at,
            "a second mail starts here",
            fix="put each mail in a file of its own (git mailsplit)",
        )

    def _garbage(self, at: int, start: int, last: FilePatch) -> PatchFormatError:
        line = self.lines[at]
        if line.endswith(b"\r\n") and line.startswith((b"diff ", b"--- ", b"\r")):
            return self.source.converted(at)
        if line.startswith(b"From "):
            return self._second_mail(at)
        if line.startswith((b"diff --cc ", b"diff --combined ", b"@@@")):
            return self._combined(at)
        if line.startswith((b"diff --git ", b"--- ", b"Index: ")) and at > start:
            return self.source.error(
                at, "blank line inside the diff", fix="remove the blank lines between its sections"
            )
        if line.startswith((b"Binary files ", b"Files ", b"Only in ")):
            return self.source.error(
                at,
                f"a change that the diff does not hold: {self.source.shown(at)}",
                fix="make the patch with 'git diff --binary'",
            )
        if _starts_plain(self.source, at):
            return self._mixed(at)
        if at == start and self.firsts[at] in b" +-\\" and last.hunks:
            return self.source.error(
                at,
                f"hunk at line {last.hunks[-1].line_number} has more lines than it states",
                fix=_FIX_COUNTS,
            )
        return self.source.error(
            at,
            f"text after the diff: {self.source.shown(at)}",
            fix="remove it, or put it before the diff",
        )


class _GitSection:
    """One ``diff --git`` section: its extended header, then hunks, a binary patch or nothing."""

    def __init__(self, parser: _DiffParser, start: int) -> None:
        self.parser = parser
        self.source = parser.source
        self.start = start
        self.fields: dict[bytes, tuple[int, bytes]] = {}

    def parse(self) -> tuple[FilePatch, int]:
        parser, lines = self.parser, self.parser.lines
        first = lines[self.start]
        if first.endswith(b"\r\n"):
            raise self.source.converted(self.start)
        if not first.endswith(b"\n"):
            raise self._cut_off(self.start)
        at = self._read_fields(self.start + 1)
        change = self._change()
        old_path, new_path = self._paths(change)
        old_mode, new_mode = self._modes(change)
        old_id, new_id = self._ids(change)
        similarity = self._similarity(change)

        hunks: tuple[Hunk, ...] = ()
        binary: BinaryPatch | None = None
        line = lines[at] if at < parser.end else b""
        if line.startswith(b"--- ") and at + 1 < parser.end:
            self._check_names(at, old_path, new_path, change)
            at += 2
            header_end = at
            if at >= parser.end or not lines[at].startswith(b"@@"):
                raise self.source.error(
                    min(at, parser.end - 1), "no hunk after the file names", fix=_FROM_GIT
                )
            hunks, at = parser.hunks(at)
        elif line == b"GIT binary patch\n":
            header_end = at
            self._check_full_ids(at)
            binary, at = parser.binary(at)
        elif line.startswith((b"Binary files ", b"GIT binary patch")):
            if line.endswith(b"\r\n"):
                raise self.source.converted(at)
            raise self.source.error(
                at,
                "the content of a binary file is missing",
                fix="make the patch with 'git diff --binary --full-index'",
            )
        else:
            header_end = at
            if line.startswith(b"@@"):
                raise self.source.error(at, "hunk without file names above it", fix=_FROM_GIT)
        file = FilePatch(
            header=tuple(lines[self.start : header_end]),
            change=change,
            old_path=None if change is ChangeKind.ADD else old_path,
            new_path=None if change is ChangeKind.DELETE else new_path,
            old_mode=old_mode,
            new_mode=new_mode,
            old_id=old_id,
            new_id=new_id,
            similarity=similarity,
            hunks=hunks,
            binary=binary,
            line_number=self.start + 1,
        )
        parser.check_whole_file(file, self.start)
        self._check_complete(file)
        for path in {old_path, new_path}:
            self.source.check_path(self.start, path)
        return file, at

    def _read_fields(self, at: int) -> int:
        parser = self.parser
        while at < parser.end:
            line = parser.lines[at]
            for key in EXTENDED_HEADERS:
                if line.startswith(key):
                    break
            else:
                return at
            if line.endswith(b"\r\n") and not key.endswith((b"from ", b"to ")):
                raise self.source.converted(at)
            if not line.endswith(b"\n"):
                raise self._cut_off(at)
            if key in self.fields:
                raise self.source.error(at, f"second {key.decode().strip()!r} line", fix=_FROM_GIT)
            self.fields[key] = (at, line[len(key) : -1])
            at += 1
        return at

    def _cut_off(self, at: int) -> PatchFormatError:
        return self.source.error(
            at, "the header of the file section is cut off", fix="get the whole file"
        )

    def _fail(self, key: bytes, what: str) -> PatchFormatError:
        return self.source.error(self.fields[key][0], what, fix=_FROM_GIT)

    def _change(self) -> ChangeKind:
        fields = self.fields
        if not fields:
            return ChangeKind.MODIFY
        kinds = [kind for key, kind in _KIND_OF if key in fields]
        if not kinds:
            return ChangeKind.MODIFY
        if len(kinds) > 1:
            raise self.source.error(
                self.start,
                f"contradicting header: {' and '.join(kind.value for kind in kinds)} at once",
                fix=_FROM_GIT,
            )
        return kinds[0]

    def _paths(self, change: ChangeKind) -> tuple[bytes, bytes]:
        rest = self.parser.lines[self.start][11:].removesuffix(b"\n")
        if change in (ChangeKind.RENAME, ChangeKind.COPY):
            word = change.value.encode("ascii")
            old, new = self._field_path(word + b" from "), self._field_path(word + b" to ")
            if old == new:
                raise self._fail(word + b" to ", f"{change.value} of a path onto itself")
            if (b"a/" + old, b"b/" + new) not in _git_line_names(rest):
                raise self.source.error(
                    self.start,
                    f"the 'diff --git' line does not name the {change.value}'s paths",
                    fix=_FROM_GIT,
                )
            return old, new
        # The common case: the same unquoted name twice.
        middle = len(rest) // 2
        if (
            rest[:2] == b"a/"
            and rest[middle : middle + 3] == b" b/"
            and rest[2:middle] == rest[middle + 3 :]
            and b'"' not in rest
        ):
            return rest[2:middle], rest[2:middle]
        names = _git_line_names(rest)
        for old, new in names:
            if old[:2] == b"a/" and new[:2] == b"b/" and old[2:] == new[2:]:
                return old[2:], new[2:]
        for old, new in names:
            for path in (old, new):
                self.source.check_path(self.start, path)
        raise self.source.error(
            self.start,
            "the 'diff --git' line does not hold one name with the prefixes a/ and b/",
            fix="make the patch with git and its default prefixes"
            " (git diff --src-prefix=a/ --dst-prefix=b/)",
        )

    def _field_path(self, key: bytes) -> bytes:
        if key not in self.fields:
            raise self.source.error(self.start, f"no {key.decode().strip()!r} line", fix=_FROM_GIT)
        text = self.fields[key][1]
        try:
            return unquote(text)
        except ValueError as problem:
            raise self._fail(key, f"badly quoted name: {problem}") from None

    def _check_names(self, at: int, old_path: bytes, new_path: bytes, change: ChangeKind) -> None:
        """The ``---`` and ``+++`` lines must say what the header said."""
        lines = self.parser.lines
        if not lines[at + 1].startswith(b"+++ "):
            raise self.source.error(at + 1, "no '+++' line after the '---' line", fix=_FROM_GIT)
        old, _ = self.parser.file_name(at, b"a/")
        new, _ = self.parser.file_name(at + 1, b"b/")
        if old != (None if change is ChangeKind.ADD else old_path):
            raise self.source.error(at, self._contradiction(old, change), fix=_FROM_GIT)
        if new != (None if change is ChangeKind.DELETE else new_path):
            raise self.source.error(at + 1, self._contradiction(new, change), fix=_FROM_GIT)

    @staticmethod
    def _contradiction(name: bytes | None, change: ChangeKind) -> str:
        shown = "/dev/null" if name is None else display_path(name)
        return f"name {shown} contradicts the header above it (kind: {change.value})"

    def _mode(self, key: bytes) -> int | None:
        if key not in self.fields:
            return None
        text = self.fields[key][1]
        if text not in _MODES:
            raise self._fail(key, f"unsupported mode {display_path(text)}")
        return _MODES[text]

    def _modes(self, change: ChangeKind) -> tuple[int | None, int | None]:
        if not self.fields:
            return None, None
        old, new = self._mode(b"old mode "), self._mode(b"new mode ")
        if (old is None) != (new is None):
            key = b"old mode " if new is None else b"new mode "
            raise self._fail(key, "old and new mode must both be there")
        if old is not None and new is not None:
            if change in (ChangeKind.ADD, ChangeKind.DELETE):
                raise self._fail(b"old mode ", "mode change of a new or deleted file")
            if old == new or old & _FILE_TYPE != new & _FILE_TYPE:
                raise self._fail(b"new mode ", "mode lines do not state a change of permissions")
        of_index = self._index()[2]
        if of_index is not None and old is not None:
            raise self._fail(b"index ", "mode on the index line beside a mode change")
        if change is ChangeKind.ADD:
            new = self._mode(b"new file mode ")
        elif change is ChangeKind.DELETE:
            old = self._mode(b"deleted file mode ")
        elif old is None:
            return of_index, of_index
        if of_index is not None and of_index not in (old, new):
            raise self._fail(b"index ", "mode on the index line contradicts the header")
        return old, new

    def _index(self) -> tuple[bytes, bytes, int | None]:
        """The two ids as they are written, and the mode if there is one."""
        if b"index " not in self.fields:
            return b"", b"", None
        ids, space, mode = self.fields[b"index "][1].partition(b" ")
        old, dots, new = ids.partition(b"..")
        for text in (old, new):
            if not dots or not 4 <= len(text) <= 64 or text.strip(_HEX):
                raise self._fail(b"index ", "malformed index line")
        if space and mode not in _MODES:
            raise self._fail(b"index ", f"unsupported mode {display_path(mode)}")
        return old, new, _MODES[mode] if space else None

    def _ids(self, change: ChangeKind) -> tuple[str | None, str | None]:
        old, new, _ = self._index()
        old_id = old.decode("ascii") if old.strip(b"0") else None
        new_id = new.decode("ascii") if new.strip(b"0") else None
        if change is ChangeKind.ADD and old_id is not None:
            raise self._fail(b"index ", "a new file has an old id")
        if change is ChangeKind.DELETE and new_id is not None:
            raise self._fail(b"index ", "a deleted file has a new id")
        return old_id, new_id

    def _check_full_ids(self, at: int) -> None:
        old, new, _ = self._index()
        if len(old) not in (40, 64) or len(new) not in (40, 64):
            raise self.source.error(
                at,
                "binary patch without full ids on its index line",
                fix="make the patch with 'git diff --binary --full-index'",
            )

    def _similarity(self, change: ChangeKind) -> int | None:
        values = {}
        for key in (b"similarity index ", b"dissimilarity index "):
            if key in self.fields:
                text = self.fields[key][1]
                digits = text.removesuffix(b"%")
                if digits == text or not digits or len(digits) > 3 or digits.strip(_DIGITS):
                    raise self._fail(key, "malformed similarity")
                values[key] = int(digits)
                if values[key] > 100:
                    raise self._fail(key, "similarity of more than 100 %")
        similarity = values.get(b"similarity index ")
        if similarity is not None and change not in (ChangeKind.RENAME, ChangeKind.COPY):
            raise self._fail(b"similarity index ", "similarity without a rename or copy")
        return similarity

    def _check_complete(self, file: FilePatch) -> None:
        """A section without content must be one that needs none; else it was cut."""
        if file.hunks or file.binary is not None:
            if file.old_id is not None and file.old_id == file.new_id:
                raise self._fail(b"index ", "content changes but the ids are the same")
            return
        present = [id for id in (file.old_id, file.new_id) if id is not None]
        if file.change in (ChangeKind.ADD, ChangeKind.DELETE):
            whole = all(any(empty.startswith(id) for empty in _EMPTY_BLOB_IDS) for id in present)
        else:
            whole = not present and (
                file.change is not ChangeKind.MODIFY or file.old_mode != file.new_mode
            )
        if not whole:
            raise self.source.error(
                self.start,
                f"the section of {display_path(file.path)} has no content",
                fix="get the whole patch, or make it with 'git diff --binary --full-index'",
            )


_KIND_OF = (
    (b"new file mode ", ChangeKind.ADD),
    (b"deleted file mode ", ChangeKind.DELETE),
    (b"rename from ", ChangeKind.RENAME),
    (b"copy from ", ChangeKind.COPY),
)


def _git_line_names(rest: bytes) -> list[tuple[bytes, bytes]]:
    """Every way to read the two names of a ``diff --git`` line; unquoted spaces make several."""
    try:
        if rest.startswith(b'"'):
            old, end = unquote_prefix(rest)
            if rest[end : end + 1] != b" ":
                return []
            return [(old, unquote(rest[end + 1 :]))]
        if rest.endswith(b'"'):
            old, _, new = rest.partition(b' "')
            return [(old, unquote(b'"' + new))]
    except ValueError:
        return []
    if len(rest) > 2 * MAX_PATH_BYTES + len(b"a/ b/"):
        return []
    names = []
    at = rest.find(b" b/")
    while at >= 0:
        names.append((rest[:at], rest[at + 1 :]))
        at = rest.find(b" b/", at + 1)
    if not names and rest.count(b" ") == 1:
        old, _, new = rest.partition(b" ")
        names.append((old, new))
    return names


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


def _may_replace(gone: FilePatch, new: FilePatch) -> bool:
    """Whether git itself writes ``new`` at a path that ``gone`` takes away."""
    if gone.change is ChangeKind.RENAME:
        return new.change is not ChangeKind.MODIFY
    # A file that becomes a symlink is written as a deletion and an addition.
    return (
        new.change is ChangeKind.ADD
        and gone.old_mode is not None
        and new.new_mode is not None
        and gone.old_mode & _FILE_TYPE != new.new_mode & _FILE_TYPE
    )
