"""The curated file: every entry is what the trees say, and is found by who uses what it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dsv4port.drift.meaning import Meaning, load_meanings, meanings_between
from dsv4port.drift.series import Workbench
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Project(ROOT)
PINS = load_pins(PROJECT)
ENTRIES = load_meanings(PROJECT, PINS)


def test_entries_are_in_the_order_of_the_pins() -> None:
    places = [PINS.position(one.older) for one in ENTRIES]
    assert places == sorted(places)


def test_only_entries_between_the_pins_count() -> None:
    found = meanings_between(ENTRIES, PINS, "v0.28.0", "v0.29.0")
    assert {(one.older, one.newer) for one in found} == {("v0.28.0", "v0.29.0")}
    assert found == meanings_between(ENTRIES, PINS, "v0.29.0", "v0.28.0")
    assert meanings_between(ENTRIES, PINS, "v0.28.0", "v0.28.0") == ()


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with Workbench(Cache.locate()) as made:
        yield made


@pytest.mark.network
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry.id))
def test_the_evidence_stands_in_the_trees(bench: Workbench, entry: Meaning) -> None:
    cache = Cache.locate()
    for one in entry.evidence:
        if cache.find(one.pin, "sdist") is None:
            pytest.skip(f"{one.pin} is not in the cache")
        index = bench.index(ensure_pin(PINS.pin(one.pin), cache, source="sdist"))
        line = index.content(one.path).decode().splitlines()[one.line - 1]
        assert one.text in line, (one, line)
    older = bench.index(ensure_pin(PINS.pin(entry.older), cache, source="sdist"))
    missing = [one for one in entry.symbols if older.find(one.path, one.name) is None]
    assert not missing
