"""What is read from a file's syntax tree only when a question comes up, and then kept."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from dsv4port.drift.infer import assigned_names
from dsv4port.drift.python_facts import parse_python


class Syntax:
    """Names bound in the functions of a file, and attributes that the file reads.

    Parameters:
        content: the file; one that does not parse binds and reads nothing.
    """

    def __init__(self, content: bytes) -> None:
        self.bound: Mapping[int, frozenset[str]]
        self.reads: Mapping[str, int]
        bound: dict[int, frozenset[str]] = {}
        reads: dict[str, int] = {}
        tree = parse_python(content)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                names = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
                bound[node.lineno] = frozenset(names.union(assigned_names(node)))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                line = node.end_lineno or node.lineno
                reads[node.attr] = min(line, reads.get(node.attr, line))
        self.bound, self.reads = bound, reads
