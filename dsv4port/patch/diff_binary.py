"""The ``GIT binary patch`` of a section: one half or two, inflated within a budget."""

from __future__ import annotations

from dsv4port.patch.diff_advice import FROM_GIT
from dsv4port.patch.model import BinaryHalf, BinaryMethod, BinaryPatch
from dsv4port.patch.source import Source

_FEED = ord("\n")
_DIGITS = b"0123456789"
_MAX_DIGITS = 9


class BinaryParser:
    """Parses the binary patches of one patch file; what they inflate to counts together."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines = source.lines
        self.firsts = source.firsts
        self.end = len(source.lines)
        self.inflated = 0

    def parse(self, at: int) -> tuple[BinaryPatch, int]:
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
                fix=FROM_GIT,
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
            raise self.source.error(begin + index, what, fix=FROM_GIT) from None
        try:
            content = inflate(deflated, size)
        except ValueError as problem:
            raise self.source.error(at, str(problem), fix=FROM_GIT) from None
        return BinaryHalf(BinaryMethod(word.decode("ascii")), size, content), end + 1
