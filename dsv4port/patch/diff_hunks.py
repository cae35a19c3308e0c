"""Hunks: ``@@`` headers and bodies whose lines must be exactly as many as the header states."""

from __future__ import annotations

from itertools import compress

from dsv4port.errors import PatchFormatError
from dsv4port.patch.diff_advice import FIX_COUNTS, combined, cut_off
from dsv4port.patch.model import Hunk
from dsv4port.patch.source import Source

MAX_HUNKS = 1_000_000
"""Most hunks in one patch file."""

_SPACE, _MINUS, _PLUS, _BACKSLASH, _FEED, _AT = b" -+\\\n@"
# First bytes that can begin a line of a hunk stay, every other becomes X.
_BODY_OR_X = bytes(code if code in b" -+\\\n" else ord("X") for code in range(256))
_IS_OLD = bytes(code in b" -" for code in range(256))
_IS_NEW = bytes(code in b" +" for code in range(256))
_DIGITS = b"0123456789"
_MAX_DIGITS = 9


class HunkParser:
    """Parses the hunks of one patch file, and counts them."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines = source.lines
        self.firsts = source.firsts
        self.classes = source.firsts.translate(_BODY_OR_X)
        self.end = len(source.lines)
        self.count = 0

    def parse(self, at: int) -> tuple[tuple[Hunk, ...], int]:
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
                    fix=FIX_COUNTS,
                )
            position = begin + hunk.old_count
            ended = ends
            hunks.append(hunk)
        self.count += len(hunks)
        if self.count > MAX_HUNKS:
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
                raise cut_off(self.source, end - 1)
            content = [line[1:] for line in body]
        else:
            body, content, kinds, end, ends = self._careful_body(at, old_count, new_count)
        if b"+" not in kinds and b"-" not in kinds:
            raise self.source.error(at, "hunk changes nothing", fix=FIX_COUNTS)
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
            raise combined(self.source, at)
        close = line.find(b" @@", 4)
        old, plus, new = line[4:close].partition(b" +")
        if not line.startswith(b"@@ -") or close < 0 or not plus or not line.endswith(b"\n"):
            raise self.source.error(
                at, f"malformed hunk header {self.source.shown(at)}", fix=FIX_COUNTS
            )
        old_start, old_count = self._range(at, old)
        new_start, new_count = self._range(at, new)
        if not old_count and not new_count:
            raise self.source.error(at, "hunk is empty", fix=FIX_COUNTS)
        return old_start, old_count, new_start, new_count, line[close + 3 : -1].removeprefix(b" ")

    def _range(self, at: int, text: bytes) -> tuple[int, int]:
        start, comma, count = text.partition(b",")
        if not start or (comma and not count) or (start + count).strip(_DIGITS):
            raise self.source.error(
                at, f"malformed hunk header {self.source.shown(at)}", fix=FIX_COUNTS
            )
        if len(start) > _MAX_DIGITS or len(count) > _MAX_DIGITS:
            raise self.source.error(at, "line number of the hunk is out of range", fix=FIX_COUNTS)
        first, length = int(start), int(count) if comma else 1
        if length and not first:
            raise self.source.error(at, "hunk starts at line 0 but has lines", fix=FIX_COUNTS)
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
                    raise self.source.error(at, "misplaced '\\' line", fix=FIX_COUNTS)
                if line.endswith(b"\r\n"):
                    raise self.source.converted(at)
                body[-1] += line
                content[-1] = content[-1][:-1]
                old_ended |= kinds[-1] != _PLUS
                new_ended |= kinds[-1] != _MINUS
                if (old_ended and old_left) or (new_ended and new_left):
                    raise self.source.error(
                        at, "a line without line end is not the last of its side", fix=FIX_COUNTS
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
                    fix=FIX_COUNTS,
                )
            if not line.endswith(b"\n"):
                raise cut_off(self.source, at)
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
        return self.source.error(at, missing, fix=FIX_COUNTS)
