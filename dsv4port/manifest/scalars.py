"""Single words of YAML: which unquoted ones readers disagree about, and how to write text safely.

Unquoted words have types in YAML, and 1.1 and 1.2 disagree about some of them (``on``, ``1e5``,
``1:30``). Manifests give such words no meaning of their own: what is text must be quoted, so
that every YAML reader sees the same text. Dates are no reason to quote; they stay text.
"""

from __future__ import annotations

import re

_NULL = r"~|null|Null|NULL|"
_BOOLEAN = r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
_NUMBER = (
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[-+]?0x[0-9a-fA-F_]+|0o[0-7]+|[-+]?0b[01_]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# The last two are "merge here" and "default value" in YAML 1.1.
_TYPED = re.compile(rf"(?:{_NULL}|{_BOOLEAN}|{_NUMBER}|<<|=)")
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./+@-]*(?: [A-Za-z0-9_./+@-]+)*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")

_TYPED_STARTS = frozenset("+-.0123456789~nNtTfFyYoO<=")


class Word(str):
    """An unquoted scalar that some YAML reader takes for a number, a boolean, null or a merge."""

    __slots__ = ()


def is_typed(word: str) -> bool:
    """Whether some YAML reader takes the unquoted word for something else than text."""
    if not word:
        return True
    # Most words stop at the first letter; the expression is for those that do not.
    return word[0] in _TYPED_STARTS and _TYPED.fullmatch(word) is not None


def is_null(word: str) -> bool:
    """Whether an unquoted word stands for "no value"."""
    return word in ("", "~", "null", "Null", "NULL")


def is_boolean(word: str) -> bool:
    """Whether some YAML reader takes the unquoted word for true or false."""
    return re.fullmatch(_BOOLEAN, word) is not None


def write_text(text: str) -> str:
    """``text`` as one YAML word on one line: bare where every reader agrees, else quoted."""
    if _PLAIN.fullmatch(text) and not is_typed(text) and not _DATE.match(text):
        return text
    if text.isprintable() and "\ufeff" not in text:
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escape(character) for character in text) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
