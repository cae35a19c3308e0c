"""The qualified scope (module, class, function) of each line of a source file.

A hunk may only land where its lines sit in the scope that they had in the base. This module says
what that scope is; :mod:`dsv4port.apply.hunks` compares. A scope is either known or unknown
(``None``): code that does not parse, and everything whose nesting such code could have shifted,
is unknown. Nothing is guessed.

    scopes = scope_map(b"vllm/config.py", content)      # None: no grammar for this file
    scopes.scope_of_line(120)                           # Scope, or None: unknown

A definition begins with its decorators, attributes or template header, so those lines belong to
it; blank lines and comments between definitions belong to what is around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache

from dsv4port.apply.languages import Language, Layout, language_of
from dsv4port.patch.quote import display_text
from dsv4port.quick_dataclass import dataclass

MAX_MAPPED_BYTES = 8 * 1024 * 1024
"""Files over this size get no scope map (a bound on the time and memory of one parse)."""

_KEPT_MAPS = 16
_LABEL_LENGTH = 100


class ScopeKind(Enum):
    """What opens a scope."""

    NAMESPACE = "namespace"
    """A C++ namespace, ``extern "C"``, a Rust module or impl block: may be opened repeatedly."""
    CLASS = "class"
    """A class, struct, union, enum or trait with a body."""
    FUNCTION = "function"
    """A function, method or kernel, its decorators and signature included."""
    MACRO = "macro"
    """A block that a macro heads, such as ``TORCH_LIBRARY(_C, m) { ... }``."""
    VARIABLE = "variable"
    """An assignment at module or class level that spans several lines, such as a registry."""


@dataclass(frozen=True, slots=True)
class ScopeStep:
    """One level of a scope path.

    ``signature`` is what tells definitions of the same name apart: decorators, parameters and
    the conditions (``if``/``#if``) around it, white space normalised. ``namesakes`` counts the
    definitions of the name at this level, ``twins`` those that share the signature too, and
    ``ordinal`` (1-based) says which of the twins this is.
    """

    kind: ScopeKind
    name: str
    signature: str = ""
    namesakes: int = 1
    twins: int = 1
    ordinal: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.ordinal <= self.twins <= self.namesakes:
            raise ValueError(f"no such definition of {self.name!r}")

    @property
    def label(self) -> str:
        """What tells this definition from its namesakes, for people; empty if it has none."""
        if self.namesakes == 1:
            return ""
        number = f"; {self.ordinal} of {self.twins}" if self.twins > 1 else ""
        text = self.signature
        if len(text) > _LABEL_LENGTH:
            text = text[: _LABEL_LENGTH - 3] + "..."
        return f" [{text}{number}]"

    def is_same(self, new: ScopeStep) -> bool:
        """Whether ``new`` is proven to be this definition in another version of its level."""
        if self.kind is not new.kind or self.name != new.name:
            return False
        if self.namesakes == new.namesakes == 1:
            return True
        return (self.signature, self.twins, self.ordinal) == (
            new.signature,
            new.twins,
            new.ordinal,
        )


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a line is: the path of definitions around it, outermost first; empty at top level."""

    steps: tuple[ScopeStep, ...] = ()
    separator: str = "."

    @property
    def name(self) -> str:
        """For people: ``module level``, ``Outer.Inner.method`` or ``outer.<locals>.inner``."""
        if not self.steps:
            return "module level"
        parts: list[str] = []
        for index, step in enumerate(self.steps):
            parts.append(step.name)
            if step.kind is ScopeKind.FUNCTION and index + 1 < len(self.steps):
                parts.append("<locals>")
        return self.separator.join(parts)

    def __str__(self) -> str:
        """The name, and what tells it from definitions of the same name."""
        return self.name + "".join(step.label for step in self.steps)


def same_scope(old: Scope, new: Scope) -> bool:
    """Whether ``new`` is proven to be the scope that ``old`` was in another version of the file.

    Every step must have the same kind and name. A name that is defined once at its level in both
    versions proves itself, even with another signature. A name that either version defines
    several times must also have the same signature, and the same place among as many twins.
    """
    return len(old.steps) == len(new.steps) and all(
        before.is_same(after) for before, after in zip(old.steps, new.steps, strict=True)
    )


def one_line(text: bytes) -> str:
    """Source text on one line, with single spaces, fit to be shown and compared."""
    return display_text(b" ".join(text.split()))


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as a reader of some layout finds it, before it has its place in a path.

    ``parent`` is the index of the enclosing definition, None at top level. ``known`` is False
    where an error makes its nesting unsure. ``first`` and ``last`` are 0-based rows.
    """

    kind: ScopeKind
    name: str
    signature: str
    parent: int | None
    known: bool
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Outline:
    """The definitions of a file, each after the one that encloses it, and its unsure rows.

    ``unknown`` holds ranges of 0-based rows with ``first`` and ``last`` inclusive.
    """

    definitions: Sequence[Definition]
    unknown: Sequence[tuple[int, int]]


class ScopeMap:
    """The scopes of one version of a file; parsed at the first question."""

    __slots__ = ("_content", "_language", "_rows", "_scopes", "_spans")

    def __init__(self, language: Language, content: bytes) -> None:
        self._language = language
        self._content: bytes | None = content
        self._rows: list[int] = []
        self._scopes: list[Scope | None] = []
        self._spans: list[tuple[int, int]] = []

    def scope_of_line(self, line: int) -> Scope | None:
        """The scope of the first non-blank character of ``line`` (1-based); None is unknown.

        Raises:
            IndexError: the file has no such line.
        """
        index = self._row(line)
        return self._scopes[index]

    def lines_of_scope(self, line: int) -> tuple[int, int] | None:
        """First and last line of the innermost definition around ``line``, None at top level."""
        index = self._row(line)
        return self._spans[index] if index > 1 else None

    def definitions(self) -> Iterator[tuple[Scope | None, int, int]]:
        """Every definition, outer before inner: its scope (None: unknown), first and last line."""
        self._read()
        for index in range(2, len(self._scopes)):
            yield (self._scopes[index], *self._spans[index])

    def _read(self) -> None:
        if self._content is not None:
            self._build(self._content)
            self._content = None

    def _row(self, line: int) -> int:
        self._read()
        if line < 1:
            raise IndexError(line)
        return self._rows[line - 1]

    def _build(self, content: bytes) -> None:
        count = content.count(b"\n") + (not content.endswith(b"\n"))
        outline = _outline(self._language, content)
        # Index 0 is "unknown", 1 is the top level, then the definitions.
        self._scopes = [None, Scope((), self._language.separator)]
        self._spans = [(1, count), (1, count)]
        rows = [1] * count
        steps = _steps(outline.definitions)
        for index, found in enumerate(outline.definitions, 2):
            parent = self._scopes[1 if found.parent is None else found.parent + 2]
            step = steps[index - 2]
            known = step is not None and parent is not None
            self._scopes.append(
                Scope((*parent.steps, step), parent.separator)
                if step is not None and parent is not None
                else None
            )
            self._spans.append((found.first + 1, found.last + 1))
            size = found.last + 1 - found.first
            rows[found.first : found.last + 1] = [index if known else 0] * size
        for first, last in outline.unknown:
            rows[first : last + 1] = [0] * (last + 1 - first)
        del rows[count:]
        self._rows = rows


def _steps(definitions: Sequence[Definition]) -> list[ScopeStep | None]:
    """The step of each definition, None where it is unknown; counts namesakes and twins."""
    levels: list[int] = []
    reopened: dict[tuple[int, str], int] = {}
    for index, found in enumerate(definitions):
        level = index
        if found.kind is ScopeKind.NAMESPACE:
            # All blocks of one namespace are one level.
            above = -1 if found.parent is None else levels[found.parent]
            level = reopened.setdefault((above, found.name), index)
        levels.append(level)
    keys = [
        (-1 if found.parent is None else levels[found.parent], found.name) for found in definitions
    ]
    # A definition in unsure surroundings may be a namesake of any other.
    unsure = Counter(found.name for found in definitions if not found.known)
    namesakes: Counter[tuple[int, str]] = Counter()
    twins: Counter[tuple[int, str, str]] = Counter()
    for found, key in zip(definitions, keys, strict=True):
        if found.known and found.kind is not ScopeKind.NAMESPACE:
            namesakes[key] += 1
            level, name = key
            twins[level, name, found.signature] += 1
    seen: Counter[tuple[int, str, str]] = Counter()
    steps: list[ScopeStep | None] = []
    for found, key in zip(definitions, keys, strict=True):
        if not found.known:
            steps.append(None)
        elif found.kind is ScopeKind.NAMESPACE:
            steps.append(ScopeStep(found.kind, found.name))
        else:
            twin = (key[0], found.name, found.signature)
            seen[twin] += 1
            steps.append(
                ScopeStep(
                    found.kind,
                    found.name,
                    found.signature,
                    namesakes[key] + unsure[found.name],
                    twins[twin],
                    seen[twin],
                )
            )
    return steps


def _outline(language: Language, content: bytes) -> Outline:
    if language.layout is Layout.BRACES:
        from dsv4port.apply.brace_outline import outline

        return outline(language, content)
    from dsv4port.apply.tree_outline import outline

    return outline(language, content)


@lru_cache(maxsize=_KEPT_MAPS)
def _kept_map(language: Language, content: bytes) -> ScopeMap:
    return ScopeMap(language, content)


def scope_map(path: bytes, content: bytes) -> ScopeMap | None:
    """The scopes of ``content``, or None where no grammar serves this path or size."""
    language = language_of(path)
    if language is None or len(content) > MAX_MAPPED_BYTES:
        return None
    return _kept_map(language, content)
