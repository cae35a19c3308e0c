"""What the changed lines of a C, C++ or CUDA file use of upstream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dsv4port.drift.cpp_facts import called_names
from dsv4port.drift.facts import SymbolKind
from dsv4port.drift.findings import Concern
from dsv4port.drift.index import Found, TreeIndex, module_of
from dsv4port.drift.uses import Use, UseKind

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|//.*')


def native_uses(
    old: TreeIndex,
    patched: TreeIndex,
    path: str,
    changed: Mapping[int, Concern],
    edited: Mapping[int, Concern],
) -> Iterator[Use]:
    """Every use on the changed lines of one file; parameters as in ``python_uses``."""
    lines = patched.content(path).decode("utf-8", "replace").splitlines()
    yield from _edits(old, patched, path, edited)
    yield from _definitions(old, patched, path, changed)
    for number, where in sorted(changed.items()):
        text = lines[number - 1] if number <= len(lines) else ""
        include = _INCLUDE.match(text)
        if include is not None:
            yield Use(UseKind.INCLUDE, where, subject=include[1])
            continue
        for name in called_names(_QUOTED.sub('""', text)):
            target = _target(old, patched, path, name)
            if target is not None:
                yield Use(UseKind.NATIVE_CALL, where, target)


def _edits(
    old: TreeIndex, patched: TreeIndex, path: str, edited: Mapping[int, Concern]
) -> Iterator[Use]:
    seen: set[str] = set()
    for line, where in sorted(edited.items()):
        found = patched.symbol_at(path, line)
        upstream = None if found is None else old.find(path, found.name)
        if upstream is not None and upstream.name not in seen:
            seen.add(upstream.name)
            yield Use(UseKind.EDIT, where, upstream)


def _definitions(
    old: TreeIndex, patched: TreeIndex, path: str, changed: Mapping[int, Concern]
) -> Iterator[Use]:
    if path not in old.files:
        return
    before = old.facts(path).symbols
    for name, symbol in patched.facts(path).symbols.items():
        if name not in before and symbol.line in changed:
            target = Found(module_of(path), path, name, symbol)
            yield Use(UseKind.DEFINE, changed[symbol.line], target)


def _target(old: TreeIndex, patched: TreeIndex, path: str, name: str) -> Found | None:
    """The one function that a name can mean; None where several could be meant."""
    here = old.find(path, name)
    if here is not None:
        return here if here.symbol.kind is SymbolKind.FUNCTION else None
    if patched.find(path, name) is not None:
        return None
    found = [
        one
        for one in old.definitions_of(name)
        if one.name == name
        and one.symbol.kind is SymbolKind.FUNCTION
        and not one.path.endswith(".py")
    ]
    defined = [one for one in found if one.symbol.body] or found
    return defined[0] if len(defined) == 1 else None
