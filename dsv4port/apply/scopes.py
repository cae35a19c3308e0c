"""The qualified scope (module, class, function) of each line of a source file.

A hunk may only land where its lines sit in the scope that they had in the base. This module says
what that scope is; :mod:`dsv4port.apply.hunks` compares. A scope is either known or unknown
(``None``): code that does not parse, and everything whose nesting such code could have shifted,
is unknown. Nothing is guessed.

    scopes = scope_map(b"vllm/config.py", content)      # None: no grammar for this file
    scopes.scope_of_line(120)                           # Scope, or None: unknown
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_MAPPED_BYTES = 8 * 1024 * 1024
"""Files over this size get no scope map (a bound on the time and memory of one parse)."""


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


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a line is: the path of definitions around it, outermost first; empty at top level."""

    steps: tuple[ScopeStep, ...] = ()
    separator: str = "."

    @property
    def name(self) -> str:
        """For people: ``module level``, ``Outer.Inner.method`` or ``outer.<locals>.inner``."""
        raise NotImplementedError


class ScopeMap:
    """The scopes of one version of a file; parsed at the first question."""

    def scope_of_line(self, line: int) -> Scope | None:
        """The scope of the first non-blank character of ``line`` (1-based); None is unknown."""
        raise NotImplementedError


def scope_map(path: bytes, content: bytes) -> ScopeMap | None:
    """The scopes of ``content``, or None where no grammar serves this path or size."""
    raise NotImplementedError


def same_scope(old: Scope, new: Scope) -> bool:
    """Whether ``new`` is proven to be the scope that ``old`` was in another version of the file."""
    raise NotImplementedError
