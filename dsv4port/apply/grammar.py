"""Load a tree-sitter grammar and run a language's query; the only importer of tree-sitter."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from dsv4port.apply.languages import Language
from dsv4port.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from tree_sitter import Language as Grammar
    from tree_sitter import Node, Query, Tree

_ERRORS = "(ERROR) @error (MISSING) @error"


@cache
def _grammar(distribution: str, module: str) -> Grammar:
    try:
        import tree_sitter

        return tree_sitter.Language(import_module(module).language())
    except ImportError as error:
        raise EnvironmentProblemError(
            f"the grammar {distribution} cannot be loaded: {error}",
            fix="install dsv4port again with its dependencies",
        ) from error


@cache
def _query(distribution: str, module: str, text: str) -> Query:
    from tree_sitter import Query

    query: Query = Query(_grammar(distribution, module), text)
    return query


def parse(language: Language, text: bytes) -> Tree:
    """The syntax tree of ``text``; it always has one, with ERROR nodes where needed."""
    from tree_sitter import Parser

    return Parser(_grammar(language.distribution, language.module)).parse(text)


def matches(language: Language, root: Node) -> list[dict[str, list[Node]]]:
    """The matches of the language's query: nodes by capture name."""
    from tree_sitter import QueryCursor

    query = _query(language.distribution, language.module, language.query)
    return [captures for _, captures in QueryCursor(query).matches(root)]


def errors(language: Language, root: Node) -> list[Node]:
    """Where the text does not parse, in order."""
    if not root.has_error:
        return []
    from tree_sitter import QueryCursor

    query = _query(language.distribution, language.module, _ERRORS)
    found = QueryCursor(query).captures(root).get("error", [])
    return sorted(found, key=lambda node: node.start_byte)
