"""Small pairs of trees, a series for the older one, and exactly what drift must say.

Each folder of ``cases`` has ``old``, ``new`` and ``case.yaml``: the series as a probe (see
``support.drift_probes``) and every finding that must come, no more and no fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.drift_probes import probe_items
from support.synthetic import make_repository

from dsv4port.drift.applied import apply_to_pin
from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import MemoryFacts, Place, TreeIndex
from dsv4port.drift.series import drift_of_series
from dsv4port.git.objects import blob_id
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import open_repository

CASES = Path(__file__).with_name("cases")
NAMES = sorted(path.name for path in CASES.iterdir())


def tree_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index_of(files: Mapping[str, bytes]) -> TreeIndex:
    contents = {blob_id(content): content for content in files.values()}
    blobs = {path: blob_id(content) for path, content in files.items()}
    return TreeIndex(blobs, MemoryFacts(files), contents.__getitem__)


def drift(
    case: Mapping[str, Any], old: Path, new: Path, folder: Path
) -> tuple[list[Finding], list[Finding]]:
    """Findings between the two trees, and between the older one and itself."""
    files = tree_of(old)
    commit = make_repository(folder, files)
    repository = open_repository(folder)
    with ObjectReader(repository.git) as reader:
        applied = apply_to_pin(probe_items(case, files.__getitem__), reader, commit)
    index = index_of(files)
    return (
        drift_of_series(index, index_of(tree_of(new)), applied),
        drift_of_series(index, index_of({**files, "unrelated.txt": b""}), applied),
    )


def shown(found: Finding) -> str:
    return f"{found.severity.value} {found.kind.value} {found.subject}"


def is_at(place: Place | None, wanted: str) -> bool:
    return place is not None and str(place) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, tmp_path: Path) -> None:
    case = yaml.safe_load((CASES / name / "case.yaml").read_text())
    findings, without_change = drift(
        case, CASES / name / "old", CASES / name / "new", tmp_path / "repository"
    )
    assert without_change == []
    wanted = [f"{one['severity']} {one['kind']} {one['subject']}" for one in case["expect"]]
    assert sorted(map(shown, findings)) == sorted(wanted), "\n".join(map(str, findings))
    for one in case["expect"]:
        found = next(
            finding
            for finding in findings
            if (finding.kind.value, finding.subject) == (one["kind"], one["subject"])
        )
        for key in ("old", "new"):
            assert key not in one or is_at(getattr(found, key), one[key]), (key, found)
        assert one.get("replacement", found.replacement) == found.replacement
        assert found.concerns and all(line.patch == "probe.patch" for line in found.concerns)


def test_every_kind_has_a_case() -> None:
    listed = {
        one["kind"]
        for name in NAMES
        for one in yaml.safe_load((CASES / name / "case.yaml").read_text())["expect"]
    }
    elsewhere = {Kind.MEANING, Kind.UNREADABLE, Kind.PARAMETER_ADDED}
    assert {kind.value for kind in set(Kind) - elsewhere} - listed == set()


def test_severities_are_ordered() -> None:
    assert [one.value for one in sorted(Severity, key=lambda one: one.rank)] == [
        "note", "warning", "error",
    ]  # fmt: skip
