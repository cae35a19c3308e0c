"""The quickly defined dataclasses do what the standard library's do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from dsv4port import quick_dataclass as quick


def _define(dataclass: Any, field: Any) -> tuple[type, type]:
    @dataclass(frozen=True, slots=True)
    class Base:
        kind: ClassVar[str] = "base"
        name: str
        size: int = 3
        rows: dict[str, int] = field(default_factory=dict)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        """A base with more."""

        extra: str | None = None

    return Base, Derived


QUICK = _define(quick.dataclass, quick.field)
STANDARD = _define(dataclasses.dataclass, dataclasses.field)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 4), {}),
    ((), {"name": "a", "rows": {"x": 1}}),
    (("a", 4, {"y": 2}), {}),
    ((), {}),
    (("a",), {"name": "b"}),
    (("a",), {"unknown": 1}),
    (("a", 1, {}, None, 9), {}),
    (("a", -1), {}),
]


def _outcome(cls: type, values: tuple[Any, ...], named: dict[str, Any]) -> object:
    try:
        made = cls(*values, **named)
    except (TypeError, ValueError) as error:
        return type(error)
    return repr(made), dataclasses.asdict(made), dataclasses.replace(made, size=9).size


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("values", "named"), CALLS)
def test_same_as_the_standard_ones(
    number: int, values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert _outcome(QUICK[number], values, named) == _outcome(STANDARD[number], values, named)


@pytest.mark.parametrize("number", [0, 1])
def test_fields_are_those_of_the_standard_ones(number: int) -> None:
    def rows(cls: Any) -> list[tuple[str, object]]:
        return [(each.name, each.type) for each in dataclasses.fields(cls)]

    assert rows(QUICK[number]) == rows(STANDARD[number])
    assert quick.field_names(QUICK[number]) == tuple(row[0] for row in rows(STANDARD[number]))


def test_values_are_equal_by_class_and_fields() -> None:
    base, derived = QUICK
    assert base("a", 3) == base("a")
    assert base("a") != base("b")
    assert base("a") != derived("a")
    assert base("a").rows is not base("a").rows

    @quick.dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int

    assert len({Pair(1, 2), Pair(1, 2), Pair(2, 1)}) == 2
    assert copy.copy(Pair(1, 2)) == Pair(1, 2)


@quick.dataclass(frozen=True, slots=True)
class Kept:
    """Pickle looks classes up by name, so it stands here."""

    left: int


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Kept(7))) == Kept(7)


def test_frozen_values_refuse_to_change() -> None:
    value: Any = QUICK[0]("a")
    with pytest.raises(AttributeError, match="frozen"):
        value.name = "b"
    with pytest.raises(AttributeError, match="frozen"):
        del value.name
    with pytest.raises(AttributeError):
        value.other = 1


def test_others_change_and_have_no_hash() -> None:
    @quick.dataclass(slots=True)
    class Counter:
        count: int = 0

    counter: Any = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError):
        hash(counter)
    with pytest.raises(AttributeError):
        counter.other = 1


def test_a_field_without_default_may_not_follow_one_with() -> None:
    with pytest.raises(TypeError, match="second"):

        @quick.dataclass(frozen=True, slots=True)
        class Wrong:
            first: int = 1
            second: int  # type: ignore[misc]
