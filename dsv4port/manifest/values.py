"""What a single value in a manifest may look like: names, ids, hashes, paths, PR references.

The value classes of this room check their fields with these functions in their constructors,
so a value built by hand in Python is held to the same rules as one that was read from a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dsv4port.errors import BadInputError
from dsv4port.patch.paths import unsafe_reason
from dsv4port.patch.quote import display_path

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATCH_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*\.(?:patch|diff)")

MAX_SHOWN = 60
"""How much of a wrong value a message repeats, in characters."""

PullRequest = int | str
"""A pull request: its number in the vLLM repository, or the URL of one elsewhere."""


class FieldError(BadInputError):
    """A field of a value is wrong; the reader of a file adds where it stands.

    Parameters:
        field: the name of the field.
        what: what is wrong with it, to be read after the name.
        row: index of the wrong item where the field is a list of rows.
    """

    def __init__(self, field: str, what: str, *, row: int | None = None) -> None:
        super().__init__(f"`{field}` {what}")
        self.field = field
        self.problem = what
        self.row = row


class Name(str):
    """The name of a pin, patchset, stack or target; safe as a file name and in a git ref.

    Raises:
        BadInputError: the text is no such name.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Name:
        if isinstance(text, cls):
            return text
        problem = name_problem(text)
        if problem is not None:
            raise BadInputError(
                f"{shown(text)} is not a name: {problem}",
                fix="see `dsv4port list` for the names there are",
            )
        return super().__new__(cls, text)


def name_problem(text: str) -> str | None:
    """Why ``text`` is no valid :class:`Name`, or None when it is one."""
    if _NAME.fullmatch(text) is None:
        return (
            "a name has lower-case letters, digits, `.`, `_` and `-`, starts with a letter or "
            "digit, and has at most 100 characters"
        )
    if ".." in text or text.endswith((".", ".lock")):
        return "a name has no `..` and does not end in `.` or `.lock` (git refuses such refs)"
    return None


def shown(value: object) -> str:
    """``value`` as a message repeats it: quoted, escaped, and cut after 60 characters."""
    text = value if isinstance(value, str) else repr(value)
    if len(text) > MAX_SHOWN:
        text = text[:MAX_SHOWN] + "…"
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def check_name(field: str, value: str) -> None:
    """Raise FieldError unless ``value`` is a valid name."""
    if type(value) is not Name:
        problem = name_problem(value)
        if problem is not None:
            raise FieldError(field, f"is {shown(value)}, which is not a name: {problem}")


def check_object_id(field: str, value: str | None) -> None:
    """Raise FieldError unless ``value`` is a full git object id, or None."""
    if value is not None and _OBJECT_ID.fullmatch(value) is None:
        raise FieldError(
            field,
            f"must be a full git object id (40 or 64 lower-case hex digits), is {shown(value)}",
        )


def check_sha256(field: str, value: str | None) -> None:
    """Raise FieldError unless ``value`` is a SHA-256 in lower-case hex, or None."""
    if value is not None and _SHA256.fullmatch(value) is None:
        raise FieldError(field, f"must be a sha256 (64 lower-case hex digits), is {shown(value)}")


def check_filled(field: str, value: str) -> None:
    """Raise FieldError when ``value`` is empty or only blanks."""
    if not value.strip():
        raise FieldError(field, "must not be empty")


def check_tree_path(field: str, path: bytes) -> None:
    """Raise FieldError unless ``path`` stays inside a tree and out of any ``.git``."""
    reason = unsafe_reason(path)
    if reason is not None:
        raise FieldError(field, f"is {shown(display_path(path))}, which {reason}")


def check_relative_path(field: str, path: str) -> None:
    """Like :func:`check_tree_path` for text; backslashes are refused too."""
    if "\\" in path:
        raise FieldError(field, f"is {shown(path)}; write paths with `/`")
    check_tree_path(field, path.encode())


def check_patch_file(field: str, file: str) -> None:
    """Raise FieldError unless ``file`` is the plain name of a patch file."""
    if _PATCH_FILE.fullmatch(file) is None:
        raise FieldError(
            field,
            f"names {shown(file)}; a patch file lies in the folder of its series, and its name "
            "has letters, digits, `.`, `_`, `-`, `+` and `@` and ends in .patch or .diff",
        )


def check_pull_requests(field: str, references: Iterable[PullRequest]) -> None:
    """Raise FieldError unless each reference is a positive number or an ``https://`` URL."""
    for reference in references:
        if isinstance(reference, int):
            valid = reference > 0 and not isinstance(reference, bool)
        else:
            valid = re.fullmatch(r"https://[^\s/]+/\S+", reference) is not None
        if not valid:
            raise FieldError(
                field, f"holds {shown(reference)}; a pull request is a number or an https:// URL"
            )


def check_unique(field: str, items: Iterable[object]) -> None:
    """Raise FieldError when an item occurs twice."""
    seen: set[object] = set()
    for item in items:
        if item in seen:
            raise FieldError(field, f"names {shown(str(item))} twice")
        seen.add(item)


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """At most two of the known words that ``word`` may be a misspelling of, nearest first."""
    import difflib

    return difflib.get_close_matches(word[:100], list(known), n=2, cutoff=0.7)


def suggestion(word: str, known: Iterable[str]) -> str:
    """``, did you mean `x`?`` for the nearest of the known words, else an empty string."""
    near = " or ".join(f"`{match}`" for match in nearest(word, known))
    return f", did you mean {near}?" if near else ""
