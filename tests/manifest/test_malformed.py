"""Every malformed manifest is refused with its line, its key and what is wrong.

A case is a folder ``cases/<kind>/<name>`` with an ``input.yaml`` that takes the place of a
manifest in the sample project, and the message in ``expected.txt`` (a ``fix:`` line follows
where the case is about what to do next).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4port.errors import ExitCode, ManifestError
from dsv4port.manifest.lock import load_lock
from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.stack import resolve_stack

CASES = Path(__file__).with_name("cases")

KINDS: dict[str, tuple[str, Callable[[Project], object]]] = {
    "pins": ("manifests/pins.yaml", load_pins),
    "patchset": (
        "patchsets/arena/patchset.yaml",
        lambda project: load_patchset(project, "arena", load_pins(project)),
    ),
    "stack": ("manifests/stacks/musa.yaml", lambda project: resolve_stack(project, "musa")),
    "lock": ("manifests/locks/musa.lock.yaml", lambda project: load_lock(project, "musa")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_itself_is_accepted(kind: str, project: Project) -> None:
    assert KINDS[kind][1](project)


@pytest.mark.parametrize(
    "case",
    sorted(path.parent for path in CASES.glob("*/*/input.yaml")),
    ids=lambda case: f"{case.parent.name}/{case.name}",
)
def test_malformed_manifest(case: Path, project: Project) -> None:
    file, load = KINDS[case.parent.name]
    (project.root / file).write_bytes((case / "input.yaml").read_bytes())
    expected, _, fix = (case / "expected.txt").read_text().partition("\nfix: ")
    with pytest.raises(ManifestError) as raised:
        load(project)
    assert str(raised.value) == expected.strip()
    assert raised.value.exit_code is ExitCode.BAD_INPUT
    if fix:
        assert raised.value.fix == fix.strip()


def test_no_case_is_incomplete() -> None:
    folders = {path.parent for path in CASES.glob("*/*/*")}
    assert len(folders) > 60
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"input.yaml", "expected.txt"}
        assert folder.parent.name in KINDS
