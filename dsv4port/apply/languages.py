"""The languages whose scopes are read, as data.

``query`` is a tree-sitter query. A match captures a definition under the name of its
:class:`~dsv4port.apply.scopes.ScopeKind` (``@function``, ``@class``, ...), its name under
``@name`` and, for languages with braces, its body under ``@body``. ``@plain`` marks braces that
open no scope. A definition without ``@name`` is named by its header.
"""

from __future__ import annotations

from enum import Enum

from dsv4port.quick_dataclass import dataclass


class Layout(Enum):
    """How a language shows nesting, which decides how far a syntax error reaches."""

    INDENTATION = "indentation"
    """By columns: after an error, a definition at an outer column is sure again."""
    TREE = "tree"
    """By the syntax tree alone: an error makes everything around it unknown."""
    BRACES = "braces"
    """By braces that are counted apart from the parser, which macros and ``#if`` often defeat."""


@dataclass(frozen=True, slots=True)
class Language:
    """One grammar: the distribution that holds it, and how its definitions are found."""

    name: str
    distribution: str
    layout: Layout
    separator: str
    query: str
    noise: str = ""
    """For BRACES: a regular expression of what is blanked before the grammar sees the text."""

    @property
    def module(self) -> str:
        """The Python module of the grammar."""
        return self.distribution.replace("-", "_")


_PYTHON = Language(
    "Python",
    "tree-sitter-python",
    Layout.INDENTATION,
    ".",
    """
    (function_definition name: (identifier) @name) @function
    (class_definition name: (identifier) @name) @class
    (module (expression_statement (assignment left: (identifier) @name) @variable))
    (class_definition body: (block
      (expression_statement (assignment left: (identifier) @name) @variable)))
    """,
)

_RUST = Language(
    "Rust",
    "tree-sitter-rust",
    Layout.TREE,
    "::",
    """
    (function_item name: (_) @name) @function
    (struct_item name: (_) @name) @class
    (enum_item name: (_) @name) @class
    (union_item name: (_) @name) @class
    (trait_item name: (_) @name) @class
    (mod_item name: (_) @name body: (_)) @namespace
    (impl_item body: (_)) @namespace
    (foreign_mod_item body: (_)) @namespace
    (macro_definition name: (_) @name) @macro
    (const_item name: (_) @name) @variable
    (static_item name: (_) @name) @variable
    """,
)

_C_DEFINITIONS = """
    (struct_specifier name: (_) @name body: (_) @body) @class
    (union_specifier name: (_) @name body: (_) @body) @class
    (enum_specifier name: (_) @name body: (_) @body) @class
    (struct_specifier !name body: (_) @plain)
    (union_specifier !name body: (_) @plain)
    (enum_specifier !name body: (_) @plain)
    (function_definition body: (compound_statement) @body) @function
    (initializer_list) @plain
    """

_CPP_DEFINITIONS = (
    _C_DEFINITIONS
    + """
    (class_specifier name: (_) @name body: (_) @body) @class
    (class_specifier !name body: (_) @plain)
    (lambda_expression body: (_) @plain)
    """
)

_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"

_C_NOISE = "|".join(
    (
        r"\b__(?:launch_bounds|cluster_dims|maxnreg|align|attribute|declspec)(?:__)?\s*"
        + _PARENTHESES,
        r"\balignas\s*" + _PARENTHESES,
        r"\b__\w+__\b(?!\s*\()",
        r"\b__(?:restrict|forceinline|noinline|inline)\b",
        r"\b[A-Z][A-Z0-9_]*(?:INLINE|DEVICE|EXPORT|API|UNROLL)\b(?!\s*\()",
        r"\[\[[^\[\]]*\]\]",
    )
)

_C = Language("C", "tree-sitter-c", Layout.BRACES, "::", _C_DEFINITIONS, _C_NOISE)
_CPP = Language("C++", "tree-sitter-cpp", Layout.BRACES, "::", _CPP_DEFINITIONS, _C_NOISE)
_CUDA = Language("CUDA", "tree-sitter-cuda", Layout.BRACES, "::", _CPP_DEFINITIONS, _C_NOISE)

LANGUAGES: dict[bytes, Language] = {
    **dict.fromkeys((b".py", b".pyi"), _PYTHON),
    **dict.fromkeys((b".rs",), _RUST),
    **dict.fromkeys((b".c",), _C),
    **dict.fromkeys((b".cc", b".cpp", b".cxx", b".h", b".hh", b".hpp", b".hxx", b".inl"), _CPP),
    **dict.fromkeys((b".cu", b".cuh", b".hip"), _CUDA),
}
"""Language by file name suffix, lower case."""


def language_of(path: bytes) -> Language | None:
    """The language of a path by its suffix, None where no grammar serves it."""
    name = path.rpartition(b"/")[2]
    dot = name.rfind(b".")
    return LANGUAGES.get(name[dot:].lower()) if dot > 0 else None
