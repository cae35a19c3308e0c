"""Names and text in the two foreign forms they need: git's C-quoting, and safe display.

Patch files hold odd names in C-quotes. Terminals and JSON need every name and message in a form
that cannot move the cursor, hide text or break the encoding.
"""

from __future__ import annotations

_NAMED = {
    0x07: b"\\a",
    0x08: b"\\b",
    0x09: b"\\t",
    0x0A: b"\\n",
    0x0B: b"\\v",
    0x0C: b"\\f",
    0x0D: b"\\r",
    0x22: b'\\"',
    0x5C: b"\\\\",
}
_ESCAPED = {code: _NAMED.get(code, b"\\%03o" % code) for code in (*range(0x20), 0x22, 0x5C, 0x7F)}
_NON_ASCII = {code: b"\\%03o" % code for code in range(0x80, 0x100)}
_UNESCAPED = {escape[1]: code for code, escape in _NAMED.items()}
_OCTAL = b"01234567"
# Longer than any path in quotes; it keeps the search for the closing quote linear.
_MAX_QUOTED = 1 << 15


def quote(name: bytes, *, non_ascii: bool = True) -> bytes:
    """The form git writes a name in: unchanged, or in double quotes with C escapes.

    Parameters:
        name: the bytes as they are in a tree.
        non_ascii: whether bytes above 0x7f are a reason to quote (``core.quotePath``).
    """
    table = {**_ESCAPED, **_NON_ASCII} if non_ascii else _ESCAPED
    if not any(code in table for code in name):
        return name
    return b'"%s"' % b"".join(table.get(code) or bytes((code,)) for code in name)


def unquote_prefix(text: bytes) -> tuple[bytes, int]:
    """Read the C-quoted name that ``text`` begins with.

    Returns:
        The name, and the index of the first byte after its closing quote.

    Raises:
        ValueError: there is no opening or closing quote, or an escape git does not know.
    """
    if not text.startswith(b'"'):
        raise ValueError("no opening quote")
    text = text[:_MAX_QUOTED]
    name = bytearray()
    at = 1
    while True:
        quote_at = text.find(b'"', at)
        escape_at = text.find(b"\\", at, quote_at if quote_at >= 0 else None)
        if escape_at < 0:
            if quote_at < 0:
                raise ValueError("no closing quote")
            name += text[at:quote_at]
            return bytes(name), quote_at + 1
        name += text[at:escape_at]
        code = text[escape_at + 1 : escape_at + 2]
        if code and code[0] in _UNESCAPED:
            name.append(_UNESCAPED[code[0]])
            at = escape_at + 2
            continue
        digits = text[escape_at + 1 : escape_at + 4]
        if len(digits) != 3 or digits.strip(_OCTAL) or digits[0] not in b"0123":
            raise ValueError("unknown escape")
        name.append(int(digits, 8))
        at = escape_at + 4


def unquote(text: bytes) -> bytes:
    """The name that ``text`` stands for: C-quoted or plain.

    Raises:
        ValueError: it begins with a quote but is not one well-formed quoted name.
    """
    if not text.startswith(b'"'):
        return text
    name, end = unquote_prefix(text)
    if end != len(text):
        raise ValueError("text after the closing quote")
    return name


def display_path(path: bytes) -> str:
    """A name for people and JSON: as it is when harmless, else in C-quotes.

    Harmless is printable UTF-8 without quotes and backslashes. Everything else (control bytes,
    invisible and direction-changing characters, bytes that are not UTF-8) becomes octal escapes.
    """
    text = path.decode("utf-8", "surrogateescape")
    if text and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    shown = []
    for character in text:
        raw = character.encode("utf-8", "surrogateescape")
        if raw[0] < 0x80:
            shown.append(_ESCAPED.get(raw[0], raw).decode("ascii"))
        elif character.isprintable():
            shown.append(character)
        else:
            shown.extend(f"\\{code:03o}" for code in raw)
    return '"' + "".join(shown) + '"'


def display_text(text: bytes) -> str:
    """Text for people and JSON: line feeds and tabs stay, other control characters are spelled.

    Escape sequences, carriage returns, invisible and direction-changing characters appear as
    ``\\x1b`` or ``\\u202e``, bytes that are not UTF-8 as ``\\xff``.
    """
    shown = text.decode("utf-8", "backslashreplace")
    if shown.isprintable():
        return shown
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape").decode("ascii")
        for character in shown
    )
