"""Which changes between two trees matter to what a series uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dsv4port.drift.callers import misfit_callers
from dsv4port.drift.compare import Comparison, Fate, State
from dsv4port.drift.facts import Flag, SymbolKind
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Found, Missing, Place, TreeIndex, module_of
from dsv4port.drift.match_calls import call_findings
from dsv4port.drift.match_names import local_finding, name_finding, untyped_finding
from dsv4port.drift.match_native import include_finding, native_finding, operator_finding
from dsv4port.drift.signature import Change, parameter_changes
from dsv4port.drift.uses import Use, UseKind

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def find_drift(
    old: TreeIndex, new: TreeIndex, uses: Iterable[Use], *, comparison: Comparison | None = None
) -> Iterator[Finding]:
    """What changed from `old` to `new` that matters to `uses`.

    Equal trees give nothing. Each finding comes once, with every line of the series that it
    concerns.

    Parameters:
        old: the tree that the series is written for, without the series.
        new: the tree it is to be carried to.
        comparison: what is known of the two trees already.
    """
    if old.files == new.files:
        return
    known = comparison or Comparison(old, new)
    merged: dict[tuple[object, ...], Finding] = {}
    for use in uses:
        for found in _findings(known, use):
            key = (found.kind, found.subject, found.message)
            before = merged.get(key)
            if before is None:
                merged[key] = found
            else:
                concerns = dict.fromkeys((*before.concerns, *found.concerns))
                worst = max(before, found, key=lambda one: one.severity.rank)
                merged[key] = replace(worst, concerns=tuple(concerns))
    yield from sorted(_without_echoes(merged.values()), key=lambda one: one.sort_key)


def _without_echoes(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that another one does not already imply."""
    kept = list(findings)
    gone_modules = {
        one.subject for one in kept if one.kind in (Kind.MODULE_GONE, Kind.MODULE_MOVED)
    }
    gone_files = {
        one.old.path
        for one in kept
        if one.old is not None and one.kind in (Kind.FILE_GONE, Kind.FILE_MOVED, Kind.FILE_REPLACED)
    }
    gone_symbols = {
        one.subject
        for one in kept
        if one.kind in (Kind.SYMBOL_REMOVED, Kind.SYMBOL_RENAMED, Kind.SYMBOL_MOVED)
    }
    result = []
    for one in kept:
        module = one.subject.partition(":")[0]
        if ":" in one.subject and module in gone_modules and one.kind in _FOLLOWS_MODULE:
            continue
        if one.kind in _FOLLOWS_FILE and one.old is not None and one.old.path in gone_files:
            continue
        owner = one.subject.rpartition(".")[0]
        if one.kind in _FOLLOWS_OWNER and owner in gone_symbols:
            continue
        result.append(one)
    return result


_FOLLOWS_MODULE = (Kind.SYMBOL_MOVED, Kind.REEXPORT_GONE)
_FOLLOWS_FILE = (Kind.SYMBOL_MOVED, Kind.NAME_UNBOUND)
_FOLLOWS_OWNER = (Kind.SYMBOL_REMOVED, Kind.SYMBOL_MOVED, Kind.FIELD_REMOVED, Kind.ATTRIBUTE_GONE)


def _findings(known: Comparison, use: Use) -> Iterator[Finding]:
    for found in _BY_KIND[use.kind](known, use):
        yield replace(found, concerns=(use.where,))


# ---- files and modules


def _file(known: Comparison, use: Use) -> Iterator[Finding]:
    path = use.subject
    if path not in known.old.files:
        return
    fate = known.file(path)
    place = Place(path, 1)
    if fate.state is State.REMOVED:
        yield Finding(
            Kind.FILE_GONE, ERROR, path, f"{path}, which the patch changes, is gone", place
        )
    elif fate.path != path:
        assert fate.path is not None
        kind = Kind.FILE_REPLACED if fate.replaced else Kind.FILE_MOVED
        what = "holds other content now" if fate.replaced else "has moved"
        share = f"{fate.likeness:.0%} of the lines are in {fate.path}"
        yield Finding(
            kind, WARNING, path, f"{path}, which the patch changes, {what}", place,
            Place(fate.path, 1), fate.path, (share,),
        )  # fmt: skip


def _new_file(known: Comparison, use: Use) -> Iterator[Finding]:
    if use.subject in known.new.files and use.subject not in known.old.files:
        yield Finding(
            Kind.FILE_TAKEN, WARNING, use.subject,
            f"{use.subject}, which the patch adds, is there now", None, Place(use.subject, 1),
        )  # fmt: skip


def _module(known: Comparison, use: Use) -> Iterator[Finding]:
    if not isinstance(known.new.module(use.subject), Missing):
        return
    yield _module_gone(known, use.subject)


def _module_gone(known: Comparison, module: str) -> Finding:
    path = known.old.modules.get(module, "")
    if path:
        fate = known.file(path)
        if fate.state is State.MOVED and fate.path is not None:
            return Finding(
                Kind.MODULE_MOVED, ERROR, module, f"module {module} lies elsewhere",
                Place(path, 1), Place(fate.path, 1), fate.path,
                (f"{fate.likeness:.0%} of the lines are in {fate.path}",),
            )  # fmt: skip
    place = Place(path, 1) if path else None
    return Finding(Kind.MODULE_GONE, ERROR, module, f"module {module} is gone", place)


# ---- definitions


_CHANGED_HERE = "which the patch changes"


def _edit(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    if known.file(target.path).state is State.REMOVED:
        return
    fate = known.fate(target)
    owner = known.old.find(target.path, target.owner) if target.owner else None
    if owner is not None and fate.state is State.UNKNOWN:
        home = known.fate(owner)
        if home.state in (State.REMOVED, State.RENAMED, State.MOVED):
            yield gone_finding(owner, home, WARNING if home.new else ERROR, _CHANGED_HERE)
        return
    if fate.state in (State.THERE, State.UNKNOWN):
        if fate.new is not None and fate.new.key != target.key:
            yield gone_finding(target, Fate(State.MOVED, fate.new, True, fate.reasons), WARNING)
        return
    severity = ERROR if fate.state is State.REMOVED else WARNING
    yield gone_finding(target, fate, severity, _CHANGED_HERE)


def _define(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    there = known.new.find(target.path, target.name)
    if there is not None:
        yield Finding(
            Kind.NAME_TAKEN, WARNING, _subject(target),
            f"{target.name}, which the patch adds to {target.path}, is defined there now",
            None, there.place,
        )  # fmt: skip


def _import(known: Comparison, use: Use) -> Iterator[Finding]:
    module, _, name = use.subject.partition(":")
    if isinstance(known.new.module(module), Missing):
        finding = _module_gone(known, module)
        if use.target is not None:
            fate = known.fate(use.target)
            if fate.new is not None:
                where = f"{name} is at {fate.new.place}" + (
                    f" as {fate.new.name}" if fate.new.name != name else ""
                )
                finding = replace(finding, evidence=(*finding.evidence, where))
        yield finding
        return
    answer = known.new.lookup(module, name)
    if isinstance(answer, Missing):
        if use.target is None:
            yield Finding(
                Kind.SYMBOL_REMOVED, ERROR, use.subject, f"{module} has no {name} any more"
            )
            return
        fate = known.fate(use.target)
        if fate.state is State.THERE and fate.new is not None:
            yield Finding(
                Kind.REEXPORT_GONE, ERROR, use.subject, f"{module} gives {name} no longer",
                use.target.place, fate.new.place, f"{fate.new.module}:{fate.new.name}",
            )  # fmt: skip
        else:
            yield gone_finding(use.target, fate, ERROR)
        return
    if use.target is not None and isinstance(answer, Found):
        yield from _kind_change(use.target, answer)
        yield from value_findings(use.target, answer)


def _kind_change(old: Found, new: Found) -> Iterator[Finding]:
    kinds = {old.symbol.kind, new.symbol.kind}
    if len(kinds) == 2 and kinds & {SymbolKind.FUNCTION, SymbolKind.CLASS}:
        yield Finding(
            Kind.KIND_CHANGED, WARNING, _subject(old),
            f"{old.name} was a {old.symbol.kind.value} and is a {new.symbol.kind.value}",
            old.place, new.place,
        )  # fmt: skip


def value_findings(old: Found, new: Found) -> Iterator[Finding]:
    """A constant at module level whose plain value changed."""
    before, after = old.symbol.value, new.symbol.value
    if (
        old.symbol.kind is new.symbol.kind is SymbolKind.VARIABLE
        and not old.owner
        and before != after
        and before is not None
        and after is not None
        and _LITERAL.fullmatch(before)
    ):
        yield Finding(
            Kind.VALUE_CHANGED, Severity.NOTE, _subject(old),
            f"{old.name} is {after} instead of {before}", old.place, new.place,
        )  # fmt: skip


_LITERAL = re.compile(r"""-?[\d._]+(?:e-?\d+)?|0x[0-9a-fA-F]+|"[^"]*"|'[^']*'|True|False|None""")


def _read(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    fate = known.fate(target)
    if use.owner is not None and use.owner.name != target.owner:
        # What counts is whether the class it is read through still has it.
        home = known.fate(use.owner).new
        if home is None:
            return
        answer = known.new.member(home, target.last)
        if isinstance(answer, Found):
            fate = Fate(State.THERE, answer, True)
        elif not isinstance(answer, Missing):
            return
    if fate.state is State.UNKNOWN:
        return
    if fate.state is State.THERE:
        assert fate.new is not None
        new = fate.new
        if target.is_method:
            # An attribute may hold what can be called; a property gives something else.
            changed = bool(new.symbol.flags & Flag.PROPERTY)
        else:
            changed = new.is_method and not use.called
        if changed:
            now = "a method" if new.is_method else "a property"
            yield Finding(
                Kind.KIND_CHANGED, ERROR, _subject(target), f"{target.name} is {now} now",
                target.place, new.place,
            )  # fmt: skip
        return
    yield gone_finding(target, fate, ERROR)


def gone_finding(target: Found, fate: Fate, severity: Severity, why: str = "") -> Finding:
    """The finding for a definition that is not where it was."""
    data = target.symbol.kind in (SymbolKind.VARIABLE, SymbolKind.ATTRIBUTE) and target.owner
    comma = f", {why}," if why else ""
    if fate.state is State.RENAMED and fate.new is not None:
        kind = Kind.FIELD_RENAMED if data else Kind.SYMBOL_RENAMED
        what = f"is very likely {fate.new.name} now"
    elif fate.state is State.MOVED and fate.new is not None:
        kind = Kind.SYMBOL_MOVED
        what = f"is in {fate.new.path} now"
        if fate.new.name != target.name:
            what = f"is {fate.new.name} in {fate.new.path} now"
    else:
        kind = Kind.SYMBOL_REMOVED
        if data:
            field = target.symbol.kind is SymbolKind.VARIABLE
            kind = Kind.FIELD_REMOVED if field else Kind.ATTRIBUTE_GONE
        what = "is gone"
    new = fate.new
    return Finding(
        kind, severity, _subject(target), f"{target.name}{comma} {what}", target.place,
        None if new is None else new.place,
        None if new is None else f"{new.module}:{new.name}", fate.reasons,
    )  # fmt: skip


def _subject(found: Found) -> str:
    return f"{found.module}:{found.name}"


# ---- classes


def _subclass(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    fate = known.fate(target)
    if fate.new is None or fate.new.symbol.kind is not SymbolKind.CLASS:
        if fate.state is not State.UNKNOWN:
            yield gone_finding(target, fate, ERROR)
        return
    before = {base.partition("[")[0] for base in target.symbol.bases}
    after = {base.partition("[")[0] for base in fate.new.symbol.bases}
    if before != after:
        lost = sorted(before - after)
        detail = ", ".join(
            [f"without {name}" for name in lost]
            + [f"with {name}" for name in sorted(after - before)]
        )
        yield Finding(
            Kind.BASE_CHANGED, WARNING if lost else NOTE, _subject(target),
            f"{target.name}, which is subclassed, has other bases: {detail}",
            target.place, fate.new.place,
        )  # fmt: skip
    had = known.old.abstract_methods(target)
    for name, method in known.new.abstract_methods(fate.new).items():
        if name not in had and name not in use.implements:
            yield Finding(
                Kind.ABSTRACT_ADDED, ERROR, f"{_subject(fate.new)}.{name}",
                f"{target.name} has a new abstract method {name}, which the subclass lacks",
                target.place, method.place,
            )  # fmt: skip


def _override(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    if target.last in ("__init__", "__new__"):
        return
    fate = known.fate(target)
    if fate.state is State.UNKNOWN:
        return
    if fate.new is None or fate.state in (State.REMOVED, State.RENAMED):
        yield Finding(
            Kind.OVERRIDE_ORPHANED, WARNING, _subject(target),
            f"{target.name}, which the patch overrides, "
            + (f"is very likely {fate.new.name} now" if fate.new is not None else "is gone"),
            target.place, None if fate.new is None else fate.new.place,
            None if fate.new is None else f"{fate.new.module}:{fate.new.name}", fate.reasons,
        )  # fmt: skip
        return
    called = list(misfit_callers(known, target, fate.new, use.parameters))
    for path, call, why in called:
        yield Finding(
            Kind.CALLER_CHANGED, ERROR, _subject(target),
            f"upstream calls {target.last} in a way that the override does not take: {why}",
            target.place, Place(path, call.line),
        )  # fmt: skip
    if called:
        return
    own = {one.name for one in use.parameters}
    takes_all = any(one.kind.value == "**" for one in use.parameters)
    for change in parameter_changes(target.symbol.parameters, fate.new.symbol.parameters):
        if change.change in (Change.ADDED, Change.REQUIRED) and change.old is None:
            assert change.new is not None
            if change.new.name not in own and not takes_all:
                yield Finding(
                    Kind.OVERRIDE_SIGNATURE, WARNING, f"{_subject(target)}({change.new.name})",
                    f"{target.name} has a new parameter {change.new.name}, which the override "
                    "does not take", target.place, fate.new.place,
                )  # fmt: skip
        elif change.change in (Change.REMOVED, Change.RENAMED) and change.name in own:
            now = f"{change.new.name} now" if change.new is not None else "gone"
            yield Finding(
                Kind.OVERRIDE_SIGNATURE, WARNING, f"{_subject(target)}({change.name})",
                f"{target.name}: parameter {change.name}, which the override takes, is {now}",
                target.place, fate.new.place,
            )  # fmt: skip


def _redefine(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    fate = known.fate(target)
    if fate.new is None:
        return
    for path, call, why in misfit_callers(known, target, fate.new, use.parameters):
        yield Finding(
            Kind.CALLER_CHANGED, ERROR, _subject(target),
            f"upstream calls {target.last} in a way that the patch's version does not take: {why}",
            target.place, Place(path, call.line),
        )  # fmt: skip


def _replace(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    module, _, name = use.subject.partition(":")
    fate = known.fate(target)
    if module:
        if isinstance(known.new.module(module), Missing):
            yield _module_gone(known, module)
            return
        answer = known.new.lookup(module, name)
    else:
        home = None if use.owner is None else known.fate(use.owner).new
        if home is None:
            yield from () if fate.state is State.UNKNOWN else (gone_finding(target, fate, ERROR),)
            return
        answer = known.new.member(home, target.last)
    if isinstance(answer, Missing):
        yield Finding(
            Kind.PATCH_WITHOUT_EFFECT, ERROR, _subject(target),
            f"{target.name}, which the patch replaces at run time, is not there: nobody reads it",
            target.place, None if fate.new is None else fate.new.place,
            None if fate.new is None else f"{fate.new.module}:{fate.new.name}", fate.reasons,
        )  # fmt: skip
        return
    if not isinstance(answer, Found):
        return
    if module and target.module == module and answer.module != module:
        yield Finding(
            Kind.PATCH_WITHOUT_EFFECT, ERROR, _subject(target),
            f"{name} is only imported by {module} now: replacing it there does not reach others",
            target.place, answer.place, f"{answer.module}:{answer.name}",
        )  # fmt: skip
    elif _readers(known.old, target) and not _readers(known.new, answer):
        yield Finding(
            Kind.PATCH_WITHOUT_EFFECT, WARNING, _subject(target),
            f"nothing upstream uses {target.name} any more: replacing it has no effect",
            target.place, answer.place,
        )  # fmt: skip
    if use.parameters:
        for path, call, why in misfit_callers(known, target, answer, use.parameters):
            yield Finding(
                Kind.CALLER_CHANGED, ERROR, _subject(target),
                f"upstream calls {target.last} in a way that the replacement does not take: {why}",
                target.place, Place(path, call.line),
            )  # fmt: skip


def _readers(index: TreeIndex, found: Found) -> bool:
    """Whether code uses the name: in another file, or called where it is defined."""
    if any(path != found.path for path in index.mentions(found.last)):
        return True
    return any(call.callee.rpartition(".")[2] == found.last for call in index.calls(found.path))


def _call(known: Comparison, use: Use) -> Iterator[Finding]:
    target = use.target
    assert target is not None
    fate = known.fate(target)
    if fate.state is State.UNKNOWN:
        return
    if not target.owner:
        # Whether the name still leads there is the business of its import.
        new = _called_now(known, use) or fate.new
        if new is not None and (new.key == target.key or fate.state is not State.RENAMED):
            yield from call_findings(known, use, new)
    elif (
        fate.new is None
        or fate.state in (State.REMOVED, State.RENAMED)
        or fate.new.symbol.flags & Flag.PROPERTY
    ):
        yield from _read(known, use)
    else:
        yield from call_findings(known, use, fate.new)


def _called_now(known: Comparison, use: Use) -> Found | None:
    """What the call's name stands for in the new version of the patched file."""
    assert use.call is not None and use.target is not None
    path = use.where.path
    if path not in known.old.files or path not in known.new.files or not path.endswith(".py"):
        return None
    module = module_of(path)
    before = known.old.resolve(module, use.call.callee)
    if not isinstance(before, Found) or before.key != use.target.key:
        # The name comes from an import inside of the function.
        return None
    answer = known.new.resolve(module, use.call.callee)
    return answer if isinstance(answer, Found) else None


_BY_KIND: dict[UseKind, Callable[[Comparison, Use], Iterator[Finding]]] = {
    UseKind.FILE: _file,
    UseKind.NEW_FILE: _new_file,
    UseKind.EDIT: _edit,
    UseKind.DEFINE: _define,
    UseKind.IMPORT_MODULE: _module,
    UseKind.IMPORT: _import,
    UseKind.NAME: name_finding,
    UseKind.LOCAL: local_finding,
    UseKind.CALL: _call,
    UseKind.READ: _read,
    UseKind.UNTYPED_READ: untyped_finding,
    UseKind.SUBCLASS: _subclass,
    UseKind.OVERRIDE: _override,
    UseKind.REDEFINE: _redefine,
    UseKind.REPLACE: _replace,
    UseKind.OPERATOR: operator_finding,
    UseKind.INCLUDE: include_finding,
    UseKind.NATIVE_CALL: native_finding,
}
