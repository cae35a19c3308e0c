"""The symbols of one tree: modules, what a name in them stands for, members of classes.

Answers are one of four: a definition in the tree, a module of the tree, something from outside
(unknown, and proving nothing), or *missing*: the tree owns the module, and it has no such name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from dsv4port.drift.extract import CALLS, DEFINES, MENTIONS, is_source, reader_of, word_roles
from dsv4port.drift.facts import EMPTY, UNREADABLE, Call, Facts, Flag, Parameter, Symbol, SymbolKind
from dsv4port.git.objects import blob_id

SOURCE_ROOTS = ("src/", "python/", "lib/")
"""Folders that hold packages without being one."""


class FactSource(Protocol):
    """Where facts come from, by blob id."""

    def facts(self, blob: str) -> Facts | None:
        """Facts of a blob, None when there are none."""
        ...

    def calls(self, blob: str) -> tuple[Call, ...]:
        """Calls in a blob."""
        ...

    def blobs_with(self, word: str, roles: int) -> frozenset[str]:
        """Blobs that may use the word in one of the roles."""
        ...


class Place(NamedTuple):
    """A line of a file of the tree."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Found:
    """A definition: the module, path and qualified name that hold it."""

    module: str
    path: str
    name: str
    symbol: Symbol

    @property
    def place(self) -> Place:
        """Where it is defined."""
        return Place(self.path, self.symbol.line)

    @property
    def key(self) -> tuple[str, str]:
        """Path and name, by which definitions of one tree are told apart."""
        return self.path, self.name

    @property
    def is_method(self) -> bool:
        """Whether it is called where it is used, and not read: no property, no variable."""
        return self.symbol.kind is SymbolKind.FUNCTION and not self.symbol.flags & Flag.PROPERTY

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]

    @property
    def owner(self) -> str:
        """The qualified name of the class around it, empty at module level."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class ModuleFound:
    """A module or package of the tree; ``path`` is empty for a folder without ``__init__``."""

    module: str
    path: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The tree owns ``module``, and it has no ``name``."""

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Outside:
    """Something the tree does not own, or that cannot be known without running it."""


OUTSIDE = Outside()
Answer = Found | ModuleFound | Missing | Outside


class MemoryFacts:
    """Facts of contents that are at hand, over those of another source."""

    def __init__(self, contents: Mapping[str, bytes], below: FactSource | None = None) -> None:
        self._below = below
        self._facts: dict[str, Facts] = {}
        self._calls: dict[str, tuple[Call, ...]] = {}
        self._roles: dict[str, dict[str, int]] = {}
        for path, content in contents.items():
            read = reader_of(path)
            if read is not None:
                blob = blob_id(content)
                if below is not None and below.facts(blob) is not None:
                    continue
                found = read(content)
                self._facts[blob] = found.facts
                self._calls[blob] = tuple(found.calls)
                self._roles[blob] = word_roles(found)

    def facts(self, blob: str) -> Facts | None:
        """Facts of a blob, None when there are none."""
        if blob in self._facts:
            return self._facts[blob]
        return None if self._below is None else self._below.facts(blob)

    def calls(self, blob: str) -> tuple[Call, ...]:
        """Calls in a blob."""
        if blob in self._calls:
            return self._calls[blob]
        return () if self._below is None else self._below.calls(blob)

    def blobs_with(self, word: str, roles: int) -> frozenset[str]:
        """Blobs that may use the word in one of the roles."""
        here = frozenset(blob for blob, known in self._roles.items() if known.get(word, 0) & roles)
        return here if self._below is None else here | self._below.blobs_with(word, roles)


class TreeIndex:
    """One tree.

    Parameters:
        files: blob id of every file by path.
        source: facts by blob id.
        read: content of a blob.
        unread: top folders that count as not indexed, whatever the source knows of them, so that
            what is found does not depend on what was indexed before.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        source: FactSource,
        read: Callable[[str], bytes],
        unread: frozenset[str] = frozenset(),
    ) -> None:
        self.files = files
        self._unread = unread
        self.source = source
        self._read = read
        self._mro: dict[tuple[str, str], Lineage] = {}

    def with_files(self, changed: Mapping[str, bytes | None]) -> TreeIndex:
        """The same tree with some files replaced, added, or (None) removed."""
        contents = {path: content for path, content in changed.items() if content is not None}
        files = {path: blob for path, blob in self.files.items() if path not in changed}
        made = {blob_id(content): content for content in contents.values()}
        files.update((path, blob_id(content)) for path, content in contents.items())
        read = self._read
        return TreeIndex(
            files,
            MemoryFacts(contents, self.source),
            lambda blob: made[blob] if blob in made else read(blob),
            self._unread,
        )

    # ---- files

    def content(self, path: str) -> bytes:
        """Content of a file of the tree."""
        return self._read(self.files[path])

    def facts(self, path: str) -> Facts:
        """Facts of a file: none where there is no file, unreadable where it was not indexed."""
        blob = self.files.get(path)
        if blob is None:
            return EMPTY
        found = None if self._is_unread(path) else self.source.facts(blob)
        if found is None:
            return UNREADABLE if is_source(path) else EMPTY
        return found

    def calls(self, path: str) -> tuple[Call, ...]:
        """Calls in a file."""
        return self.source.calls(self.files[path])

    @cached_property
    def paths_of_blob(self) -> Mapping[str, list[str]]:
        """Paths by blob id."""
        found: dict[str, list[str]] = {}
        for path, blob in self.files.items():
            found.setdefault(blob, []).append(path)
        return found

    def _paths_with(self, word: str, roles: int) -> Iterator[str]:
        paths = self.paths_of_blob
        for blob in sorted(self.source.blobs_with(word, roles)):
            yield from (path for path in paths.get(blob, ()) if not self._is_unread(path))

    def _is_unread(self, path: str) -> bool:
        return path.partition("/")[0] in self._unread

    def defining_paths(self, last: str) -> list[str]:
        """Files that define a symbol of this last name."""
        return sorted(self._paths_with(last, DEFINES))

    def definitions_of(self, last: str) -> Iterator[Found]:
        """Every symbol of the tree whose last name is `last`."""
        for path in self._paths_with(last, DEFINES):
            for name, symbol in self.facts(path).symbols.items():
                if name == last or name.endswith((f".{last}", f"::{last}")):
                    yield Found(module_of(path), path, name, symbol)

    def callers_of(self, last: str) -> Iterator[tuple[str, Call]]:
        """Every call whose callee ends in `last`, with its path."""
        for path in self._paths_with(last, CALLS):
            for call in self.calls(path):
                if call.callee.rpartition(".")[2] == last:
                    yield path, call

    def mentions(self, word: str) -> list[str]:
        """Files that use the word in code, as a name, attribute, keyword or whole text."""
        return sorted(self._paths_with(word, DEFINES | CALLS | MENTIONS))

    # ---- modules

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """Path by module name; a package's is that of its ``__init__.py``."""
        return {module_of(path): path for path in self.files if path.endswith(".py")}

    @cached_property
    def packages(self) -> frozenset[str]:
        """Every folder of a module, as a dotted name."""
        found: set[str] = set()
        for module in self.modules:
            parent = module.rpartition(".")[0]
            while parent and parent not in found:
                found.add(parent)
                parent = parent.rpartition(".")[0]
        return frozenset(found)

    def owns(self, module: str) -> bool:
        """Whether a module of this name would lie in this tree."""
        top = module.partition(".")[0]
        return top in self.packages or top in self.modules

    def module(self, module: str) -> Answer:
        """A module by its full name."""
        if module in self.modules:
            return ModuleFound(module, self.modules[module])
        if module in self.packages:
            return ModuleFound(module, "")
        if not self.owns(module):
            return OUTSIDE
        parent, _, name = module.rpartition(".")
        return Missing(parent, name)

    # ---- names

    def lookup(self, module: str, name: str, _depth: int = 0) -> Answer:
        """What `name` in `module` stands for, through imports and re-exports."""
        path = self.modules.get(module)
        if path is None:
            return self.module(f"{module}.{name}") if self.owns(module) else OUTSIDE
        facts = self.facts(path)
        if not facts.readable or _depth > 12:
            return OUTSIDE
        symbol = facts.symbols.get(name)
        if symbol is not None:
            return Found(module, path, name, symbol)
        bound = facts.imports.get(name)
        if bound is not None:
            return self.follow(module, path, bound.module, bound.name, bound.level, _depth + 1)
        if f"{module}.{name}" in self.modules or f"{module}.{name}" in self.packages:
            return self.module(f"{module}.{name}")
        for star, level in facts.stars:
            target = absolute(module, path, star, level)
            if not self.owns(target):
                return OUTSIDE
            found = self.lookup(target, name, _depth + 1)
            if not isinstance(found, Missing):
                return found
        if "__getattr__" in facts.symbols or name.startswith("__"):
            return OUTSIDE
        return Missing(module, name)

    def follow(
        self, module: str, path: str, target: str, name: str | None, level: int, _depth: int = 0
    ) -> Answer:
        """What an import in `module` binds its name to."""
        full = absolute(module, path, target, level)
        if name is None:
            return self.module(full)
        if not self.owns(full):
            return OUTSIDE
        return self.lookup(full, name, _depth)

    def chain(self, start: Answer, names: Iterable[str]) -> Answer:
        """What attribute after attribute leads to from `start`."""
        found = start
        for name in names:
            if isinstance(found, ModuleFound):
                found = self.lookup(found.module, name)
            elif isinstance(found, Found) and found.symbol.kind is SymbolKind.CLASS:
                found = self.member(found, name)
            else:
                return OUTSIDE
        return found

    def resolve(self, module: str, text: str) -> Answer:
        """What dotted text at module level of `module` stands for."""
        first, *rest = text.split(".")
        found = self.lookup(module, first)
        if isinstance(found, Missing):
            return OUTSIDE
        return self.chain(found, rest)

    # ---- classes

    def lineage(self, owner: Found) -> Lineage:
        """The class and its bases, nearest first; not exactly Python's order, but near it."""
        known = self._mro.get(owner.key)
        if known is None:
            # A class that is its own ancestor does not run; here it must not hang either.
            self._mro[owner.key] = Lineage((owner,), True)
            classes: dict[tuple[str, str], Found] = {owner.key: owner}
            closed = True
            for text in owner.symbol.bases:
                base = self.resolve_in(owner, text.partition("[")[0])
                if isinstance(base, Found) and base.symbol.kind is SymbolKind.CLASS:
                    above = self.lineage(base)
                    closed = closed and above.closed
                    for one in above.classes:
                        classes.pop(one.key, None)
                        classes[one.key] = one
                elif text.partition("[")[0] not in _HARMLESS_BASES:
                    closed = False
            known = self._mro[owner.key] = Lineage(tuple(classes.values()), closed)
        return known

    def outside_bases(self, owner: Found) -> frozenset[str]:
        """Bases of a class, or of its bases, that are not in the tree, as they are written."""
        found: set[str] = set()
        for one in self.lineage(owner).classes:
            for text in one.symbol.bases:
                name = text.partition("[")[0]
                base = self.resolve_in(one, name)
                if name not in _HARMLESS_BASES and not isinstance(base, Found):
                    found.add(name.rpartition(".")[2])
        return frozenset(found)

    def resolve_in(self, owner: Found, text: str) -> Answer:
        """Like `resolve`, as seen from a definition; names of the same class come first."""
        facts = self.facts(owner.path)
        first, _, rest = text.partition(".")
        nested = facts.symbols.get(f"{owner.owner}.{first}") if owner.owner else None
        if nested is not None and nested.kind is SymbolKind.CLASS:
            start = Found(owner.module, owner.path, f"{owner.owner}.{first}", nested)
            return self.chain(start, rest.split(".") if rest else ())
        found = self.resolve(owner.module, text)
        if isinstance(found, Outside) and first in facts.inner and first not in facts.imports:
            bound = facts.inner[first]
            base = self.follow(owner.module, owner.path, bound.module, bound.name, bound.level)
            return self.chain(base, rest.split(".") if rest else ())
        return found

    def member(self, owner: Found, name: str) -> Answer:
        """A member of a class or its bases; Missing only where all bases are known enough."""
        lineage = self.lineage(owner)
        weak: Found | None = None
        for one in lineage.classes:
            symbol = self.facts(one.path).symbols.get(f"{one.name}.{name}")
            if symbol is not None:
                found = Found(one.module, one.path, f"{one.name}.{name}", symbol)
                if symbol.kind is not SymbolKind.ATTRIBUTE:
                    return found
                weak = weak or found
        if weak is not None:
            return weak
        if any(
            f"{one.name}.__getattr__" in self.facts(one.path).symbols for one in lineage.classes
        ):
            return OUTSIDE
        return Missing(owner.module, f"{owner.name}.{name}")

    def constructor(self, owner: Found) -> tuple[tuple[Parameter, ...], Found] | None:
        """Parameters that making an instance takes, without ``self``, and where they come from.

        None where that cannot be known: a base or metaclass from outside decides it.
        """
        lineage = self.lineage(owner)
        for one in lineage.classes:
            symbols = self.facts(one.path).symbols
            made = symbols.get(f"{one.name}.__init__") or symbols.get(f"{one.name}.__new__")
            if made is not None and made.kind is SymbolKind.FUNCTION:
                if made.flags & Flag.PATCHED or f"{one.name}.__init__" in self.variants(one.path):
                    return None
                name = "__init__" if f"{one.name}.__init__" in symbols else "__new__"
                return made.parameters[1:], Found(one.module, one.path, f"{one.name}.{name}", made)
            if is_dataclass(one.symbol):
                return None if one.symbol.flags & Flag.NO_INIT else (self.fields(one), one)
            if not self.lineage(one).closed and not any(
                f"{other.name}.__init__" in self.facts(other.path).symbols
                for other in lineage.classes
            ):
                return None
        return ((), owner) if lineage.closed else None

    def variants(self, path: str) -> Mapping[str, tuple[Symbol, ...]]:
        """Further definitions of names that a file defines several times."""
        return self.facts(path).variants

    def fields(self, owner: Found) -> tuple[Parameter, ...]:
        """The constructor's parameters of a dataclass, those of its bases first."""
        from dsv4port.drift.facts import ParameterKind

        found: dict[str, Parameter] = {}
        for one in reversed(self.lineage(owner).classes):
            if not is_dataclass(one.symbol) and one.key != owner.key:
                continue
            for name, symbol in self.own_fields(one):
                if symbol.flags & Flag.NO_INIT:
                    found.pop(name, None)
                    continue
                by_name = (symbol.flags | one.symbol.flags) & Flag.KEYWORD_ONLY
                kind = ParameterKind.KEYWORD_ONLY if by_name else ParameterKind.NORMAL
                found[name] = Parameter(name, kind, symbol.value, symbol.annotation)
        return tuple(found.values())

    def own_fields(self, owner: Found) -> Iterator[tuple[str, Symbol]]:
        """The annotated variables of a class itself, in order."""
        prefix = f"{owner.name}."
        for name, symbol in self.facts(owner.path).symbols.items():
            if (
                name.startswith(prefix)
                and symbol.kind is SymbolKind.VARIABLE
                and symbol.flags & Flag.ANNOTATED
                and "." not in name[len(prefix) :]
                and not (symbol.annotation or "").startswith(("ClassVar", "typing.ClassVar"))
            ):
                yield name[len(prefix) :], symbol

    def members(self, owner: Found) -> Iterator[tuple[str, Found]]:
        """The members that a class itself has."""
        prefix = f"{owner.name}."
        for name, symbol in self.facts(owner.path).symbols.items():
            if name.startswith(prefix) and "." not in name[len(prefix) :]:
                yield name[len(prefix) :], Found(owner.module, owner.path, name, symbol)

    def abstract_methods(self, owner: Found) -> dict[str, Found]:
        """Abstract methods that instances of the class would lack."""
        found: dict[str, Found] = {}
        for one in reversed(self.lineage(owner).classes):
            for name, member in self.members(one):
                if member.symbol.flags & Flag.ABSTRACT:
                    found[name] = member
                else:
                    found.pop(name, None)
        return found

    def symbol_at(self, path: str, line: int) -> Found | None:
        """The innermost function or class around a line."""
        best: Found | None = None
        for name, symbol in self.facts(path).symbols.items():
            if symbol.kind in (SymbolKind.FUNCTION, SymbolKind.CLASS) and (
                symbol.line <= line <= symbol.end
            ):
                found = Found(module_of(path), path, name, symbol)
                if best is None or symbol.line >= best.symbol.line:
                    best = found
        return best

    def find(self, path: str, name: str) -> Found | None:
        """A definition by its path and qualified name."""
        symbol = self.facts(path).symbols.get(name)
        return None if symbol is None else Found(module_of(path), path, name, symbol)


@dataclass(frozen=True, slots=True)
class Lineage:
    """A class with its bases; ``closed`` is False where a base is not in the tree."""

    classes: tuple[Found, ...]
    closed: bool


_HARMLESS_BASES = frozenset(
    ("object", "ABC", "abc.ABC", "Generic", "Protocol", "typing.Protocol", "typing.Generic")
)
_DATACLASS = frozenset(
    {
        "dataclass",
        "dataclasses.dataclass",
        "config",
        "pydantic_dataclass",
        "pydantic.dataclasses.dataclass",
        "define",
        "attrs.define",
        "attr.s",
        "attr.dataclass",
    }
)


def is_dataclass(symbol: Symbol) -> bool:
    """Whether the annotated variables of a class are its constructor's parameters."""
    return any(one.partition("(")[0] in _DATACLASS for one in symbol.decorators) or any(
        base.rpartition(".")[2] in ("NamedTuple", "BaseModel", "Struct") for base in symbol.bases
    )


def module_of(path: str) -> str:
    """The module name of a Python file (of another file, its path)."""
    if not path.endswith(".py"):
        return path
    for root in SOURCE_ROOTS:
        if path.startswith(root):
            path = path[len(root) :]
    name = path[:-3].replace("/", ".")
    return name.removesuffix(".__init__") if name != "__init__" else ""


def absolute(module: str, path: str, target: str, level: int) -> str:
    """The full name of the module that an import names."""
    if level == 0:
        return target
    parts = module.split(".")
    drop = level - 1 if path.endswith("__init__.py") else level
    base = parts[: len(parts) - drop] if drop else parts
    return ".".join((*base, target)) if target else ".".join(base)
