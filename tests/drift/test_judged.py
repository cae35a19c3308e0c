"""Findings that were judged by hand: the right ones are still made, the mended ones are not.

The share of wrong ones is a promise, at most one in five; the file says how the sample was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsv4port.drift.compare import Comparison
from dsv4port.drift.facts import SymbolKind
from dsv4port.drift.findings import Concern
from dsv4port.drift.index import TreeIndex
from dsv4port.drift.match import find_drift
from dsv4port.drift.python_uses import python_uses
from dsv4port.drift.series import Workbench
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin

ROOT = Path(__file__).resolve().parents[2]
JUDGED: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "drift" / "judged.yaml").read_text()
)["findings"]
PAIRS = sorted({(one["from"], one["to"]) for one in JUDGED})


def test_at_most_one_in_five_is_wrong() -> None:
    assert len(JUDGED) >= 60
    wrong = [one for one in JUDGED if one["verdict"] == "wrong"]
    for sample in ("first", "second"):
        drawn = [one for one in JUDGED if one["sample"] == sample]
        assert len([one for one in drawn if one in wrong]) <= len(drawn) / 5
    assert all(one["why"] for one in wrong)
    assert {one["verdict"] for one in JUDGED} == {"right", "wrong"}


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with Workbench(Cache.locate()) as made:
        yield made


@pytest.mark.network
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(pair))
def test_judgements_hold(bench: Workbench, pair: tuple[str, str]) -> None:
    cache = Cache.locate()
    pins = load_pins(Project(ROOT))
    for name in pair:
        if cache.find(name, "sdist") is None:
            pytest.skip(f"{name} is not in the cache: run `dsv4port fetch {name}`")
    old, new = (bench.index(ensure_pin(pins.pin(name), cache, source="sdist")) for name in pair)
    known = Comparison(old, new)
    ours = [one for one in JUDGED if (one["from"], one["to"]) == pair]
    for path in {one["path"] for one in ours}:
        lines = changed_lines(old, new, path)
        found = find_drift(old, new, python_uses(old, old, path, lines, {}), comparison=known)
        made = {(one.kind.value, one.message[:160]) for one in found}
        for one in ours:
            if one["path"] == path:
                assert ((one["kind"], one["message"]) in made) == one["reported"], one


def changed_lines(old: TreeIndex, new: TreeIndex, path: str) -> dict[int, Concern]:
    """Lines of the functions and imports that are not the same in the newer tree."""
    before, after = old.facts(path), new.facts(path)
    numbers: set[int] = set()
    for name, symbol in before.symbols.items():
        other = after.symbols.get(name)
        if symbol.kind is SymbolKind.FUNCTION and not (
            other and (other.body, other.parameters) == (symbol.body, symbol.parameters)
        ):
            numbers.update(range(symbol.line, symbol.end + 1))
    for name, bound in before.imports.items():
        if name not in after.imports or after.imports[name][:3] != bound[:3]:
            numbers.add(bound.line)
    return {number: Concern("judged", path, number, number) for number in sorted(numbers)}
