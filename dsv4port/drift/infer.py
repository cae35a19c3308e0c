"""Which class a value is of, as far as annotations and constructors say so."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsv4port.drift.facts import Flag, SymbolKind, TypeSource
from dsv4port.drift.index import OUTSIDE, Answer, Found, Missing, ModuleFound, Outside, TreeIndex

_DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Instance:
    """A value of a class of the tree."""

    of: Found


@dataclass(frozen=True, slots=True)
class Bound:
    """A method (or other member) reached through an instance or class.

    ``implicit`` says that the call does not pass the first parameter, if it is not a static method.
    """

    member: Found
    owner: Found
    implicit: bool


Value = Answer | Instance | Bound


class Typer:
    """Infers values in one file of an index."""

    def __init__(self, index: TreeIndex, module: str, path: str) -> None:
        self.index = index
        self.module = module
        self.path = path

    # ---- annotations

    def annotated(self, owner: Found, text: str | None) -> Value:
        """The value that an annotation at `owner`'s place promises."""
        name = class_text(text)
        if name is None:
            return OUTSIDE
        answer = self.index.resolve_in(owner, name)
        if isinstance(answer, Found) and answer.symbol.kind is SymbolKind.CLASS:
            return Instance(answer)
        return OUTSIDE

    def of_source(self, at: Found, source: TypeSource | None, depth: int = 0) -> Value:
        """The value that a recorded source stands for, as seen from `at`'s file."""
        if source is None or depth > _DEEPEST:
            return OUTSIDE
        value: Value
        if source.origin == "A":
            value = self.annotated(at, source.base)
        elif source.origin == "S":
            owner = self.index.find(at.path, source.base)
            value = OUTSIDE if owner is None else Instance(owner)
        else:
            value = self.index.resolve_in(at, source.base)
            value = self.called(value) if source.origin == "C" else self.value_of(value, depth + 1)
        for name in source.path:
            value = self.called(value) if name == "()" else self.attribute(value, name, depth + 1)
        return value

    # ---- steps

    def attribute(self, value: Value, name: str, depth: int = 0) -> Value:
        """What attribute `name` of a value is; Missing where the class surely has none."""
        if depth > _DEEPEST:
            return OUTSIDE
        if isinstance(value, Bound):
            value = self.content(value, depth + 1)
        if isinstance(value, Instance):
            answer = self.index.member(value.of, name)
            if isinstance(answer, Found):
                return Bound(answer, value.of, True)
            return answer
        if isinstance(value, ModuleFound):
            return self.index.lookup(value.module, name)
        if isinstance(value, Found):
            if value.symbol.kind is SymbolKind.CLASS:
                answer = self.index.member(value, name)
                if isinstance(answer, Found):
                    flags = answer.symbol.flags
                    return Bound(answer, value, bool(flags & Flag.CLASS_METHOD))
                return answer
            if value.symbol.kind is SymbolKind.VARIABLE:
                inner = self.value_of(value, depth + 1)
                return OUTSIDE if inner is value else self.attribute(inner, name, depth + 1)
        return OUTSIDE

    def value_of(self, value: Value, depth: int = 0) -> Value:
        """A variable's value, where its annotation or assignment says what it is."""
        if isinstance(value, Found) and value.symbol.kind is SymbolKind.VARIABLE:
            found = self.annotated(value, value.symbol.annotation)
            if isinstance(found, Outside):
                found = self.of_source(value, value.symbol.source, depth + 1)
            if isinstance(found, Bound):
                found = self.content(found, depth + 1) if depth < _DEEPEST else OUTSIDE
            return value if isinstance(found, (Outside, Missing)) else found
        return value

    def content(self, bound: Bound, depth: int = 0) -> Value:
        """The value that reading a member gives."""
        symbol = bound.member.symbol
        if symbol.kind is SymbolKind.FUNCTION:
            if symbol.flags & Flag.PROPERTY:
                return self.annotated(bound.member, symbol.annotation)
            return OUTSIDE
        if symbol.kind is SymbolKind.CLASS:
            return bound.member
        found = self.annotated(bound.member, symbol.annotation)
        if isinstance(found, Outside) and symbol.annotation is None:
            found = self.of_source(bound.member, symbol.source, depth + 1)
        if isinstance(found, Bound):
            found = self.content(found, depth + 1) if depth < _DEEPEST else OUTSIDE
        return OUTSIDE if isinstance(found, Missing) else found

    def called(self, value: Value) -> Value:
        """What calling a value gives."""
        if isinstance(value, Bound):
            value = value.member
        if isinstance(value, Found):
            if value.symbol.kind is SymbolKind.CLASS:
                return Instance(value)
            if value.symbol.kind is SymbolKind.FUNCTION:
                return self.annotated(value, value.symbol.annotation)
        return OUTSIDE

    # ---- expressions

    def infer(self, node: ast.expr, names: Mapping[str, Value]) -> Value:
        """The value of an expression; `names` are local ones and win over the module's."""
        if isinstance(node, ast.Name):
            if node.id in names:
                return names[node.id]
            answer = self.index.lookup(self.module, node.id)
            return OUTSIDE if isinstance(answer, Missing) else answer
        if isinstance(node, ast.Attribute):
            return self.attribute(self.infer(node.value, names), node.attr)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super":
                return names.get("super()", OUTSIDE)
            return self.called(self.infer(node.func, names))
        if isinstance(node, (ast.Await, ast.NamedExpr)):
            return self.infer(node.value, names)
        return OUTSIDE


def class_text(text: str | None) -> str | None:
    """The one class that an annotation names; None where there are several, or none."""
    if text is None:
        return None
    text = text.strip().strip("\"'").strip()
    for prefix in ("Optional[", "typing.Optional[", "Final[", "ClassVar[", "Annotated["):
        if text.startswith(prefix) and text.endswith("]"):
            return class_text(text[len(prefix) : -1].partition(",")[0])
    parts = [part.strip().strip("\"'") for part in text.split("|")]
    named = [part for part in parts if part not in ("None", "")]
    if len(named) != 1:
        return None
    name = named[0].partition("[")[0]
    return name if all(part.isidentifier() for part in name.split(".")) else None


def assigned_names(node: ast.AST) -> Iterator[str]:
    """Names that a function binds, its inner functions' left out."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        one = stack.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield one.name
            continue
        if isinstance(one, ast.Lambda):
            continue
        if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            yield one.id
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            for alias in one.names:
                yield (alias.asname or alias.name).partition(".")[0]
        elif isinstance(one, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and one.name:
            yield one.name
        elif isinstance(one, ast.arg):
            yield one.arg
        stack.extend(ast.iter_child_nodes(one))
