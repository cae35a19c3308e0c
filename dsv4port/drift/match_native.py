"""Operators, C++ and CUDA functions, and headers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from dsv4port.drift.compare import Comparison, State
from dsv4port.drift.facts import Parameter, SymbolKind
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Found, Place, TreeIndex
from dsv4port.drift.uses import Use

_INCLUDE_ROOTS = ("", "csrc/", "include/", "src/")


def operator_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """An operator that is called through ``torch.ops``."""
    name = use.subject.rpartition(".")[2]
    before, after = _operators(known.old, name), _operators(known.new, name)
    if not before:
        # Registered from Python, by its name as text.
        was = [path for path in known.old.mentions(name) if path.endswith(".py")]
        if was and not known.new.mentions(name):
            yield Finding(
                Kind.OPERATOR_REMOVED, Severity.ERROR, use.subject, f"operator {name} is gone",
                Place(was[0], 1),
            )  # fmt: skip
        return
    if not after:
        yield Finding(
            Kind.OPERATOR_REMOVED, Severity.ERROR, use.subject, f"operator {name} is gone",
            before[0].place,
        )  # fmt: skip
        return
    if {_schema(one) for one in before} & {_schema(one) for one in after}:
        return
    if not any(_takes_what(one, other) for one in before for other in after):
        yield Finding(
            Kind.OPERATOR_CHANGED, Severity.ERROR, use.subject,
            f"operator {name} takes ({after[0].symbol.value} instead of ({before[0].symbol.value}",
            before[0].place, after[0].place,
        )  # fmt: skip


def _operators(index: TreeIndex, name: str) -> list[Found]:
    return [one for one in index.definitions_of(name) if one.symbol.kind is SymbolKind.OPERATOR]


def _takes_what(old: Found, new: Found) -> bool:
    """Whether every call of the old schema fits the new one: only defaults were added."""
    before, after = old.symbol.parameters, new.symbol.parameters
    added = after[len(before) :]
    return [one[:1] + one[3:] for one in before] == [
        one[:1] + one[3:] for one in after[: len(before)]
    ] and all(one.default is not None for one in added)


def _schema(found: Found) -> str:
    return (found.symbol.value or "").replace(" ", "")


def include_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """A header that is included by a path."""
    before = included_path(known.old, use.where.path, use.subject)
    if before is None:
        return
    home = use.where.path
    if home not in known.new.files and home in known.old.files:
        home = known.file(home).path or home
    if included_path(known.new, home, use.subject) is not None:
        return
    fate = known.file(before)
    moved = fate.path if fate.state is State.MOVED else None
    yield Finding(
        Kind.INCLUDE_GONE, Severity.ERROR, use.subject,
        f'"{use.subject}" is not found from {home}', Place(before, 1),
        None if moved is None else Place(moved, 1), moved,
    )  # fmt: skip


def included_path(index: TreeIndex, path: str, written: str) -> str | None:
    """The file that ``#include "written"`` in `path` means."""
    roots = (posixpath.dirname(path) + "/", *_INCLUDE_ROOTS)
    for root in roots:
        found = posixpath.normpath(root + written)
        if found in index.files:
            return found
    return None


def native_finding(known: Comparison, use: Use) -> Iterator[Finding]:
    """A C++ or CUDA function that is called."""
    target = use.target
    assert target is not None
    fate = known.fate(target)
    if fate.state is State.UNKNOWN:
        return
    subject = f"{target.path}:{target.name}"
    new = fate.new
    if new is None or fate.state is State.RENAMED:
        others = [
            one
            for one in known.new.definitions_of(target.last)
            if one.name == target.name and one.symbol.kind is target.symbol.kind
        ]
        if new is None and others:
            return
        kind = Kind.SYMBOL_REMOVED if new is None else Kind.SYMBOL_RENAMED
        what = "is gone" if new is None else f"is very likely {new.name} now"
        yield Finding(
            kind, Severity.ERROR, subject, f"{target.name} {what}", target.place,
            None if new is None else new.place, None if new is None else new.name, fate.reasons,
        )  # fmt: skip
        return
    before, after = target.symbol.parameters, new.symbol.parameters
    if _types(before) == _types(after) or target.symbol.kind is not SymbolKind.FUNCTION:
        return
    needed = [one for one in after if one.default is None]
    fits = len(needed) <= len(before) <= len(after)
    yield Finding(
        Kind.FUNCTION_CHANGED, Severity.WARNING if fits else Severity.ERROR, subject,
        f"{target.name} takes ({_shown(after)}) instead of ({_shown(before)})",
        target.place, new.place,
    )  # fmt: skip


def _types(parameters: tuple[Parameter, ...]) -> list[str]:
    return [(one.annotation or "").replace(" ", "") for one in parameters]


def _shown(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(f"{one.annotation} {one.name}".strip() for one in parameters)
