"""``GIT binary patch``: base85 lines, bounded inflation, and git's delta format, both ways.

Formats: git's Documentation/gitformat-pack ("deltified representation") and the line layout of
``git diff --binary``: a length letter, then base85 of at most 52 bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from dsv4port.errors import PatchFormatError
from dsv4port.patch.model import BinaryHalf, BinaryMethod

MAX_INFLATED_BYTES = 512 << 20
"""Most bytes that the binary halves of one patch may inflate to together."""

_LINE_BYTES = 52
_MAX_INSERT = 0x7F
_MAX_COPY = 0x10000


def decode_lines(lines: Sequence[bytes]) -> bytes:
    """The bytes that base85 lines (with their line feeds) hold.

    Raises:
        ValueError: a length letter, a line's length or a digit is wrong; ``args`` is the reason
            and the index of the line.
    """
    from base64 import b85decode  # only binary patches pay for this import

    decoded = []
    for index, line in enumerate(lines):
        letter = line[:1]
        if b"A" <= letter <= b"Z":
            length = letter[0] - 64
        elif b"a" <= letter <= b"z":
            length = letter[0] - 70
        else:
            raise ValueError("binary data line without a length letter", index)
        if not line.endswith(b"\n") or len(line) - 2 != (length + 3) // 4 * 5:
            raise ValueError("binary data line is not as long as its length letter says", index)
        try:
            decoded.append(b85decode(line[1:-1])[:length])
        except ValueError:
            raise ValueError("binary data line has a character that is no base85", index) from None
    return b"".join(decoded)


def encode_lines(data: bytes) -> list[bytes]:
    """``data`` as base85 lines with length letters, the inverse of :func:`decode_lines`."""
    from base64 import b85encode

    lines = []
    for start in range(0, len(data), _LINE_BYTES):
        piece = data[start : start + _LINE_BYTES]
        letter = len(piece) + (64 if len(piece) <= 26 else 70)
        lines.append(b"%c%s\n" % (letter, b85encode(piece, pad=True)))
    return lines


def inflate(deflated: bytes, size: int) -> bytes:
    """Inflate one zlib stream that must hold exactly ``size`` bytes; never produces more.

    Raises:
        ValueError: the stream is damaged, or is not exactly of that size.
    """
    stream = zlib.decompressobj()
    try:
        # One byte more than stated is enough to see that the statement is wrong.
        data = stream.decompress(deflated, size + 1)
    except zlib.error:
        raise ValueError("binary data is not a valid zlib stream") from None
    if len(data) != size or not stream.eof:
        raise ValueError(f"binary data does not inflate to the stated {size} bytes")
    if stream.unused_data:
        raise ValueError("binary data goes on after its zlib stream")
    return data


def _varint(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(delta) and shift < 64:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise PatchFormatError("binary delta is truncated", fix="regenerate the patch from git")


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """The content that ``delta`` makes of ``base``.

    Raises:
        PatchFormatError: the delta is malformed, too large, or made for a base of another size.
    """

    def refuse(reason: str) -> PatchFormatError:
        return PatchFormatError(f"binary delta {reason}", fix="regenerate the patch from git")

    base_size, at = _varint(delta, 0)
    result_size, at = _varint(delta, at)
    if base_size != len(base):
        raise refuse(f"is for a base of {base_size} bytes, not of {len(base)}")
    if result_size > MAX_INFLATED_BYTES:
        raise refuse(f"makes {result_size} bytes; at most {MAX_INFLATED_BYTES} are accepted")
    result = bytearray()
    end = len(delta)
    while at < end:
        operation = delta[at]
        at += 1
        if operation & 0x80:
            offset = size = 0
            for bit in range(7):
                if operation & 1 << bit:
                    if at >= end:
                        raise refuse("is truncated")
                    if bit < 4:
                        offset |= delta[at] << 8 * bit
                    else:
                        size |= delta[at] << 8 * (bit - 4)
                    at += 1
            size = size or _MAX_COPY
            if offset + size > base_size:
                raise refuse("copies from beyond its base")
            piece = base[offset : offset + size]
        elif operation:
            piece = delta[at : at + operation]
            at += operation
            if at > end:
                raise refuse("is truncated")
        else:
            raise refuse("uses a reserved operation")
        if len(result) + len(piece) > result_size:
            raise refuse("makes more than it states")
        result += piece
    if len(result) != result_size:
        raise refuse("makes less than it states")
    return bytes(result)


def apply_half(half: BinaryHalf, base: bytes) -> bytes:
    """The content that one half of a binary patch makes of ``base``.

    Raises:
        PatchFormatError: as :func:`apply_delta`.
    """
    return half.data if half.method is BinaryMethod.LITERAL else apply_delta(base, half.data)


def make_delta(base: bytes, new: bytes) -> bytes:
    """A correct, simple delta: the common start and end are copied, the middle is inserted."""
    limit = min(len(base), len(new))
    start = _common_prefix(base, new, limit)
    tail = _common_prefix(base[::-1], new[::-1], limit - start)

    def varint(value: int) -> bytes:
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)

    def copy(offset: int, size: int) -> bytes:
        out = bytearray()
        while size:
            step = min(size, _MAX_COPY)
            code, operands = 0x80, bytearray()
            # A size of exactly 0x10000 is written as no size bytes at all.
            for bit, byte in enumerate(
                offset.to_bytes(4, "little") + (step & 0xFFFF).to_bytes(3, "little")
            ):
                if byte:
                    code |= 1 << bit
                    operands.append(byte)
            out.append(code)
            out += operands
            offset += step
            size -= step
        return bytes(out)

    middle = new[start : len(new) - tail]
    inserts = b"".join(
        b"%c%s" % (len(piece), piece)
        for piece in (middle[i : i + _MAX_INSERT] for i in range(0, len(middle), _MAX_INSERT))
    )
    return (
        varint(len(base))
        + varint(len(new))
        + copy(0, start)
        + inserts
        + copy(len(base) - tail, tail)
    )


def _common_prefix(left: bytes, right: bytes, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def encode_half(half: BinaryHalf) -> list[bytes]:
    """The lines of one half of a ``GIT binary patch``, with the blank line that ends it."""
    head = b"%s %d\n" % (half.method.value.encode("ascii"), half.size)
    return [head, *encode_lines(zlib.compress(half.data)), b"\n"]


def literal_half(content: bytes) -> BinaryHalf:
    """A half that holds the whole content."""
    return BinaryHalf(BinaryMethod.LITERAL, len(content), content)


def delta_half(base: bytes, new: bytes) -> BinaryHalf:
    """A half that makes ``new`` of ``base``."""
    delta = make_delta(base, new)
    return BinaryHalf(BinaryMethod.DELTA, len(delta), delta)
