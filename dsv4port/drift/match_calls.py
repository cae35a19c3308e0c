"""Whether calls of a series still fit, and still reach the parameters they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv4port.drift.compare import Comparison
from dsv4port.drift.facts import Call, Flag, Parameter, SymbolKind
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Found, TreeIndex
from dsv4port.drift.signature import (
    LAUNCH_KEYWORDS,
    PLACED,
    Change,
    Misfit,
    bind,
    parameter_changes,
    shifted_arguments,
)
from dsv4port.drift.uses import Use


def call_findings(known: Comparison, use: Use, new: Found) -> Iterator[Finding]:
    """What keeps one call from doing what it did.

    Parameters:
        new: what the call's target is in the new tree.
    """
    target, call = use.target, use.call
    assert target is not None and call is not None
    before = _taken(known.old, target, use)
    after = _taken(known.new, new, use)
    if before is None or after is None:
        return
    (old_parameters, old_place), (new_parameters, new_place) = before, after
    if old_parameters == new_parameters:
        return
    extra = LAUNCH_KEYWORDS if target.symbol.flags & Flag.KERNEL else frozenset[str]()
    if bind(old_parameters, call, extra=extra):
        # It does not fit what we think is called: we are mistaken about that.
        return
    problems = bind(new_parameters, call, extra=extra)
    if problems and any(
        not bind(_without_first(one.parameters, use, new), call, extra=extra)
        for one in known.new.variants(new.path).get(new.name, ())
    ):
        problems = []
    changes = list(parameter_changes(old_parameters, new_parameters))
    renamed = {
        one.name: one.new.name
        for one in changes
        if one.change is Change.RENAMED and one.new is not None
    }
    fields = new.symbol.kind is SymbolKind.CLASS and new_place.symbol.kind is SymbolKind.CLASS
    placed = [one for one in old_parameters if one.kind in PLACED]
    by_position = {one.name for one in placed[: call.positional]}
    gone = [one for one in changes if one.change is Change.REMOVED and one.name in by_position]
    shifted = shifted_arguments(old_parameters, new_parameters, call)
    if not problems and not shifted:
        # ``*args`` or ``**kwargs`` take what has no parameter of its own any more.
        gone = []
    elif gone:
        shifted = []
    for one in gone:
        kind, message = _explained(target, Misfit.UNKNOWN_KEYWORD, one.name, renamed, fields)
        yield Finding(
            kind, Severity.ERROR, f"{target.module}:{target.name}({one.name})", message,
            old_place.place, new_place.place,
        )  # fmt: skip
    if shifted:
        yield _shift(target, shifted, old_place, new_place)
    if gone or shifted:
        # What the call lacks or has too much then is what it passes at the wrong place.
        before_names = {one.name for one in old_parameters}
        problems = [
            one
            for one in problems
            if one.misfit is Misfit.UNKNOWN_KEYWORD
            or (
                one.misfit is Misfit.MISSING
                and one.name not in before_names
                and not (shifted and one.name == shifted[0][1].name)
            )
        ]
    for problem in problems:
        kind, message = _explained(target, problem.misfit, problem.name, renamed, fields)
        yield Finding(
            kind, Severity.ERROR, f"{target.module}:{target.name}({problem.name})", message,
            old_place.place, new_place.place, renamed.get(problem.name),
        )  # fmt: skip
    if not problems and not shifted and not gone:
        yield from _silent(target, call, old_parameters, new_parameters, old_place, new_place)


def _shift(
    target: Found, shifted: Sequence[tuple[Parameter, Parameter]], old: Found, new: Found
) -> Finding:
    was, now = shifted[0]
    more = f", and {len(shifted) - 1} more" if len(shifted) > 1 else ""
    return Finding(
        Kind.PARAMETER_SHIFTED, Severity.ERROR, f"{target.module}:{target.name}({was.name})",
        f"{target.name}: what is passed for {was.name} by position reaches {now.name}{more}",
        old.place, new.place, now.name,
    )  # fmt: skip


def _taken(index: TreeIndex, found: Found, use: Use) -> tuple[Sequence[Parameter], Found] | None:
    """The parameters that a call passes, and the definition that lists them."""
    if found.symbol.kind is SymbolKind.CLASS:
        return index.constructor(found)
    if found.symbol.kind is not SymbolKind.FUNCTION or found.symbol.flags & Flag.PROPERTY:
        return None
    return _without_first(found.symbol.parameters, use, found), found


def _without_first(parameters: Sequence[Parameter], use: Use, found: Found) -> Sequence[Parameter]:
    if use.bound and not found.symbol.flags & Flag.STATIC:
        return parameters[1:]
    return parameters


def _explained(
    target: Found, misfit: Misfit, name: str, renamed: dict[str, str], fields: bool
) -> tuple[Kind, str]:
    what = "field" if fields else "parameter"
    if misfit is Misfit.UNKNOWN_KEYWORD and name in renamed:
        kind = Kind.FIELD_RENAMED if fields else Kind.PARAMETER_RENAMED
        return kind, f"{target.name}: {what} {name} is very likely {renamed[name]} now"
    if misfit is Misfit.UNKNOWN_KEYWORD:
        kind = Kind.FIELD_REMOVED if fields else Kind.PARAMETER_REMOVED
        return kind, f"{target.name}: {what} {name}, which is passed, is gone"
    if misfit is Misfit.MISSING:
        kind = Kind.FIELD_REQUIRED if fields else Kind.PARAMETER_REQUIRED
        return kind, f"{target.name} needs {name}, which is not passed"
    if misfit is Misfit.TOO_MANY:
        return (
            Kind.PARAMETER_REMOVED,
            f"{target.name} takes only {name} arguments by position, fewer than are passed",
        )
    return Kind.PARAMETER_SHIFTED, f"{target.name} gets {name} by position and by keyword"


def _silent(
    target: Found, call: Call, before: Sequence[Parameter], after: Sequence[Parameter],
    old_place: Found, new_place: Found,
) -> Iterator[Finding]:  # fmt: skip
    """Changes that raise nothing: another default, name or type."""
    subject = f"{target.module}:{target.name}"
    placed = [one.name for one in before if one.kind in PLACED]
    given = {*placed[: call.positional], *call.keywords}
    for one in parameter_changes(before, after):
        passed = one.name in given
        if one.change is Change.DEFAULT and not passed and not (call.star or call.double_star):
            assert one.old is not None and one.new is not None
            yield Finding(
                Kind.DEFAULT_CHANGED, Severity.NOTE, f"{subject}({one.name})",
                f"{target.name}: {one.name}, which is left out, is {one.new.default} "
                f"instead of {one.old.default}",
                old_place.place, new_place.place,
            )  # fmt: skip
        elif one.change is Change.RENAMED and passed:
            assert one.new is not None
            yield Finding(
                Kind.PARAMETER_RENAMED, Severity.NOTE, f"{subject}({one.name})",
                f"{target.name}: {one.name}, which is passed by position, is {one.new.name} now",
                old_place.place, new_place.place, one.new.name,
            )  # fmt: skip
        elif one.change is Change.ANNOTATION and passed:
            assert one.old is not None and one.new is not None
            yield Finding(
                Kind.ANNOTATION_CHANGED, Severity.NOTE, f"{subject}({one.name})",
                f"{target.name}: {one.name} is {one.new.annotation} instead of "
                f"{one.old.annotation}",
                old_place.place, new_place.place,
            )  # fmt: skip
