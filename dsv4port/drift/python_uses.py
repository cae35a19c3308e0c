"""What the changed lines of a Python file use of upstream.

The file is read as the series leaves it, its names are looked up in the old tree with the series'
files laid over it. What the series defines itself is not upstream's and is left out.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from dsv4port.drift.facts import Flag, Symbol, SymbolKind
from dsv4port.drift.findings import Concern
from dsv4port.drift.index import (
    OUTSIDE,
    Found,
    Missing,
    ModuleFound,
    Outside,
    TreeIndex,
    absolute,
    module_of,
)
from dsv4port.drift.infer import Bound, Instance, Typer, Value, assigned_names
from dsv4port.drift.python_facts import bound_by, call_of, parse_python
from dsv4port.drift.uses import Use, UseKind

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Where = Callable[[int], Concern]


def python_uses(
    old: TreeIndex,
    patched: TreeIndex,
    path: str,
    changed: Mapping[int, Concern],
    edited: Mapping[int, Concern],
) -> Iterator[Use]:
    """Every use on the changed lines of one file.

    Parameters:
        old: the tree without the series.
        patched: the tree with it.
        changed: the lines that the series wrote, by line number in the patched file.
        edited: those and the lines beside what it removed.

    Yields:
        Uses of what the old tree has; several for one expression where several things can break.
    """
    tree = parse_python(patched.content(path))
    if tree is None:
        return
    reader = _Reader(old, patched, path, changed)
    yield from reader.edits(edited)
    reader.visit_block(tree.body, _Scope(None, "", {}, frozenset()))
    yield from reader.uses
    yield from reader.definitions()


class _Scope:
    """Where an expression stands: the function around it, and what its local names are."""

    def __init__(
        self, function: Found | None, prefix: str, names: dict[str, Value], local: frozenset[str],
        owner: Found | None = None,
    ) -> None:  # fmt: skip
        self.function = function
        self.prefix = prefix
        self.names = names
        self.local = local
        self.owner = owner
        self.own: frozenset[str] = frozenset()
        """Local names that the series binds itself."""


class _Reader:
    def __init__(
        self, old: TreeIndex, patched: TreeIndex, path: str, changed: Mapping[int, Concern]
    ) -> None:
        self._old = old
        self._patched = patched
        self._path = path
        self._module = module_of(path)
        self._changed = changed
        self._typer = Typer(patched, self._module, path)
        self._numbers = sorted(changed)
        self.uses: list[Use] = []

    # ---- what is upstream's

    def _upstream(self, found: Found) -> Found | None:
        """The definition as the old tree has it; None for one that the series brings."""
        return self._old.find(found.path, found.name)

    def _concern(self, node: ast.AST, last: int | None = None) -> Concern | None:
        """The first changed line of a node."""
        first = node.lineno  # type: ignore[attr-defined]
        end = last or getattr(node, "end_lineno", first)
        for line in range(first, end + 1):
            if line in self._changed:
                return self._changed[line]
        return None

    def _use(self, kind: UseKind, where: Concern, **rest: object) -> None:
        self.uses.append(Use(kind, where, **rest))  # type: ignore[arg-type]

    # ---- definitions around and of the changed lines

    def edits(self, edited: Mapping[int, Concern]) -> Iterator[Use]:
        """Definitions of upstream's that the series changes inside."""
        if self._path not in self._old.files:
            return
        seen: set[str] = set()
        for line, where in sorted(edited.items()):
            found = self._patched.symbol_at(self._path, line)
            while found is not None:
                upstream = self._upstream(found)
                if upstream is not None and found.name not in seen:
                    seen.add(found.name)
                    yield Use(UseKind.EDIT, where, upstream)
                    break
                found = self._patched.find(self._path, found.owner) if found.owner else None

    def definitions(self) -> Iterator[Use]:
        """Names that the series adds to a file of upstream's."""
        if self._path not in self._old.files:
            return
        before = self._old.facts(self._path).symbols
        for name, symbol in self._patched.facts(self._path).symbols.items():
            if name in before or symbol.kind is SymbolKind.ATTRIBUTE:
                continue
            owner = name.rpartition(".")[0]
            if owner and owner not in before:
                continue
            if symbol.line in self._changed:
                target = Found(self._module, self._path, name, symbol)
                yield Use(UseKind.DEFINE, self._changed[symbol.line], target)

    # ---- statements

    def visit_block(self, statements: Sequence[ast.stmt], scope: _Scope) -> None:
        for node in statements:
            self._visit(node, scope)

    def _touches(self, node: ast.stmt) -> bool:
        """Whether a statement, its decorators included, has a changed line."""
        decorators = getattr(node, "decorator_list", ())
        first = min(node.lineno, *(one.lineno for one in decorators)) if decorators else node.lineno
        at = bisect_left(self._numbers, first)
        return at < len(self._numbers) and self._numbers[at] <= (node.end_lineno or node.lineno)

    def _visit(self, node: ast.stmt, scope: _Scope) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node, scope)
        elif not self._touches(node):
            return
        elif isinstance(node, _FUNCTIONS):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            self._class(node, scope)
        else:
            nested = [
                block
                for field in ("body", "orelse", "finalbody")
                if isinstance(block := getattr(node, field, None), list) and block
            ]
            if nested or hasattr(node, "handlers") or hasattr(node, "cases"):
                for field in ("test", "iter", "target", "subject", "items"):
                    part = getattr(node, field, None)
                    for one in part if isinstance(part, list) else [part]:
                        if one is not None:
                            self._expressions(one, scope)
                for block in nested:
                    self.visit_block(block, scope)
                for one in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                    self.visit_block(one.body, scope)
                return
            self._assign(node, scope)
            self._expressions(node, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: _Scope) -> None:
        for alias in node.names:
            name, bound = bound_by(node, alias)
            if scope.function is not None or scope.prefix:
                scope.names[name] = self._patched.follow(
                    self._module, self._path, bound.module, bound.name, bound.level
                )
            where = self._changed.get(alias.lineno)
            if where is not None:
                self._imported(where, bound.module, bound.name, bound.level, alias.name)

    def _imported(
        self, where: Concern, module: str, name: str | None, level: int, written: str
    ) -> None:
        full = absolute(self._module, self._path, module, level)
        if name is None:
            full = written
        if not self._old.owns(full):
            return
        if name is None:
            if isinstance(self._old.module(full), ModuleFound):
                self._use(UseKind.IMPORT_MODULE, where, subject=full)
            return
        answer = self._old.lookup(full, name)
        if isinstance(answer, Found):
            self._use(UseKind.IMPORT, where, target=answer, subject=f"{full}:{name}")
        elif isinstance(answer, ModuleFound):
            self._use(UseKind.IMPORT_MODULE, where, subject=answer.module)
        elif isinstance(answer, Outside) and isinstance(self._old.module(full), ModuleFound):
            self._use(UseKind.IMPORT, where, subject=f"{full}:{name}")

    def _class(self, node: ast.ClassDef, scope: _Scope) -> None:
        name = f"{scope.prefix}{node.name}"
        found = self._patched.find(self._path, name)
        for one in (*node.decorator_list, *node.bases, *node.keywords):
            self._expressions(one, scope)
        where = self._changed.get(node.lineno)
        methods = frozenset(one.name for one in node.body if isinstance(one, _FUNCTIONS))
        if found is not None and where is not None:
            for base in node.bases:
                value = self._typer.infer(base, scope.names)
                if isinstance(value, Found) and (upstream := self._upstream(value)) is not None:
                    self._use(
                        UseKind.SUBCLASS, self._concern(base) or where, target=upstream,
                        implements=self._implemented(found, methods),
                    )  # fmt: skip
        inner = _Scope(None, f"{name}.", dict(scope.names), scope.local, found)
        self.visit_block(node.body, inner)

    def _implemented(self, found: Found, methods: frozenset[str]) -> frozenset[str]:
        """Names that the class or those of its bases that the series brings define."""
        names = set(methods)
        for one in self._patched.lineage(found).classes:
            if self._upstream(one) is None:
                names.update(name for name, _ in self._patched.members(one))
        return frozenset(names)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: _Scope) -> None:
        name = f"{scope.prefix}{node.name}"
        nested = scope.function is not None
        found = scope.function if nested else self._patched.find(self._path, name)
        for one in node.decorator_list:
            self._expressions(one, scope)
        self._expressions(node.args, scope)
        if node.returns is not None:
            self._expressions(node.returns, scope)
        if found is not None and not nested:
            self._signature(node, found, scope.owner)
        names = dict(scope.names)
        local = frozenset(assigned_names(node)) | _parameter_names(node.args)
        names.update(dict.fromkeys(local, OUTSIDE))
        self._parameters(node, found, scope, names)
        inner = _Scope(
            found, scope.prefix, names, scope.local | local if nested else local, scope.owner
        )
        inner.own = scope.own | self._bound_here(node) if nested else self._bound_here(node)
        self._locals(node, inner)
        self.visit_block(node.body, inner)

    def _signature(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, found: Found, owner: Found | None
    ) -> None:
        header_end = node.body[0].lineno - 1 if node.body else node.lineno
        where = self._concern(node, max(node.lineno, header_end))
        if where is None:
            return
        upstream = self._upstream(found)
        if upstream is not None:
            if upstream.symbol.parameters != found.symbol.parameters:
                self._use(
                    UseKind.REDEFINE, where, target=upstream,
                    parameters=found.symbol.parameters, owner=owner,
                )  # fmt: skip
            return
        if owner is None:
            return
        for base in self._patched.lineage(owner).classes[1:]:
            symbol = self._patched.facts(base.path).symbols.get(f"{base.name}.{node.name}")
            if symbol is None:
                continue
            member = Found(base.module, base.path, f"{base.name}.{node.name}", symbol)
            known = self._upstream(member)
            if known is not None and known.symbol.kind is SymbolKind.FUNCTION:
                self._use(
                    UseKind.OVERRIDE, where, target=known, owner=base,
                    parameters=found.symbol.parameters,
                )  # fmt: skip
            return

    def _parameters(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, found: Found | None, scope: _Scope,
        names: dict[str, Value],
    ) -> None:  # fmt: skip
        place = found or Found(self._module, self._path, "", _NOWHERE)
        listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for one in listed:
            if one.annotation is not None:
                text = ast.unparse(one.annotation)
                names[one.arg] = self._typer.annotated(place, text)
        if scope.owner is not None and scope.function is None and listed:
            flags = found.symbol.flags if found is not None else Flag.NONE
            if not flags & Flag.STATIC:
                of = scope.owner
                names[listed[0].arg] = of if flags & Flag.CLASS_METHOD else Instance(of)
                bases = self._patched.lineage(of).classes[1:]
                names["super()"] = Instance(bases[0]) if bases else OUTSIDE

    def _bound_here(self, node: ast.AST) -> frozenset[str]:
        """Names that a changed line of a function binds, other than the function's parameters."""
        found: set[str] = set()
        for one in ast.walk(node):
            if getattr(one, "lineno", 0) not in self._changed:
                continue
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                found.add(one.id)
            elif isinstance(one, (ast.Import, ast.ImportFrom)):
                found.update(bound_by(one, alias)[0] for alias in one.names)
            elif isinstance(one, ast.ExceptHandler):
                found.add(one.name or "")
            elif one is not node and isinstance(one, (*_FUNCTIONS, ast.ClassDef)):
                found.add(one.name)
            elif isinstance(one, ast.Lambda):
                found |= _parameter_names(one.args)
        # A parameter that is bound anew was most likely read for it.
        arguments = getattr(node, "args", None)
        kept = (
            {
                one.arg
                for one in ast.walk(arguments)
                if isinstance(one, ast.arg) and one.lineno not in self._changed
            }
            if arguments is not None
            else set()
        )
        return frozenset(found - kept)

    def _locals(self, node: ast.AST, scope: _Scope) -> None:
        """Values of local names that are assigned once, or always the same class."""
        seen: dict[str, Value] = {}
        for one in _own_statements(node):
            for target, value, note in _assignments(one):
                if note is not None:
                    place = scope.function or Found(self._module, self._path, "", _NOWHERE)
                    found = self._typer.annotated(place, ast.unparse(note))
                else:
                    found = OUTSIDE if value is None else self._typer.infer(value, scope.names)
                if isinstance(found, Bound):
                    found = self._typer.content(found)
                if isinstance(found, Missing):
                    found = OUTSIDE
                if target in seen and seen[target] != found:
                    found = OUTSIDE
                seen[target] = scope.names[target] = found

    # ---- expressions

    def _assign(self, node: ast.stmt, scope: _Scope) -> None:
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            return
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute):
                where = self._concern(target)
                owner = self._typer.infer(target.value, scope.names)
                if where is not None and isinstance(owner, (ModuleFound, Found)):
                    self._replaced(where, owner, target.attr, node.value)

    def _replaced(
        self, where: Concern, owner: ModuleFound | Found, name: str, value: ast.expr | None
    ) -> None:
        """A run-time patch: ``module.name = value`` or ``Class.name = value``."""
        if isinstance(owner, Found) and owner.symbol.kind is not SymbolKind.CLASS:
            return
        answer = (
            self._old.lookup(owner.module, name)
            if isinstance(owner, ModuleFound)
            else self._old.member(owner, name)
        )
        if not isinstance(answer, Found):
            return
        parameters: tuple[object, ...] = ()
        if isinstance(value, ast.Name):
            own = self._patched.find(self._path, value.id)
            if own is not None:
                parameters = own.symbol.parameters
        holder = owner.module if isinstance(owner, ModuleFound) else ""
        self._use(
            UseKind.REPLACE, where, target=answer, subject=f"{holder}:{name}" if holder else "",
            parameters=parameters, owner=owner if isinstance(owner, Found) else None,
        )  # fmt: skip

    def _expressions(self, root: ast.AST, scope: _Scope) -> None:
        stack: list[tuple[ast.AST, bool]] = [(root, False)]
        while stack:
            node, called = stack.pop()
            if isinstance(node, ast.Call):
                self._call(node, scope)
                stack.append((node.func, True))
                stack.extend((one, False) for one in (*node.args, *node.keywords))
                continue
            if isinstance(node, ast.Attribute):
                self._attribute(node, scope, called)
                stack.append((node.value, False))
                continue
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self._name(node, scope)
                continue
            if isinstance(node, ast.Lambda):
                names = dict(scope.names)
                names.update(dict.fromkeys(_parameter_names(node.args), OUTSIDE))
                inner = _Scope(scope.function, scope.prefix, names, scope.local, scope.owner)
                self._expressions(node.body, inner)
                continue
            stack.extend((one, False) for one in ast.iter_child_nodes(node))

    def _call(self, node: ast.Call, scope: _Scope) -> None:
        where = self._concern(node)
        if where is None:
            return
        func = node.func
        while isinstance(func, ast.Subscript):
            # ``kernel[grid](...)``
            func = func.value
        if isinstance(func, ast.Name) and func.id == "setattr" and len(node.args) == 3:
            owner = self._typer.infer(node.args[0], scope.names)
            name = node.args[1]
            if (
                isinstance(owner, (ModuleFound, Found))
                and isinstance(name, ast.Constant)
                and isinstance(name.value, str)
            ):
                self._replaced(where, owner, name.value, node.args[2])
            return
        value = self._typer.infer(func, scope.names)
        shape = call_of(node, scope.function.name if scope.function else "")
        if isinstance(value, Bound):
            upstream = self._upstream(value.member)
            if upstream is not None and upstream.symbol.kind is SymbolKind.FUNCTION:
                self._use(
                    UseKind.CALL, where, target=upstream, call=shape, bound=value.implicit,
                    owner=self._upstream(value.owner),
                )  # fmt: skip
        elif isinstance(value, Found):
            upstream = self._upstream(value)
            if upstream is not None:
                self._use(UseKind.CALL, where, target=upstream, call=shape)

    def _attribute(self, node: ast.Attribute, scope: _Scope, called: bool) -> None:
        line = node.end_lineno or node.lineno
        where = self._changed.get(line)
        if where is None or not isinstance(node.ctx, ast.Load):
            return
        text = _dotted(node)
        if text is not None and text.startswith("torch.ops.") and text.count(".") == 3:
            self._use(UseKind.OPERATOR, where, subject=text)
            return
        holder = self._typer.infer(node.value, scope.names)
        value = self._typer.attribute(holder, node.attr)
        if isinstance(value, Bound):
            upstream = self._upstream(value.member)
            if upstream is not None and not (called and upstream.is_method):
                # A method that is called has a use of its own.
                self._use(
                    UseKind.READ, where, target=upstream, owner=self._upstream(value.owner),
                    called=called,
                )  # fmt: skip
        elif isinstance(value, Found) and isinstance(holder, ModuleFound):
            upstream = self._upstream(value)
            if upstream is not None:
                self._use(
                    UseKind.IMPORT, where, target=upstream,
                    subject=f"{holder.module}:{node.attr}",
                )  # fmt: skip
        elif isinstance(value, ModuleFound) and value.module in self._old.modules:
            self._use(UseKind.IMPORT_MODULE, where, subject=value.module)
        elif (
            isinstance(value, (Outside, Missing))
            and isinstance(holder, Outside)
            and not called
            and text is not None
            and self._is_local(node, scope)
        ):
            self._use(UseKind.UNTYPED_READ, where, subject=text)

    def _is_local(self, node: ast.Attribute, scope: _Scope) -> bool:
        """Whether the text begins with a local name, so that nothing outside is known of it."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and (root.id in scope.local or root.id == "self")

    def _name(self, node: ast.Name, scope: _Scope) -> None:
        where = self._changed.get(node.lineno)
        if where is None:
            return
        upstream_function = self._upstream(scope.function) if scope.function is not None else None
        if node.id in scope.local:
            if upstream_function is not None and node.id not in scope.own:
                self._use(UseKind.LOCAL, where, target=upstream_function, subject=node.id)
            return
        if node.id in scope.names or self._path not in self._old.files:
            return
        before = self._old.facts(self._path)
        if node.id in before.imports or node.id in before.symbols:
            now = self._patched.facts(self._path)
            bound = now.imports.get(node.id)
            symbol = now.symbols.get(node.id)
            line = bound.line if bound is not None else symbol.line if symbol is not None else 0
            if line not in self._changed:
                answer = self._old.lookup(self._module, node.id)
                self._use(
                    UseKind.NAME, where, subject=node.id,
                    target=answer if isinstance(answer, Found) else None,
                )  # fmt: skip


def _parameter_names(arguments: ast.arguments) -> frozenset[str]:
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    listed += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return frozenset(one.arg for one in listed)


def _own_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements of a function in order, those of inner definitions left out."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, field, ()) if not isinstance(node, ast.Lambda) else ():
            if isinstance(one, (*_FUNCTIONS, ast.ClassDef)):
                continue
            if isinstance(one, ast.stmt):
                yield one
            yield from _own_statements(one)


def _assignments(
    node: ast.stmt,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """(name, value, annotation) of what a statement assigns to plain names."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value, None
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value, node.annotation
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                yield item.optional_vars.id, None, None
    elif isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Name):
        yield node.target.id, None, None


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join((node.id, *reversed(parts)))


_NOWHERE = Symbol(SymbolKind.FUNCTION, 0, 0)
