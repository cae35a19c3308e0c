"""Every change of interface between two trees, without a series to ask for."""

from __future__ import annotations

from collections.abc import Iterator

from dsv4port.drift.build import ASIDE
from dsv4port.drift.compare import Comparison, State
from dsv4port.drift.extract import is_source
from dsv4port.drift.facts import Flag, SymbolKind
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Found, Place, TreeIndex, is_dataclass, module_of
from dsv4port.drift.match import gone_finding, value_findings
from dsv4port.drift.signature import Change, ParameterChange, parameter_changes

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_KINDS = {
    Change.REMOVED: (Kind.PARAMETER_REMOVED, ERROR),
    Change.RENAMED: (Kind.PARAMETER_RENAMED, ERROR),
    Change.REQUIRED: (Kind.PARAMETER_REQUIRED, ERROR),
    Change.SHIFTED: (Kind.PARAMETER_SHIFTED, WARNING),
    Change.ADDED: (Kind.PARAMETER_ADDED, NOTE),
    Change.DEFAULT: (Kind.DEFAULT_CHANGED, NOTE),
    Change.ANNOTATION: (Kind.ANNOTATION_CHANGED, NOTE),
}


def all_changes(
    old: TreeIndex, new: TreeIndex, *, under: tuple[str, ...] = ("",)
) -> Iterator[Finding]:
    """Changes of every definition of the old tree that the new one has not as it was.

    Parameters:
        under: only files below these paths.

    Yields:
        Findings without concerns, file by file.
    """
    known = Comparison(old, new)
    for path in sorted(old.files):
        if new.files.get(path) == old.files[path] or not path.startswith(under):
            continue
        top = path.partition("/")[0]
        if not is_source(path) or (top in ASIDE and not any(one.startswith(top) for one in under)):
            continue
        if not old.facts(path).readable or (path in new.files and not new.facts(path).readable):
            yield Finding(
                Kind.UNREADABLE, WARNING, path, f"{path} does not parse: nothing is known of it",
                Place(path, 1),
            )  # fmt: skip
            continue
        if path not in new.files:
            yield _file(known, path)
        yield from _symbols(known, path)


def _file(known: Comparison, path: str) -> Finding:
    fate = known.file(path)
    if fate.path is None:
        return Finding(Kind.FILE_GONE, ERROR, path, f"{path} is gone", Place(path, 1))
    return Finding(
        Kind.FILE_MOVED, ERROR, path, f"{path} has moved", Place(path, 1), Place(fate.path, 1),
        fate.path, (f"{fate.likeness:.0%} of the lines are in {fate.path}",),
    )  # fmt: skip


def _symbols(known: Comparison, path: str) -> Iterator[Finding]:
    gone: set[str] = set()
    moved_file = known.file(path).path if path not in known.new.files else None
    for name, symbol in known.old.facts(path).symbols.items():
        found = Found(module_of(path), path, name, symbol)
        if found.owner in gone or symbol.flags & Flag.OVERLOAD:
            gone.add(name)
            continue
        fate = known.fate(found)
        if fate.state is State.UNKNOWN:
            continue
        if fate.new is not None and fate.new.path == moved_file and fate.new.name == name:
            # The file's own finding says it.
            pass
        elif fate.state is State.REMOVED and path not in known.new.files and moved_file is None:
            # So does that of a file that is gone.
            gone.add(name)
        elif fate.state is not State.THERE:
            gone.add(name)
            yield gone_finding(found, fate, ERROR if not fate.importable else NOTE)
        if fate.new is not None:
            yield from _changes(known, found, fate.new)


def _changes(known: Comparison, old: Found, new: Found) -> Iterator[Finding]:
    subject = f"{old.module}:{old.name}"
    if old.symbol.kind is not new.symbol.kind:
        if SymbolKind.CLASS in (old.symbol.kind, new.symbol.kind):
            yield Finding(
                Kind.KIND_CHANGED, WARNING, subject,
                f"{old.name} was a {old.symbol.kind.value} and is a {new.symbol.kind.value}",
                old.place, new.place,
            )  # fmt: skip
        return
    if old.symbol.kind is SymbolKind.OPERATOR:
        if (old.symbol.value or "").replace(" ", "") != (new.symbol.value or "").replace(" ", ""):
            yield Finding(
                Kind.OPERATOR_CHANGED, ERROR, subject,
                f"operator {old.last} takes ({new.symbol.value} instead of ({old.symbol.value}",
                old.place, new.place,
            )  # fmt: skip
    elif old.symbol.kind is SymbolKind.VARIABLE:
        yield from value_findings(old, new)
    elif old.symbol.kind is SymbolKind.FUNCTION:
        if old.symbol.parameters != new.symbol.parameters:
            for change in parameter_changes(old.symbol.parameters, new.symbol.parameters):
                yield _parameter(old, new, change)
    elif old.symbol.kind is SymbolKind.CLASS and old.path.endswith(".py"):
        yield from _class(known, old, new, subject)


def _parameter(old: Found, new: Found, change: ParameterChange) -> Finding:
    kind, severity = _KINDS[change.change]
    if not old.path.endswith(".py"):
        kind, severity = Kind.FUNCTION_CHANGED, WARNING
    one = change.new or change.old
    assert one is not None
    words = {
        Change.REMOVED: "is gone",
        Change.RENAMED: f"is {one.name} now",
        Change.REQUIRED: "must be given",
        Change.SHIFTED: "is at another position",
        Change.ADDED: f"is new, {one.default} by default",
        Change.DEFAULT: f"is {one.default} by default, was {change.old and change.old.default}",
        Change.ANNOTATION: f"is {one.annotation}, was {change.old and change.old.annotation}",
    }
    return Finding(
        kind, severity, f"{old.module}:{old.name}({change.name})",
        f"{old.name}: parameter {change.name} {words[change.change]}", old.place, new.place,
        change.new.name if change.change is Change.RENAMED and change.new else None,
    )  # fmt: skip


def _class(known: Comparison, old: Found, new: Found, subject: str) -> Iterator[Finding]:
    if old.symbol.bases != new.symbol.bases:
        yield Finding(
            Kind.BASE_CHANGED, NOTE, subject,
            f"{old.name} has the bases ({', '.join(new.symbol.bases)}), had "
            f"({', '.join(old.symbol.bases)})", old.place, new.place,
        )  # fmt: skip
    had = known.old.abstract_methods(old)
    for name, method in known.new.abstract_methods(new).items():
        if name not in had:
            yield Finding(
                Kind.ABSTRACT_ADDED, ERROR, f"{subject}.{name}",
                f"{old.name} has a new abstract method {name}", old.place, method.place,
            )  # fmt: skip
    if is_dataclass(old.symbol) and is_dataclass(new.symbol):
        before = {one.name for one in known.old.fields(old)}
        for one in known.new.fields(new):
            if one.name not in before and one.default is None:
                yield Finding(
                    Kind.FIELD_REQUIRED, ERROR, f"{subject}({one.name})",
                    f"{old.name} has a new field {one.name} that must be given",
                    old.place, new.place,
                )  # fmt: skip
