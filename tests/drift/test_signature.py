"""Binding calls to parameter lists, with Python itself as the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dsv4port.drift.facts import (
    Call,
    Parameter,
    ParameterKind,
    decode_calls,
    decode_facts,
    encode_calls,
    encode_facts,
)
from dsv4port.drift.python_facts import python_facts
from dsv4port.drift.signature import Change, bind, parameter_changes, shifted_arguments

NAMES = "abcdefg"


@st.composite
def parameter_lists(draw: st.DrawFn) -> tuple[Parameter, ...]:
    """Parameter lists that Python accepts."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(0, 6))]
    kinds = sorted(
        (draw(st.sampled_from(["p", "a", "k"])) for _ in names), key=["p", "a", "k"].index
    )
    placed = [kind for kind in kinds if kind != "k"]
    first_default = draw(st.integers(0, len(placed)))
    found = []
    for position, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        has = position >= first_default if kind != "k" else draw(st.booleans())
        found.append(Parameter(name, ParameterKind(kind), "0" if has else None))
    if draw(st.booleans()):
        at = sum(one.kind is not ParameterKind.KEYWORD_ONLY for one in found)
        found.insert(at, Parameter("args", ParameterKind.VAR_POSITIONAL))
    if draw(st.booleans()):
        found.append(Parameter("kwargs", ParameterKind.VAR_KEYWORD))
    return tuple(found)


def calls() -> st.SearchStrategy[Call]:
    return st.builds(
        lambda count, keywords: Call("f", count, tuple(keywords), False, False, 1, ""),
        st.integers(0, 6),
        st.lists(st.sampled_from(NAMES + "z"), unique=True, max_size=4),
    )


def python_function(parameters: tuple[Parameter, ...]) -> Callable[..., None]:
    """A function with these parameters; `inspect`'s binding differs from a real call's."""
    parts: list[str] = []
    kinds = [one.kind.value for one in parameters]
    for position, one in enumerate(parameters):
        if one.kind.value == "k" and not {"k", "*"} & set(kinds[:position]):
            parts.append("*")
        stars = one.kind.value if one.kind.value in ("*", "**") else ""
        parts.append(f"{stars}{one.name}" + ("" if one.default is None else "=0"))
        if one.kind.value == "p" and "p" not in kinds[position + 1 :]:
            parts.append("/")
    made: Callable[..., None] = eval(f"lambda {', '.join(parts)}: None")
    return made


@given(parameter_lists(), calls())
def test_a_call_fits_when_python_says_so(parameters: tuple[Parameter, ...], call: Call) -> None:
    try:
        python_function(parameters)(*range(call.positional), **dict.fromkeys(call.keywords, 0))
        fits = True
    except TypeError:
        fits = False
    assert (bind(parameters, call) == []) is fits


@given(parameter_lists())
def test_equal_lists_have_no_changes(parameters: tuple[Parameter, ...]) -> None:
    assert list(parameter_changes(parameters, parameters)) == []


@given(parameter_lists(), parameter_lists(), calls())
def test_shifts_are_what_binding_says(
    old: tuple[Parameter, ...], new: tuple[Parameter, ...], call: Call
) -> None:
    call = call._replace(keywords=())
    renamed = {
        one.old.name: one.new.name
        for one in parameter_changes(old, new)
        if one.change is Change.RENAMED and one.old and one.new
    }
    for before, after in shifted_arguments(old, new, call):
        assert before.name != after.name
        assert renamed.get(before.name) != after.name


@given(parameter_lists(), parameter_lists())
def test_every_change_is_about_its_lists(
    old: tuple[Parameter, ...], new: tuple[Parameter, ...]
) -> None:
    for one in parameter_changes(old, new):
        assert one.old is None or one.old in old
        assert one.new is None or one.new in new
    gone = {one.name for one in old} - {one.name for one in new}
    told = {
        one.old.name
        for one in parameter_changes(old, new)
        if one.change in (Change.REMOVED, Change.RENAMED) and one.old
    }
    assert told == gone


SOURCE = b'''\
from __future__ import annotations
import os, os.path as p
from ..far import thing as other
from star import *

LIMIT: int = 3


@dataclass(kw_only=True)
class Spec(Base[int], metaclass=Meta):
    """Text."""

    size: int
    names: list[str] = field(default_factory=list, init=False)

    @property
    def area(self) -> float: ...

    @staticmethod
    def make(a, /, b=1, *rest, c: int = 2, **more): return f(a, b, *rest, c=c, **more)

    def run(self, config: Config) -> None:
        self.cache, self.x = config.cache, 1
        self.config = config.inner
        super().run(config)
        kernel[(1,)](config, num_warps=4)


def gen():
    from late import inner
    yield inner()
'''


def test_facts_survive_storage() -> None:
    found = python_facts(SOURCE)
    assert decode_facts(json.loads(json.dumps(encode_facts(found.facts)))) == found.facts
    assert decode_calls(json.loads(json.dumps(encode_calls(found.calls)))) == tuple(found.calls)


def test_what_a_file_says() -> None:
    facts, calls, words = python_facts(SOURCE)
    symbols = facts.symbols
    assert symbols["LIMIT"].value == "3"
    assert symbols["Spec"].bases == ("Base[int]",)
    assert [one.kind.value for one in symbols["Spec.make"].parameters] == [
        "p", "a", "*", "k", "**",
    ]  # fmt: skip
    assert symbols["Spec.config"].source == ("A", "Config", ("inner",))
    assert symbols["Spec.run"].parameters[1].annotation == "Config"
    assert facts.imports["other"][:3] == ("far", "thing", 2)
    assert facts.inner["inner"][:3] == ("late", "inner", 0)
    assert facts.stars == (("star", 0),)
    made = {call.callee: call for call in calls}
    assert made["f"].star and made["f"].double_star and made["f"].keywords == ("c",)
    assert made["kernel"].keywords == ("num_warps",)
    assert made["super.run"].scope == "Spec.run"
    assert "inner" in words
