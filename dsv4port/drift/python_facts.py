"""Facts of a Python file, by one walk over its syntax tree."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dsv4port.drift.facts import (
    TEXT_LIMIT,
    UNREADABLE,
    Call,
    Facts,
    Flag,
    Imported,
    Parameter,
    ParameterKind,
    Symbol,
    SymbolKind,
    TypeSource,
)

_SPACES = re.compile(r"\s+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,80}\Z")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PROPERTIES = frozenset(("property", "cached_property", "classproperty", "abstractproperty"))
_PLAIN = frozenset(
    {
        "staticmethod", "classmethod", "abstractmethod", "overload", "override", "final",
        "cache", "lru_cache", "contextmanager", "asynccontextmanager", "wraps", "no_grad",
        "inference_mode", "support_torch_compile", "deprecated", "setter", "getter", "compile",
        "disable", "eager_break_during_capture", "fixture", "parametrize", "register",
    }
)  # fmt: skip
"""Decorators that leave the parameters as they are written; of others nothing is assumed."""
_KERNELS = frozenset(("triton.jit", "jit", "cute.kernel", "cute.jit", "triton.autotune"))


class FileFacts(NamedTuple):
    """Facts of a file, its calls, and every other word it uses (attributes, keywords, texts)."""

    facts: Facts
    calls: list[Call]
    words: frozenset[str]


def parse_python(content: bytes) -> ast.Module | None:
    """The syntax tree; None where this Python cannot parse the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python_facts(content: bytes) -> FileFacts:
    """Read one file; a file that does not parse gives no facts but says so."""
    tree = parse_python(content)
    if tree is None:
        return FileFacts(UNREADABLE, [], frozenset())
    reader = _Reader(content)
    try:
        reader.module(tree)
    except RecursionError:
        return FileFacts(UNREADABLE, [], frozenset())
    facts = Facts(
        reader.symbols,
        {name: tuple(many) for name, many in reader.variants.items()},
        reader.imports,
        reader.inner,
        tuple(dict.fromkeys(reader.stars)),
    )
    return FileFacts(facts, reader.calls, frozenset(reader.words))


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of an expression; parts without a name are ``?``, subscripts are passed over."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Name):
            parts.append(node.id)
            break
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "super":
                parts.append("super")
            else:
                parts.append("?")
            break
        else:
            parts.append("?")
            break
    return ".".join(reversed(parts))


def call_of(node: ast.Call, scope: str) -> Call:
    """A call expression as a value."""
    return Call(
        dotted(node.func),
        sum(not isinstance(one, ast.Starred) for one in node.args),
        tuple(one.arg for one in node.keywords if one.arg is not None),
        any(isinstance(one, ast.Starred) for one in node.args),
        any(one.arg is None for one in node.keywords),
        node.lineno,
        scope,
    )


def source_of(node: ast.expr, local: dict[str, TypeSource]) -> TypeSource | None:
    """Where the type of `node` can be read, given what is known of local names."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    path.reverse()
    if isinstance(node, ast.Name):
        known = local.get(node.id)
        if known is not None:
            return TypeSource(known.origin, known.base, (*known.path, *path))
        return TypeSource("V", ".".join((node.id, *path)))
    if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        inner = source_of(node.func, local)
        if inner is not None and inner.origin == "V":
            return TypeSource("C", inner.base, tuple(path))
        if inner is not None:
            return TypeSource(inner.origin, inner.base, (*inner.path, "()", *path))
    return None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._lines = content.removeprefix(b"\xef\xbb\xbf").splitlines()
        self.symbols: dict[str, Symbol] = {}
        self.variants: dict[str, list[Symbol]] = {}
        self.imports: dict[str, Imported] = {}
        self.inner: dict[str, Imported] = {}
        self.stars: list[tuple[str, int]] = []
        self.calls: list[Call] = []
        self.words: set[str] = set()

    # ---- text

    def _text(self, node: ast.AST | None) -> str | None:
        if node is None:
            return None
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1  # type: ignore[attr-defined]
        start, end = node.col_offset, node.end_col_offset or 0  # type: ignore[attr-defined]
        if first == last:
            text = self._lines[first][start:end]
        else:
            # A long literal is not worth more than its beginning.
            last = min(last, first + 8)
            text = b" ".join((self._lines[first][start:], *self._lines[first + 1 : last + 1]))
        return _SPACES.sub(" ", text.decode("utf-8", "replace")).strip()[:TEXT_LIMIT]

    def _body(self, statements: list[ast.stmt], end: int) -> str:
        if not statements:
            return ""
        first = statements[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            if len(statements) == 1:
                return ""
            first = statements[1]
        lines = (line.strip() for line in self._lines[first.lineno - 1 : end])
        kept = b"\n".join(line for line in lines if line and not line.startswith(b"#"))
        return hashlib.blake2b(kept, digest_size=8).hexdigest()

    # ---- definitions

    def module(self, tree: ast.Module) -> None:
        self._block(tree.body, "")

    def _block(self, statements: Iterable[ast.stmt], prefix: str) -> None:
        for node in statements:
            if isinstance(node, _FUNCTIONS):
                self._function(node, prefix)
            elif isinstance(node, ast.ClassDef):
                self._class(node, prefix)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node, self.imports if not prefix else self.inner)
            elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
                for inner in _blocks(node):
                    self._block(inner, prefix)
                for expression in _headers(node):
                    self._expressions(expression, prefix)
            else:
                self._assignment(node, prefix)
                self._expressions(node, prefix)

    def _add(self, name: str, symbol: Symbol) -> None:
        known = self.symbols.get(name)
        if known is None or known.flags & Flag.OVERLOAD or known.kind is SymbolKind.ATTRIBUTE:
            self.symbols[name] = symbol
        elif symbol.kind is SymbolKind.ATTRIBUTE or symbol.flags & Flag.OVERLOAD:
            return
        elif known.kind is SymbolKind.FUNCTION and symbol.kind is SymbolKind.FUNCTION:
            if known.flags & Flag.PROPERTY:
                # A setter has the property's name.
                return
            self.variants.setdefault(name, []).append(symbol)
        elif symbol.kind is not SymbolKind.VARIABLE:
            self.variants.setdefault(name, []).append(known)
            self.symbols[name] = symbol

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, prefix: str) -> None:
        name = f"{prefix}{node.name}"
        decorators = tuple(self._text(one) or "" for one in node.decorator_list)
        end = node.end_lineno or node.lineno
        self._add(
            name,
            Symbol(
                SymbolKind.FUNCTION,
                node.lineno,
                end,
                _function_flags(node.decorator_list),
                tuple(self._parameters(node.args)),
                (),
                decorators,
                self._text(node.returns),
                None,
                None,
                self._body(node.body, end),
            ),
        )
        for one in (*node.decorator_list, node.args):
            self._expressions(one, name)
        owner = prefix[:-1] if prefix and node.args.args else ""
        static = any(dotted(one).endswith("staticmethod") for one in node.decorator_list)
        local = _parameter_sources(node, self._text, "" if static else owner)
        for statement in node.body:
            self._inside(statement, name, prefix if owner and not static else "", local)

    def _parameters(self, arguments: ast.arguments) -> Iterator[Parameter]:
        listed = [*arguments.posonlyargs, *arguments.args]
        missing = len(listed) - len(arguments.defaults)
        for position, one in enumerate(listed):
            kind = (
                ParameterKind.POSITIONAL_ONLY
                if position < len(arguments.posonlyargs)
                else ParameterKind.NORMAL
            )
            default = arguments.defaults[position - missing] if position >= missing else None
            yield Parameter(one.arg, kind, self._text(default), self._text(one.annotation))
        if arguments.vararg is not None:
            yield Parameter(arguments.vararg.arg, ParameterKind.VAR_POSITIONAL)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            yield Parameter(
                one.arg, ParameterKind.KEYWORD_ONLY, self._text(default), self._text(one.annotation)
            )
        if arguments.kwarg is not None:
            yield Parameter(arguments.kwarg.arg, ParameterKind.VAR_KEYWORD)

    def _class(self, node: ast.ClassDef, prefix: str) -> None:
        name = f"{prefix}{node.name}"
        end = node.end_lineno or node.lineno
        flags = Flag.NONE
        for keyword in node.keywords:
            if keyword.arg == "kw_only" and _is_true(keyword.value):
                flags |= Flag.KEYWORD_ONLY
        for one in node.decorator_list:
            if isinstance(one, ast.Call):
                for keyword in one.keywords:
                    if keyword.arg == "kw_only" and _is_true(keyword.value):
                        flags |= Flag.KEYWORD_ONLY
                    if keyword.arg == "init" and not _is_true(keyword.value):
                        flags |= Flag.NO_INIT
        self._add(
            name,
            Symbol(
                SymbolKind.CLASS,
                node.lineno,
                end,
                flags,
                (),
                tuple(self._text(one) or "" for one in node.bases),
                tuple(self._text(one) or "" for one in node.decorator_list),
                None,
                None,
                None,
                self._body(node.body, end),
            ),
        )
        for base in (*node.bases, *node.decorator_list):
            self._expressions(base, name)
        self._block(node.body, f"{name}.")

    def _assignment(self, node: ast.stmt, prefix: str) -> None:
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif type(node).__name__ == "TypeAlias":
            # ``type X = ...`` of Python 3.12.
            targets = [node.name]  # type: ignore[attr-defined]
        else:
            return
        flags, note = Flag.NONE, None
        value = getattr(node, "value", None)
        if isinstance(node, ast.AnnAssign):
            flags, note = Flag.ANNOTATED, self._text(node.annotation)
        shown = self._text(value)
        if isinstance(value, ast.Call) and flags:
            given = {one.arg: one.value for one in value.keywords}
            if "init" in given and not _is_true(given["init"]):
                flags |= Flag.NO_INIT
            if "kw_only" in given and _is_true(given["kw_only"]):
                flags |= Flag.KEYWORD_ONLY
            if dotted(value.func).rpartition(".")[2] in ("field", "Field") and not (
                value.args or {"default", "default_factory", "factory"} & given.keys()
            ):
                # ``x: int = field(repr=False)`` has no default.
                shown = None
        source = None if value is None else source_of(value, {})
        for target in targets:
            for name in _names(target):
                self._add(
                    f"{prefix}{name}",
                    Symbol(
                        SymbolKind.VARIABLE, node.lineno, node.end_lineno or node.lineno, flags,
                        annotation=note, value=shown, source=source,
                    ),
                )  # fmt: skip
            if prefix == "" and isinstance(target, ast.Attribute):
                self.words.add(target.attr)

    def _import(self, node: ast.Import | ast.ImportFrom, into: dict[str, Imported]) -> None:
        for name, found in imported(node):
            if name == "*":
                self.stars.append((found.module, found.level))
            elif into is self.imports or name not in into:
                into[name] = found
            if found.name is not None:
                self.words.add(found.name)

    # ---- inside of functions

    def _inside(
        self, node: ast.stmt, scope: str, prefix: str, local: dict[str, TypeSource]
    ) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, self.inner)
            return
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            for one in node.decorator_list:
                self._expressions(one, scope)
            if not isinstance(node, ast.ClassDef):
                self._expressions(node.args, scope)
            for statement in node.body:
                self._inside(statement, scope, "", dict(local))
            return
        blocks = list(_blocks(node))
        if blocks:
            for expression in _headers(node):
                self._expressions(expression, scope)
            for block in blocks:
                for statement in block:
                    self._inside(statement, scope, prefix, local)
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._local(node, prefix, local)
        self._expressions(node, scope)

    def _local(
        self, node: ast.Assign | ast.AnnAssign, prefix: str, local: dict[str, TypeSource]
    ) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        source = None if node.value is None else source_of(node.value, local)
        note = self._text(node.annotation) if isinstance(node, ast.AnnAssign) else None
        if note is not None:
            source = TypeSource("A", note)
        for target in targets:
            if isinstance(target, ast.Name):
                if source is not None:
                    local[target.id] = source
                else:
                    local.pop(target.id, None)
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if (
                    prefix
                    and isinstance(one, ast.Attribute)
                    and isinstance(one.value, ast.Name)
                    and one.value.id == "self"
                ):
                    self._add(
                        f"{prefix}{one.attr}",
                        Symbol(
                            SymbolKind.ATTRIBUTE, node.lineno, node.end_lineno or node.lineno,
                            annotation=note, source=source if one is target else None,
                        ),
                    )  # fmt: skip

    def _expressions(self, root: ast.AST, scope: str) -> None:
        scope = scope.rstrip(".")
        stack: list[ast.AST] = [root]
        words = self.words
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is ast.Attribute:
                words.add(node.attr)  # type: ignore[attr-defined]
            elif kind is ast.Call:
                self.calls.append(call_of(node, scope))  # type: ignore[arg-type]
            elif kind is ast.keyword:
                if node.arg is not None:  # type: ignore[attr-defined]
                    words.add(node.arg)  # type: ignore[attr-defined]
            elif kind is ast.Constant:
                value = node.value  # type: ignore[attr-defined]
                if type(value) is str and _WORD.match(value):
                    words.add(value)
                continue
            elif kind is ast.Name:
                words.add(node.id)  # type: ignore[attr-defined]
                continue
            for field in node._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    stack.extend(one for one in value if isinstance(one, ast.AST))
                elif isinstance(value, ast.AST):
                    stack.append(value)


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """(bound name, what it is bound to) of an import statement; ``*`` for a star import."""
    for alias in node.names:
        yield bound_by(node, alias)


def bound_by(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, Imported]:
    """The name that one part of an import statement binds, and what to."""
    if isinstance(node, ast.ImportFrom):
        found = Imported(node.module or "", alias.name, node.level, node.lineno)
        return alias.asname or alias.name, found
    if alias.asname is not None:
        return alias.asname, Imported(alias.name, None, 0, node.lineno)
    top = alias.name.partition(".")[0]
    return top, Imported(top, None, 0, node.lineno)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement that opens no scope."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block:
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for case in getattr(node, "cases", ()):
        yield case.body


def _headers(node: ast.stmt) -> Iterator[ast.AST]:
    for field in ("test", "iter", "target", "subject"):
        value = getattr(node, field, None)
        if value is not None:
            yield value
    yield from getattr(node, "items", ())
    for handler in getattr(node, "handlers", ()):
        if handler.type is not None:
            yield handler.type


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _names(one)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _function_flags(decorators: list[ast.expr]) -> Flag:
    flags = Flag.NONE
    for one in decorators:
        text = dotted(one.func if isinstance(one, ast.Call) else one)
        last = text.rpartition(".")[2]
        if last == "staticmethod":
            flags |= Flag.STATIC
        elif last == "classmethod":
            flags |= Flag.CLASS_METHOD
        elif last in _PROPERTIES:
            flags |= Flag.PROPERTY
        elif last == "overload":
            flags |= Flag.OVERLOAD
        if last in ("abstractmethod", "abstractproperty"):
            flags |= Flag.ABSTRACT
        if text in _KERNELS or text.endswith(".jit"):
            flags |= Flag.KERNEL
        if last not in _PLAIN and last not in _PROPERTIES and not flags & Flag.KERNEL:
            flags |= Flag.PATCHED
    return flags


def _parameter_sources(
    node: ast.FunctionDef | ast.AsyncFunctionDef, text: object, owner: str
) -> dict[str, TypeSource]:
    assert callable(text)
    found: dict[str, TypeSource] = {}
    listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    for position, one in enumerate(listed):
        if position == 0 and owner:
            found[one.arg] = TypeSource("S", owner)
        elif one.annotation is not None:
            found[one.arg] = TypeSource("A", text(one.annotation) or "")
    return found
