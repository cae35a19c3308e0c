"""Names that the lines of a series take from what stands around them."""

from __future__ import annotations

from collections.abc import Iterator

from dsv4port.drift.compare import Comparison, State
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Found, Place, TreeIndex
from dsv4port.drift.signature import Change, parameter_changes
from dsv4port.drift.uses import Use

_MANY_FILES = 40
"""An attribute that more files read is not looked after by counting its readers."""
_FEWEST_READERS = 2
_SHORTEST = 6
_KEPT_SHARE = 0.34


def name_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """A name that the file bound at module level, if it does so no longer."""
    path, name = use.where.path, use.subject
    home = path if path in known.new.files else known.file(path).path
    if home is None or path not in known.old.files:
        return
    facts = known.new.facts(home)
    if not facts.readable or facts.stars or name in facts.symbols or name in facts.imports:
        return
    if "__getattr__" in facts.symbols:
        return
    if use.target is not None and use.target.path == path:
        fate = known.fate(use.target)
        if fate.state is State.UNKNOWN:
            return
        new = fate.new
        kind = {State.MOVED: Kind.SYMBOL_MOVED, State.RENAMED: Kind.SYMBOL_RENAMED}.get(
            fate.state, Kind.SYMBOL_REMOVED
        )
        what = "is gone" if new is None else f"is {new.name} in {new.path} now"
        yield Finding(
            kind, Severity.ERROR, f"{use.target.module}:{name}", f"{name} {what}",
            use.target.place, None if new is None else new.place,
            None if new is None else f"{new.module}:{new.name}", fate.reasons,
        )  # fmt: skip
        return
    before = known.old.facts(path)
    bound = before.imports.get(name)
    if bound is None:
        return
    inside = name in facts.inner
    yield Finding(
        Kind.NAME_UNBOUND,
        Severity.WARNING if inside else Severity.ERROR,
        f"{path}:{name}",
        f"{home} imports {name} only inside of functions now"
        if inside
        else f"{home} imports {name} no longer, the patch has to do it itself",
        Place(path, bound.line), Place(home, 1),
        f"from {bound.module} import {bound.name}" if bound.name else f"import {bound.module}",
    )  # fmt: skip


def local_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """A parameter or local name of upstream's function, if the function has it no longer."""
    function, name = use.target, use.subject
    assert function is not None
    if name not in _bound_in(known, known.old, function):
        return
    fate = known.fate(function)
    new = fate.new
    if new is None or fate.state is State.RENAMED or _last(new.owner) != _last(function.owner):
        # Another function has its place: that is said of the function as a whole.
        return
    bound = _bound_in(known, known.new, new)
    if not bound or name in bound or name in known.new.facts(new.path).imports:
        return
    subject = f"{function.module}:{function.name}({name})"
    old_names = {one.name for one in function.symbol.parameters}
    if name in old_names:
        renamed = next(
            (
                one.new
                for one in parameter_changes(function.symbol.parameters, new.symbol.parameters)
                if one.change is Change.RENAMED and one.name == name
            ),
            None,
        )
        kind = Kind.PARAMETER_REMOVED if renamed is None else Kind.PARAMETER_RENAMED
        what = "is gone" if renamed is None else f"is {renamed.name} now"
        yield Finding(
            kind, Severity.ERROR, subject, f"{function.name}: parameter {name} {what}",
            function.place, new.place, None if renamed is None else renamed.name,
        )  # fmt: skip
        return
    yield Finding(
        Kind.NAME_UNBOUND, Severity.ERROR, subject,
        f"{function.name} has no local name {name} any more", function.place, new.place,
    )  # fmt: skip


def _bound_in(known: Comparison, index: TreeIndex, function: Found) -> frozenset[str]:
    """The names that a function binds; none where its file does not parse."""
    return known.syntax(index, function.path).bound_at(function.symbol.line)


def untyped_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """An attribute of something of unknown class, if upstream stopped reading it.

    That is seen by its readers: files that read it by the same text. If the very file that the
    patch changes was one of them and is none now, and of the others few are left, it is gone.
    """
    receiver, _, name = use.subject.rpartition(".")
    path = use.where.path
    if len(name) < _SHORTEST or path not in known.old.files or name.startswith("__"):
        return
    home = path if path in known.new.files else known.file(path).path
    if home is None:
        return
    if "config" not in receiver and not known.old.defining_paths(name):
        # Nothing in the tree has such an attribute: the object comes from outside.
        return
    mentions = known.old.mentions(name)
    if path not in mentions or len(mentions) > _MANY_FILES or _reads(known, known.new, home, name):
        return
    readers = [one for one in mentions if _reads(known, known.old, one, name)]
    if path not in readers or len(readers) < _FEWEST_READERS:
        return
    if any(one.symbol.kind.value != "attribute" for one in known.new.definitions_of(name)):
        return
    left = [one for one in known.new.mentions(name) if _reads(known, known.new, one, name)]
    if len(left) > _KEPT_SHARE * len(readers):
        return
    yield Finding(
        Kind.ATTRIBUTE_GONE, Severity.WARNING, f"{receiver}.{name}",
        f"upstream no longer reads {use.subject}: {len(left)} of {len(readers)} files still do",
        Place(path, _reads(known, known.old, path, name)), Place(home, 1),
    )  # fmt: skip


def _reads(known: Comparison, index: TreeIndex, path: str, name: str) -> int:
    """The first line where a file reads an attribute of that name, 0 where it does not."""
    if not path.endswith(".py"):
        return 0
    return known.syntax(index, path).reads.get(name, 0)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
