"""What is read from a file's syntax tree only when a question comes up, and then kept."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property

from dsv4port.drift.infer import assigned_names
from dsv4port.drift.python_facts import parse_python


class Syntax:
    """Names bound in the functions of a file, and attributes that the file reads.

    Parameters:
        content: the file; one that does not parse binds and reads nothing.
    """

    def __init__(self, content: bytes) -> None:
        self._tree = parse_python(content) or ast.Module([], [])
        self._bound: dict[int, frozenset[str]] = {}

    def bound_at(self, line: int) -> frozenset[str]:
        """The names that the function defined at a line binds; none where there is no function."""
        known = self._bound.get(line)
        if known is None:
            known = self._bound[line] = self._bound_at(line)
        return known

    def _bound_at(self, line: int) -> frozenset[str]:
        statements: list[ast.stmt] = self._tree.body
        while True:
            around = [one for one in statements if one.lineno <= line <= (one.end_lineno or 0)]
            if not around:
                return frozenset()
            node = around[-1]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno == line:
                names = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
                return frozenset(names.union(assigned_names(node)))
            statements = [
                one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)
            ] + [
                one
                for handler in getattr(node, "handlers", ())
                for one in ast.iter_child_nodes(handler)
                if isinstance(one, ast.stmt)
            ]

    @cached_property
    def reads(self) -> Mapping[str, int]:
        """Attributes that are read, and the first line that reads each."""
        found: dict[str, int] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                line = node.end_lineno or node.lineno
                found[node.attr] = min(line, found.get(node.attr, line))
        return found
