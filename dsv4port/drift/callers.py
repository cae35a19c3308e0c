"""Calls upstream that a version of a function in the series does not take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv4port.drift.compare import Comparison
from dsv4port.drift.facts import Call, Flag, Parameter, SymbolKind
from dsv4port.drift.index import Found, TreeIndex
from dsv4port.drift.signature import LAUNCH_KEYWORDS, Misfit, Problem, bind

_MANY_FILES = 80
"""A name that more files call says nothing about which function is meant."""
_SHOWN = 3


def misfit_callers(
    known: Comparison, old: Found, new: Found, own: Sequence[Parameter]
) -> Iterator[tuple[str, Call, str]]:
    """Calls of the new tree that fit upstream's function and not the series' version of it.

    What the series' version did not take in the old tree either is left out. At most a few are
    given; the text says what does not fit.

    Parameters:
        old, new: upstream's function in both trees.
        own: the parameters of the series' version.
    """
    extra = LAUNCH_KEYWORDS if new.symbol.flags & Flag.KERNEL else frozenset[str]()
    mine = _passed(own, new)
    theirs = _passed(new.symbol.parameters, new)
    before = _passed(old.symbol.parameters, old)
    already = {
        problem
        for _, call in _calls(known.old, old)
        if not bind(before, call, extra=extra)
        for problem in bind(mine, call, extra=extra)
    }
    shown = 0
    for path, call in _calls(known.new, new):
        if bind(theirs, call, extra=extra):
            continue
        problems = [one for one in bind(mine, call, extra=extra) if one not in already]
        # A bare count of arguments proves nothing where upstream's own parameters are the same.
        if theirs == before:
            problems = [one for one in problems if one.misfit is Misfit.UNKNOWN_KEYWORD]
        if problems:
            yield path, call, explain(problems)
            shown += 1
            if shown == _SHOWN:
                return


def explain(problems: Sequence[Problem]) -> str:
    """Misfits as a phrase."""
    words = {
        Misfit.UNKNOWN_KEYWORD: "passes {}=",
        Misfit.MISSING: "does not pass {}",
        Misfit.TOO_MANY: "passes more than {} by position",
        Misfit.TWICE: "passes {} twice",
    }
    return ", ".join(words[one.misfit].format(one.name) for one in problems)


def _passed(parameters: Sequence[Parameter], found: Found) -> Sequence[Parameter]:
    """Parameters that a call passes: without the first of a method."""
    if found.owner and not found.symbol.flags & Flag.STATIC:
        return parameters[1:]
    return parameters


def _calls(index: TreeIndex, found: Found) -> Iterator[tuple[str, Call]]:
    """Calls that may mean the function: of a method through something, of a function by name."""
    name = found.last
    if name in ("__init__", "__new__"):
        return
    calls = list(index.callers_of(name))
    if len({path for path, _ in calls}) > _MANY_FILES:
        return
    classes = {
        one.owner for one in index.definitions_of(name) if one.symbol.kind is SymbolKind.FUNCTION
    }
    for path, call in calls:
        dotted = "." in call.callee
        if found.owner:
            if not dotted:
                continue
            if call.callee.startswith("super."):
                continue
            if call.callee.startswith("self.") and call.callee.count(".") == 1:
                # The class of ``self`` is known: it must be a relative.
                inside = call.scope.rpartition(".")[0]
                if inside in classes and not _related(index, path, inside, found):
                    continue
            first = call.callee.partition(".")[0]
            if first in index.facts(path).imports and call.callee.count(".") == 1:
                # ``module.function(...)`` or ``Class.method(instance, ...)``.
                continue
            yield path, call
        elif not dotted:
            yield path, call


def _related(index: TreeIndex, path: str, inside: str, found: Found) -> bool:
    here = index.find(path, inside)
    if here is None:
        return True
    lineage = index.lineage(here)
    if any(one.name == found.owner for one in lineage.classes):
        return True
    home = index.find(found.path, found.owner)
    return home is not None and any(one.key == here.key for one in index.lineage(home).classes)
