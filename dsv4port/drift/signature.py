"""Compare parameter lists, and bind calls to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from dsv4port.drift.facts import Call, Parameter, ParameterKind

_NAMED = (ParameterKind.NORMAL, ParameterKind.POSITIONAL_ONLY, ParameterKind.KEYWORD_ONLY)
PLACED = (ParameterKind.NORMAL, ParameterKind.POSITIONAL_ONLY)
LAUNCH_KEYWORDS = frozenset(
    {
        "num_warps",
        "num_stages",
        "num_ctas",
        "num_consumer_groups",
        "maxnreg",
        "launch_pdl",
        "launch_cooperative_grid",
        "waves_per_eu",
        "matrix_instr_nonkdim",
        "kpack",
        "grid",
        "warmup",
        "stream",
        "enable_fp_fusion",
    }
)
"""Keywords that launching a kernel takes beyond the kernel's own parameters."""


class Misfit(Enum):
    """Why a call does not fit a parameter list."""

    UNKNOWN_KEYWORD = "unknown keyword"
    """A keyword that no parameter takes."""
    TOO_MANY = "too many"
    """More arguments by position than there are parameters."""
    MISSING = "missing"
    """A parameter without default gets nothing."""
    TWICE = "twice"
    """A parameter gets a value by position and by keyword."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a call does not fit, and the parameter's name."""

    misfit: Misfit
    name: str


def bind(
    parameters: Sequence[Parameter], call: Call, *, extra: frozenset[str] = frozenset()
) -> list[Problem]:
    """What keeps `call` from fitting `parameters`; empty when it fits or may fit.

    Parameters:
        parameters: without ``self`` where the call does not pass it.
        extra: keywords that are taken beyond the parameters.
    """
    placed = [one for one in parameters if one.kind in PLACED]
    takes_any_place = any(one.kind is ParameterKind.VAR_POSITIONAL for one in parameters)
    takes_any_keyword = any(one.kind is ParameterKind.VAR_KEYWORD for one in parameters)
    by_keyword = {
        one.name
        for one in parameters
        if one.kind in (ParameterKind.NORMAL, ParameterKind.KEYWORD_ONLY)
    }
    problems = []
    if call.positional > len(placed) and not takes_any_place:
        problems.append(Problem(Misfit.TOO_MANY, str(len(placed))))
    taken = {one.name for one in placed[: call.positional]}
    for keyword in call.keywords:
        if keyword in taken and keyword in by_keyword and not call.star:
            problems.append(Problem(Misfit.TWICE, keyword))
        elif keyword not in by_keyword and not takes_any_keyword and keyword not in extra:
            problems.append(Problem(Misfit.UNKNOWN_KEYWORD, keyword))
    if not call.double_star:
        for one in parameters:
            if (
                one.kind in _NAMED
                and one.default is None
                and one.name not in taken
                and one.name not in call.keywords
                and not (call.star and one.kind in PLACED)
            ):
                problems.append(Problem(Misfit.MISSING, one.name))
    return problems


class Change(Enum):
    """How a parameter list changed."""

    REMOVED = "removed"
    """A parameter is gone."""
    RENAMED = "renamed"
    """A parameter at the same place has another name."""
    REQUIRED = "required"
    """A new parameter without default, or one that lost its default."""
    ADDED = "added"
    """A new parameter with a default."""
    SHIFTED = "shifted"
    """A parameter is reached by another position, or by keyword only."""
    DEFAULT = "default"
    """Another default."""
    ANNOTATION = "annotation"
    """Another annotation."""


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """One change; ``old`` is None for a new parameter, ``new`` for one that is gone."""

    change: Change
    old: Parameter | None
    new: Parameter | None

    @property
    def name(self) -> str:
        """The name in the old list, or the new one's."""
        one = self.old or self.new
        assert one is not None
        return one.name


def parameter_changes(
    old: Sequence[Parameter], new: Sequence[Parameter]
) -> Iterator[ParameterChange]:
    """Everything that differs between two parameter lists."""
    old_by_name = {one.name: one for one in old}
    new_by_name = {one.name: one for one in new}
    gone = [one for one in old if one.name not in new_by_name]
    come = [one for one in new if one.name not in old_by_name]
    renamed = _renames(old, new, gone, come)
    for one in gone:
        if one.name in renamed:
            yield ParameterChange(Change.RENAMED, one, renamed[one.name])
        else:
            yield ParameterChange(Change.REMOVED, one, None)
    taken = {one.name for one in renamed.values()}
    for one in come:
        if one.name not in taken and one.kind in _NAMED:
            change = Change.REQUIRED if one.default is None else Change.ADDED
            yield ParameterChange(change, None, one)
    old_places = _places(old)
    new_places = _places(new)
    back = {after.name: before for before, after in renamed.items()}
    for position, name in enumerate(new_places):
        before = back.get(name, name)
        if before in old_places and old_places.index(before) != position:
            yield ParameterChange(Change.SHIFTED, old_by_name[before], new_by_name[name])
    for before in old_places:
        after = renamed[before].name if before in renamed else before
        if after in new_by_name and after not in new_places:
            yield ParameterChange(Change.SHIFTED, old_by_name[before], new_by_name[after])
    for one in old:
        same = new_by_name.get(one.name)
        if same is None:
            continue
        if one.default is not None and same.default is None and same.kind in _NAMED:
            yield ParameterChange(Change.REQUIRED, one, same)
        elif one.default is not None and one.default != same.default:
            yield ParameterChange(Change.DEFAULT, one, same)
        if _type(one.annotation) != _type(same.annotation) and same.annotation is not None:
            yield ParameterChange(Change.ANNOTATION, one, same)


def shifted_arguments(
    old: Sequence[Parameter], new: Sequence[Parameter], call: Call
) -> list[tuple[Parameter, Parameter]]:
    """Arguments that a call passes by position and that reach another parameter than they did."""
    if call.star:
        return []
    old_placed = [one for one in old if one.kind in PLACED]
    new_placed = [one for one in new if one.kind in PLACED]
    renamed = {
        one.old.name: one.new.name
        for one in parameter_changes(old, new)
        if one.change is Change.RENAMED and one.old is not None and one.new is not None
    }
    return [
        (before, after)
        for before, after in zip(old_placed[: call.positional], new_placed, strict=False)
        if before.name != after.name and renamed.get(before.name) != after.name
    ]


def _places(parameters: Sequence[Parameter]) -> list[str]:
    return [one.name for one in parameters if one.kind in PLACED]


def _type(text: str | None) -> str | None:
    return None if text is None else text.strip("\"'").replace('"', "").replace("'", "")


def _renames(
    old: Sequence[Parameter],
    new: Sequence[Parameter],
    gone: Sequence[Parameter],
    come: Sequence[Parameter],
) -> dict[str, Parameter]:
    """Pairs of a parameter that is gone and one that came, between the same neighbours."""
    found: dict[str, Parameter] = {}
    taken: set[str] = set()
    for one in gone:
        best: tuple[float, Parameter] | None = None
        for other in come:
            if other.name in taken or one.kind is not other.kind:
                continue
            score = _likeness(old, new, one, other)
            if score >= 1.0 and (best is None or score > best[0]):
                best = (score, other)
        if best is not None:
            found[one.name] = best[1]
            taken.add(best[1].name)
    return found


def _likeness(
    old: Sequence[Parameter], new: Sequence[Parameter], one: Parameter, other: Parameter
) -> float:
    at, there = old.index(one), new.index(other)
    # Comparing neighbours by name: those that were renamed themselves do not count.
    before = (old[at - 1].name if at else "") == (new[there - 1].name if there else "")
    after = (old[at + 1].name if at + 1 < len(old) else "") == (
        new[there + 1].name if there + 1 < len(new) else ""
    )
    related = _related_types(one.annotation, other.annotation)
    if related and before and after and one.kind in PLACED and one.default is None is other.default:
        # Whoever passes it by position passes it still.
        return 1.0 + name_likeness(one.name, other.name)
    score = 0.35 * before + 0.35 * after
    if one.annotation is not None and _type(one.annotation) == _type(other.annotation):
        score += 0.3
    if one.default is not None and one.default == other.default:
        score += 0.15
    if (one.default is None) != (other.default is None):
        score -= 0.3
    return score + 0.6 * name_likeness(one.name, other.name)


def _related_types(one: str | None, other: str | None) -> bool:
    """Whether a value may be of both types, as far as their texts say."""
    first, second = _type(one), _type(other)
    if first is None or second is None:
        return True
    return bool(
        {part.strip() for part in first.split("|")} & {part.strip() for part in second.split("|")}
    )


def name_likeness(one: str, other: str) -> float:
    """How many of their words two names share, 0 to 1."""
    first, second = set(_words(one)), set(_words(other))
    return 2 * len(first & second) / max(1, len(first) + len(second))


def _words(name: str) -> list[str]:
    from re import findall

    return [word.lower() for word in findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
