"""Changes between real pins that are known by reading them, and what drift says of each.

The pins must be in the cache (`dsv4port fetch --all`); those that are not are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.drift_probes import probe_items

from dsv4port.drift.applied import apply_to_pin
from dsv4port.drift.compare import Comparison, State
from dsv4port.drift.findings import Finding, Severity
from dsv4port.drift.index import Place
from dsv4port.drift.series import Workbench, drift_of_series, folders_of
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin, ensure_pin

pytestmark = pytest.mark.network
ROOT = Path(__file__).resolve().parents[2]
TRUTH: dict[str, Any] = yaml.safe_load((ROOT / "tests" / "drift" / "truth.yaml").read_text())
ORDER = list(load_pins(Project(ROOT)))


def after(pin: str) -> str:
    return ORDER[ORDER.index(pin) + 1]


def cached_pin(cache: Cache, name: str) -> ImportedPin:
    if cache.find(name, "sdist") is None:
        pytest.skip(f"{name} is not in the cache: run `dsv4port fetch {name}`")
    return ensure_pin(load_pins(Project(ROOT)).pin(name), cache, source="sdist")


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with Workbench(Cache.locate()) as made:
        yield made


def compared(bench: Workbench, old: str, new: str, folders: tuple[str, ...] = ()) -> Comparison:
    cache = Cache.locate()
    return Comparison(
        bench.index(cached_pin(cache, old), folders), bench.index(cached_pin(cache, new), folders)
    )


def probed(bench: Workbench, probe: Mapping[str, Any], new: str) -> list[Finding]:
    cache = Cache.locate()
    old_pin = cached_pin(cache, probe["from"])
    old = bench.index(old_pin)
    applied = apply_to_pin(probe_items(probe, old.content), bench.reader, old_pin.commit)
    folders = folders_of(applied)
    return drift_of_series(
        bench.index(old_pin, folders), bench.index(cached_pin(cache, new), folders), applied
    )


def at(place: Place | None, wanted: str | None) -> bool:
    if wanted is None or place is None:
        return wanted is None and place is None
    path, _, line = wanted.partition(":")
    return place.path == path and line in ("", str(place.line))


def meets(found: Finding, wanted: Mapping[str, Any]) -> bool:
    return (
        found.kind.value == wanted["kind"]
        and found.severity.value == wanted["severity"]
        and found.subject == wanted["subject"]
        and at(found.old, wanted.get("old"))
        and at(found.new, wanted.get("new"))
        and wanted.get("replacement", found.replacement) == found.replacement
    )


@pytest.mark.parametrize("probe", TRUTH["probes"], ids=lambda probe: probe["id"])
def test_a_series_is_told_what_it_depends_on(bench: Workbench, probe: dict[str, Any]) -> None:
    findings = probed(bench, probe, probe["to"])
    shown = "\n".join(map(str, findings))
    for wanted in probe["expect"]:
        assert any(meets(found, wanted) for found in findings), f"{wanted}\n{shown}"
    assert all(found.concerns for found in findings), shown
    if not probe.get("others"):
        rest = [
            found
            for found in findings
            if found.severity is not Severity.NOTE
            and not any(meets(found, wanted) for wanted in probe["expect"])
        ]
        assert not rest, "\n".join(map(str, rest))


@pytest.mark.parametrize("probe", TRUTH["probes"], ids=lambda probe: probe["id"])
def test_equal_pins_give_nothing(bench: Workbench, probe: dict[str, Any]) -> None:
    assert probed(bench, probe, probe["from"]) == []


@pytest.mark.parametrize(("pin", "path", "target"), TRUTH["files"], ids=lambda one: str(one))
def test_a_file_that_moved_is_found(bench: Workbench, pin: str, path: str, target: str) -> None:
    folders = ("tests",) if path.startswith("tests/") else ()
    fate = compared(bench, pin, after(pin), folders).file(path)
    assert (fate.state, fate.path) == (State.MOVED, target)


@pytest.mark.parametrize(
    ("pin", "path", "name", "target", "line"), TRUTH["symbols"], ids=lambda one: str(one)
)
def test_a_definition_that_moved_is_found(
    bench: Workbench, pin: str, path: str, name: str, target: str, line: int
) -> None:
    known = compared(bench, pin, after(pin))
    found = known.old.find(path, name)
    assert found is not None
    fate = known.fate(found)
    assert fate.new is not None
    assert (fate.state, fate.new.path, fate.new.symbol.line) == (State.MOVED, target, line)


@pytest.mark.parametrize(("pin", "path", "name"), TRUTH["not_moved"], ids=lambda one: str(one))
def test_a_copy_is_not_taken_for_a_move(bench: Workbench, pin: str, path: str, name: str) -> None:
    known = compared(bench, pin, after(pin))
    found = known.old.find(path, name)
    assert found is not None
    assert known.fate(found).state is not State.MOVED
