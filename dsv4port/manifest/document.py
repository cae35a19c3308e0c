"""A cursor that reads what a YAML file holds: which key, of which type, on which line.

Scalars have no types of their own: the getter that is asked decides, and refuses an unquoted word
that other YAML readers would not take for text. `yaml_gate` says which files come in at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from dsv4port.errors import BadInputError, ManifestError
from dsv4port.manifest.parsed import ParsedFiles
from dsv4port.manifest.scalars import Word, is_boolean, is_null
from dsv4port.manifest.values import FieldError, Name, nearest, shown, suggestion

MAX_BYTES = 16 * 1024 * 1024
"""Largest manifest that is read, in bytes."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BARE_SEGMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

E = TypeVar("E", bound=Enum)


class Document:
    """One YAML file: its name in messages, its text, and its content as plain Python values."""

    __slots__ = ("content", "label", "text")

    def __init__(self, label: str, text: str, content: object = None) -> None:
        self.label = label
        self.text = text
        if content is None:
            # Not at the top: most files are remembered, and need no parser.
            from dsv4port.manifest.yaml_gate import plain_values

            content = plain_values(label, text)
        self.content = content

    def line_of(self, path: tuple[str | int, ...]) -> int:
        """The line, from 1, on which the key or item at ``path`` begins."""
        from dsv4port.manifest.yaml_gate import line_of

        return line_of(self.text, path)


def load_document(path: Path, label: str, *, state: Path | None = None) -> Node:
    """Read a YAML file whose content must be a mapping.

    Parameters:
        label: the name of the file in messages.
        state: folder of the project's state, where parsed files are remembered.

    Raises:
        ManifestError: the file cannot be read or is outside of what the gate accepts.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(
            f"{label}:1: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    if state is None:
        return parse_document(data, label)
    parsed = ParsedFiles(state / "parsed", Word)
    content = parsed.find(label, data)
    root = parse_document(data, label, content=content)
    if content is None:
        parsed.keep(label, data, root.value)
    return root


def parse_document(data: bytes, label: str, *, content: object = None) -> Node:
    """Like :func:`load_document`, from bytes.

    Parameters:
        content: what the bytes are known to hold; None means that they have to be parsed.
    """
    if len(data) > MAX_BYTES:
        raise ManifestError(f"{label}:1: is larger than {MAX_BYTES // 1024**2} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(
            f"{label}:{line}: is not UTF-8 (byte 0x{data[error.start]:02x})",
            fix="save the file as UTF-8",
        ) from error
    document = Document(label, text, content)
    return Node(document, None, "", document.content).as_mapping()


class Node:
    """A cursor: one value of a document, and where it stands.

    The getters of a mapping remember which keys were asked for; :meth:`finish` then refuses
    the keys that nobody knows. All getters raise ManifestError.
    """

    __slots__ = ("_asked", "document", "key", "parent", "value")

    def __init__(
        self, document: Document, parent: Node | None, key: str | int, value: object
    ) -> None:
        self.document = document
        self.parent = parent
        self.key = key
        self.value = value
        self._asked: dict[str, None] | None = None

    # ---- the value itself

    def as_text(self) -> str:
        """The value as text. An unquoted word that could be something else is refused."""
        value = self.value
        if type(value) is str:
            return value
        if isinstance(value, Word):
            if is_null(value):
                raise self.failed("has no value, needs text")
            raise self.failed(
                f"must be text, but {shown(value)[1:-1]} without quotes is {_reading(value)} in "
                f"YAML; quote it: {shown(value)}"
            )
        raise self.failed(f"must be text, is a {_kind(value)}")

    def as_name(self) -> Name:
        """The value as a name."""
        with self.located():
            return Name(self.as_text())

    def as_integer(self) -> int:
        """The value as an integer in plain decimal."""
        value = self.value
        if isinstance(value, Word) and _INTEGER.fullmatch(value) is not None:
            return int(value)
        if isinstance(value, str):
            quotes = "" if isinstance(value, Word) else " in quotes"
            raise self.failed(
                f"must be a whole number in plain decimal, is {shown(str(value))}{quotes}"
            )
        raise self.failed(f"must be a whole number, is a {_kind(value)}")

    def as_boolean(self) -> bool:
        """The value as true or false; the other spellings of YAML 1.1 are refused."""
        value = self.value
        if isinstance(value, Word) and value in ("true", "false"):
            return value == "true"
        found = shown(str(value)) if isinstance(value, str) else f"a {_kind(value)}"
        raise self.failed(f"must be true or false, is {found}")

    def as_mapping(self) -> Node:
        """This node, whose value is a mapping."""
        if not isinstance(self.value, dict):
            raise self.failed(
                f"must be a mapping (`key: value` lines), is {_described(self.value)}"
            )
        return self

    def as_sequence(self) -> list[Node]:
        """One node per item."""
        value = self.value
        if not isinstance(value, list):
            raise self.failed(f"must be a list (`- item` lines), is {_described(value)}")
        return [Node(self.document, self, index, item) for index, item in enumerate(value)]

    @property
    def is_null(self) -> bool:
        """Whether the value is left out or null."""
        return isinstance(self.value, Word) and is_null(self.value)

    # ---- entries of a mapping that must be there

    def child(self, key: str) -> Node:
        """The node of a key that must be there."""
        found = self.optional(key)
        if found is None:
            raise self._missing(key)
        return found

    def _missing(self, key: str) -> ManifestError:
        assert isinstance(self.value, dict)
        others = [other for other in self.value if other not in (self._asked or ())]
        # A misspelt key is the usual reason; its line is where the fault is.
        near = nearest(key, others)
        if near:
            return self.failed(f"missing key `{key}`, found `{near[0]}` instead", at=near[0])
        return self.failed(f"missing key `{key}`")

    def text(self, key: str) -> str:
        """Text under ``key``."""
        return self.child(key).as_text()

    def name(self, key: str) -> Name:
        """A name under ``key``."""
        return self.child(key).as_name()

    def integer(self, key: str) -> int:
        """A whole number under ``key``."""
        return self.child(key).as_integer()

    def boolean(self, key: str) -> bool:
        """True or false under ``key``."""
        return self.child(key).as_boolean()

    def mapping(self, key: str) -> Node:
        """A mapping under ``key``."""
        return self.child(key).as_mapping()

    def sequence(self, key: str) -> list[Node]:
        """The items of a list under ``key``."""
        return self.child(key).as_sequence()

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts under ``key``."""
        return tuple(item.as_text() for item in self.sequence(key))

    def names(self, key: str) -> tuple[Name, ...]:
        """A list of names under ``key``."""
        return tuple(item.as_name() for item in self.sequence(key))

    def choice(self, key: str, kind: type[E]) -> E:
        """The member of an enum whose value stands under ``key``."""
        child = self.child(key)
        word = child.as_text()
        for member in kind:
            if member.value == word:
                return member
        known = [str(member.value) for member in kind]
        raise child.failed(
            f"is {shown(word)}, must be one of {', '.join(known)}{suggestion(word, known)}"
        )

    # ---- entries that may be left out or null

    def optional(self, key: str) -> Node | None:
        """The node of a key, None when the mapping lacks it."""
        asked = self._asked
        if asked is None:
            asked = self._asked = {}
        asked[key] = None
        assert isinstance(self.value, dict)
        value = self.value.get(key)
        return None if value is None else Node(self.document, self, key, value)

    def _filled(self, key: str) -> Node | None:
        found = self.optional(key)
        return None if found is None or found.is_null else found

    def optional_text(self, key: str) -> str | None:
        """Text under ``key``, or None."""
        found = self._filled(key)
        return None if found is None else found.as_text()

    def optional_name(self, key: str) -> Name | None:
        """A name under ``key``, or None."""
        found = self._filled(key)
        return None if found is None else found.as_name()

    def optional_integer(self, key: str) -> int | None:
        """A whole number under ``key``, or None."""
        found = self._filled(key)
        return None if found is None else found.as_integer()

    def optional_boolean(self, key: str, default: bool = False) -> bool:
        """True or false under ``key``, or the default."""
        found = self._filled(key)
        return default if found is None else found.as_boolean()

    def optional_mapping(self, key: str) -> Node | None:
        """A mapping under ``key``, or None."""
        found = self._filled(key)
        return None if found is None else found.as_mapping()

    def optional_sequence(self, key: str) -> list[Node]:
        """The items of a list under ``key``, or none."""
        found = self._filled(key)
        return [] if found is None else found.as_sequence()

    def optional_texts(self, key: str) -> tuple[str, ...]:
        """A list of texts under ``key``, or none."""
        return tuple(item.as_text() for item in self.optional_sequence(key))

    def optional_names(self, key: str) -> tuple[Name, ...]:
        """A list of names under ``key``, or none."""
        return tuple(item.as_name() for item in self.optional_sequence(key))

    def entries(self) -> Iterator[tuple[str, Node]]:
        """All entries of a mapping whose keys are data, such as pin names."""
        assert isinstance(self.value, dict)
        self._asked = dict.fromkeys(self.value)
        for key, value in self.value.items():
            yield key, Node(self.document, self, key, value)

    # ---- checks

    def require_format(self, expected: int, *, update: str) -> None:
        """Check the ``format`` key, which says how the rest is to be read.

        Parameters:
            update: what to do about an older format, for the ``fix`` of the error.
        """
        if self.optional("format") is None:
            raise self.failed("missing key `format`", fix=f"add `format: {expected}`")
        found = self.integer("format")
        if found == expected:
            return
        age, fix = ("newer", "upgrade dsv4port") if found > expected else ("older", update)
        raise self.child("format").failed(
            f"format {found} is {age} than what this dsv4port reads ({expected})", fix=fix
        )

    def finish(self) -> None:
        """Refuse keys that no getter has asked for."""
        value = self.value
        assert isinstance(value, dict)
        known = self._asked or {}
        if value.keys() <= known.keys():
            return
        unknown = next(key for key in value if key not in known)
        missing = [key for key in known if key not in value]
        raise self.failed(
            f"unknown key {shown(unknown)}, expected one of {', '.join(known)}"
            f"{suggestion(unknown, missing or known)}",
            at=unknown,
        )

    # ---- errors

    def failed(
        self, problem: str, *, fix: str | None = None, at: str | int | None = None
    ) -> ManifestError:
        """The error that says ``problem`` about this node.

        Parameters:
            at: key of the entry whose line is to be named instead of this node's own.
        """
        steps = self._steps()
        line = self.document.line_of(steps if at is None else (*steps, at))
        path = _spelled(steps)
        return ManifestError(
            f"{self.document.label}:{line}: {path + ': ' if path else ''}{problem}", fix=fix
        )

    def failed_value(self, error: BadInputError) -> ManifestError:
        """``error``, which the constructor of a value raised, with the place it comes from."""
        if not isinstance(error, FieldError):
            return self.failed(error.what, fix=error.fix)
        if isinstance(self.value, dict) and error.field in self.value:
            return self.child(error.field).failed(error.problem, fix=error.fix)
        return self.failed(error.what, fix=error.fix)

    def located(self) -> _Located:
        """A context in which BadInputError from values becomes ManifestError from here."""
        return _Located(self)

    def _steps(self) -> tuple[str | int, ...]:
        steps: list[str | int] = []
        node = self
        while node.parent is not None:
            steps.append(node.key)
            node = node.parent
        return tuple(reversed(steps))


class _Located:
    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, BadInputError) and not isinstance(error, ManifestError):
            raise self.node.failed_value(error) from error


def _spelled(steps: tuple[str | int, ...]) -> str:
    spelled = ""
    for step in steps:
        if isinstance(step, str) and _BARE_SEGMENT.fullmatch(step) is not None:
            spelled += f".{step}" if spelled else step
        else:
            spelled += f"[{step if isinstance(step, int) else shown(step)[1:-1]}]"
    return spelled


def _reading(word: str) -> str:
    if is_boolean(word):
        return "true or false"
    return "a merge sign" if word in ("<<", "=") else "a number"


def _kind(value: object) -> str:
    return "mapping" if isinstance(value, dict) else "list"


def _described(value: object) -> str:
    if isinstance(value, str):
        return "empty" if isinstance(value, Word) and is_null(value) else shown(str(value))
    return f"a {_kind(value)}"
