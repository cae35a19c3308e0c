"""RFC 2047 encoded words (``=?UTF-8?q?...?=``), read as ``git am`` reads them, written as git does.

The standard library's ``email`` package costs 20 ms to import and repairs what it reads; here a
word that cannot be decoded is an error.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, a2b_qp
from enum import Enum

_MAX_LINE = 76
_WORD_START = b"=?UTF-8?q?"
_FEED_AND_WORD_START = b"?=\n " + _WORD_START
_ALWAYS_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!*+-/")
_NEVER_PLAIN_IN_TEXT = (
    frozenset(b" \t\n\r=?_\x7f") | frozenset(range(0x20)) | frozenset(range(0x80, 0x100))
)
_UTF8_NAMES = frozenset((b"utf-8", b"utf8", b""))
# Python has codecs that are no charsets (rot13, punycode, unicode_escape, ...).
_CHARSETS = (
    *("us-ascii", "ascii", "iso-8859-", "iso8859-", "latin", "windows-", "cp", "koi8-", "mac"),
    *("gb", "big5", "shift_jis", "shift-jis", "sjis", "euc-", "iso-2022-", "ks_c_5601"),
    *("tis-620", "utf-16", "utf-32"),
)


class WordPlace(Enum):
    """Where an encoded word stands; it decides which bytes must be encoded."""

    TEXT = "text"
    """A Subject."""
    PHRASE = "phrase"
    """The name in a From header: only what RFC 2047, section 5 (3), allows stays as it is."""


def to_utf8(text: bytes, charset: bytes) -> bytes:
    """``text`` in UTF-8. Bytes declared as UTF-8 are not looked at, as in git.

    Raises:
        ValueError: the charset is unknown, or the text is not valid in it.
    """
    name = charset.strip(b'" \t').lower()
    if name in _UTF8_NAMES or (text.isascii() and name in (b"us-ascii", b"iso-8859-1")):
        return text
    try:
        codec = name.decode("ascii")
        if not codec.startswith(_CHARSETS):
            raise LookupError
        return text.decode(codec).encode("utf-8")
    except LookupError:
        raise ValueError("unknown charset") from None
    except UnicodeError:
        raise ValueError("text is not valid in the charset it declares") from None


def decode_base64(text: bytes) -> bytes:
    """Decode base64 strictly.

    Raises:
        ValueError: it is malformed.
    """
    digits = text.translate(None, b" \t\r\n")
    try:
        decoded = a2b_base64(digits)
    except Base64Error:
        raise ValueError("malformed base64") from None
    # a2b_base64 skips what it does not know; its output has as many bytes as good input promises.
    if len(digits) % 4 or len(decoded) != len(digits) // 4 * 3 - digits[-2:].count(b"="):
        raise ValueError("malformed base64")
    return decoded


def decode_words(value: bytes) -> bytes:
    """A header value with its encoded words decoded to UTF-8; white space between words drops.

    Text that merely looks like an encoded word stays as it is.

    Raises:
        ValueError: a word's charset or base64 is wrong.
    """
    if b"=?" not in value:
        return value
    out = []
    at = 0
    while True:
        start = value.find(b"=?", at)
        if start < 0:
            break
        between = value[at:start]
        if between.strip(b" \t\r\n") or at == 0:
            out.append(between)
        charset_end = value.find(b"?", start + 2)
        encoding = value[charset_end + 1 : charset_end + 3].lower()
        end = value.find(b"?=", charset_end + 3)
        if charset_end < 0 or end < 0 or encoding not in (b"q?", b"b?"):
            return value
        piece = value[charset_end + 3 : end]
        raw = a2b_qp(piece, header=True) if encoding == b"q?" else decode_base64(piece)
        # RFC 2231 allows a language after the charset.
        out.append(to_utf8(raw, value[start + 2 : charset_end].partition(b"*")[0]))
        at = end + 2
    out.append(value[at:])
    return b"".join(out)


def needs_words(text: bytes) -> bool:
    """Whether a header can hold ``text`` only as encoded words."""
    return not text.isascii() or b"=?" in text or any(code < 0x20 or code == 0x7F for code in text)


def encode_words(text: bytes, column: int, place: WordPlace) -> bytes:
    """``text`` as encoded words, folded at 76 columns; ``column`` is where the first one starts."""
    out = bytearray(_WORD_START)
    width = column + len(_WORD_START)
    at = 0
    while at < len(text):
        code = text[at]
        length = _character_length(text, at)
        if place is WordPlace.PHRASE:
            special = code not in _ALWAYS_PLAIN
        else:
            special = code in _NEVER_PLAIN_IN_TEXT
        cost = 3 * length if special else 1
        if width + cost + 2 > _MAX_LINE:
            out += _FEED_AND_WORD_START
            width = 1 + len(_WORD_START)
        if special:
            out += b"".join(b"=%02X" % byte for byte in text[at : at + length])
        else:
            out.append(code)
        width += cost
        at += length
    return bytes(out + b"?=")


def _character_length(text: bytes, at: int) -> int:
    """Bytes of the UTF-8 character at ``at``; 1 where there is no valid one."""
    code = text[at]
    length = 1 if code < 0xC2 else 2 if code < 0xE0 else 3 if code < 0xF0 else 4
    try:
        text[at : at + length].decode("utf-8")
    except UnicodeDecodeError:
        return 1
    return length
