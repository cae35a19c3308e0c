"""What one source file defines, imports and calls, as values that do not depend on its path.

Facts are kept by blob id, so a file that is the same in ten pins is read once. Lines are 1-based.
Texts of annotations, defaults and values are source text with single spaces, cut at
:data:`TEXT_LIMIT` characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntFlag
from typing import Any, NamedTuple

TEXT_LIMIT = 160
"""Longest text that is kept of an expression."""


class SymbolKind(str, Enum):
    """What a symbol is."""

    FUNCTION = "function"
    """A function or method."""
    CLASS = "class"
    """A class."""
    VARIABLE = "variable"
    """A name assigned at module or class level; in a dataclass, a field."""
    ATTRIBUTE = "attribute"
    """An attribute that methods assign on ``self``."""
    OPERATOR = "operator"
    """An operator registered with PyTorch by a schema string."""


class Flag(IntFlag):
    """What is worth knowing of a symbol beyond its kind."""

    NONE = 0
    STATIC = 1
    """``@staticmethod``."""
    CLASS_METHOD = 2
    """``@classmethod``."""
    PROPERTY = 4
    """A property: read like an attribute."""
    ABSTRACT = 8
    """``@abstractmethod``."""
    OVERLOAD = 16
    """``@overload``: no definition of its own."""
    ANNOTATED = 32
    """A variable with an annotation: a field, where the class is a dataclass."""
    NO_INIT = 64
    """A field that the constructor does not take."""
    KEYWORD_ONLY = 128
    """A field that the constructor takes by keyword only."""
    KERNEL = 256
    """A Triton or CuTe kernel: launchers add keywords of their own."""
    PATCHED = 512
    """A decorator may give it another signature."""


class ParameterKind(str, Enum):
    """How an argument reaches a parameter."""

    POSITIONAL_ONLY = "p"
    """By position only."""
    NORMAL = "a"
    """By position or keyword."""
    VAR_POSITIONAL = "*"
    """``*args``."""
    KEYWORD_ONLY = "k"
    """By keyword only."""
    VAR_KEYWORD = "**"
    """``**kwargs``."""


class Parameter(NamedTuple):
    """One parameter; ``default`` and ``annotation`` are source text, None where there is none."""

    name: str
    kind: ParameterKind
    default: str | None = None
    annotation: str | None = None


class TypeSource(NamedTuple):
    """Where the type of a value can be read.

    ``origin``: ``A`` an annotation, ``S`` self, ``V`` a name, ``C`` the result of calling a name.
    ``base`` is that annotation or dotted name, ``path`` the attributes read from there.
    """

    origin: str
    base: str
    path: tuple[str, ...] = ()


class Symbol(NamedTuple):
    """One definition. ``body`` is a hash of its normalised lines, empty where there are none."""

    kind: SymbolKind
    line: int
    end: int
    flags: Flag = Flag.NONE
    parameters: tuple[Parameter, ...] = ()
    bases: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    annotation: str | None = None
    value: str | None = None
    source: TypeSource | None = None
    body: str = ""


class Imported(NamedTuple):
    """A name bound by an import. ``name`` is None for ``import module``."""

    module: str
    name: str | None
    level: int
    line: int


class Call(NamedTuple):
    """A call. ``callee`` is dotted text; ``?`` stands for an expression that has no name."""

    callee: str
    positional: int
    keywords: tuple[str, ...]
    star: bool
    double_star: bool
    line: int
    scope: str


class Facts(NamedTuple):
    """Everything known of one file.

    ``symbols`` by qualified name (``Class.method``); ``variants`` has the other definitions of
    names that are defined several times. ``inner`` are imports inside of functions, ``stars`` the
    modules of ``import *`` (module, level). ``includes`` are C++'s. ``readable`` is False where
    the file does not parse: then it proves nothing.
    """

    symbols: Mapping[str, Symbol]
    variants: Mapping[str, tuple[Symbol, ...]]
    imports: Mapping[str, Imported]
    inner: Mapping[str, Imported]
    stars: tuple[tuple[str, int], ...]
    includes: tuple[tuple[str, int], ...] = ()
    readable: bool = True


EMPTY = Facts({}, {}, {}, {}, ())
UNREADABLE = EMPTY._replace(readable=False)


def encode_facts(facts: Facts) -> list[Any]:
    """Facts as what JSON can hold."""
    return [
        {name: _symbol_row(one) for name, one in facts.symbols.items()},
        {name: [_symbol_row(one) for one in many] for name, many in facts.variants.items()},
        facts.imports, facts.inner, facts.stars, facts.includes, facts.readable,
    ]  # fmt: skip


def decode_facts(row: list[Any]) -> Facts:
    """Facts from what :func:`encode_facts` made."""
    symbols, variants, imports, inner, stars, includes, readable = row
    return Facts(
        {name: _symbol(one) for name, one in symbols.items()},
        {name: tuple(_symbol(one) for one in many) for name, many in variants.items()},
        {name: Imported(*one) for name, one in imports.items()},
        {name: Imported(*one) for name, one in inner.items()},
        tuple((module, level) for module, level in stars),
        tuple((path, line) for path, line in includes),
        readable,
    )


def encode_calls(calls: list[Call]) -> list[Any]:
    """Calls as what JSON can hold."""
    return [list(call) for call in calls]


def decode_calls(rows: list[Any]) -> tuple[Call, ...]:
    """Calls from what :func:`encode_calls` made."""
    return tuple(
        Call(callee, count, tuple(keywords), star, double, line, scope)
        for callee, count, keywords, star, double, line, scope in rows
    )


_KINDS = {kind.value[0]: kind for kind in SymbolKind}
_LETTERS = {kind: kind.value[0] for kind in SymbolKind}


def _symbol_row(symbol: Symbol) -> list[Any]:
    row: list[Any] = [
        _LETTERS[symbol.kind], symbol.line, symbol.end, int(symbol.flags),
        [[one.name, one.kind.value, one.default, one.annotation] for one in symbol.parameters],
        symbol.bases, symbol.decorators, symbol.annotation, symbol.value, symbol.source,
        symbol.body,
    ]  # fmt: skip
    while not row[-1]:
        row.pop()
    return row


_PARAMETER_KINDS = {kind.value: kind for kind in ParameterKind}
_FILL: list[Any] = ["", 0, 0, 0, (), (), (), None, None, None, ""]


def _symbol(row: list[Any]) -> Symbol:
    row += _FILL[len(row) :]
    kind, line, end, flags, parameters, bases, decorators, annotation, value, source, body = row
    return Symbol(
        _KINDS[kind], line, end, Flag(flags),
        tuple(
            Parameter(name, _PARAMETER_KINDS[how], default, noted)
            for name, how, default, noted in parameters
        ),
        tuple(bases), tuple(decorators), annotation, value,
        None if source is None else TypeSource(source[0], source[1], tuple(source[2])),
        body,
    )  # fmt: skip
