"""The result file of a run: what was run where, and what came out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SAMPLE = """
import pytest


def test_passes(record_property):
    record_property("ratio", 0.5)
    record_property("microseconds", {"ours": 1.0, "theirs": 2.0})


@pytest.mark.gpu
def test_skips():
    pytest.skip("no CUDA device")


@pytest.mark.fix
def test_fails():
    assert 1 + 1 == 3, "arithmetic"


@pytest.fixture
def broken():
    raise RuntimeError("no such file")


def test_errors(broken):
    pass
"""


def run(folder: Path, *options: str, code: int) -> str:
    result = subprocess.run(
        [
            sys.executable,
            *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "dsv4port.testing.plugin", "-p", "dsv4port.testing.record"),
            *options,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def results(project: Path, *options: str, code: int = 1) -> dict[str, Any]:
    run(project, "--result-file", "out/result.json", *options, code=code)
    loaded = json.loads((project / "out" / "result.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_every_test_has_its_outcome_and_reason(project: Path) -> None:
    document = results(project)
    rows = {row["id"].split("::")[1]: row for row in document["tests"]}
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "test_passes": "passed",
        "test_skips": "skipped",
        "test_fails": "failed",
        "test_errors": "error",
    }
    assert rows["test_passes"]["reason"] is None
    assert "no CUDA device" in rows["test_skips"]["reason"]
    assert "arithmetic" in rows["test_fails"]["reason"]
    assert "no such file" in rows["test_errors"]["reason"]
    assert rows["test_skips"]["markers"] == ["gpu"]
    assert rows["test_fails"]["markers"] == ["fix"]
    assert document["outcomes"] == {"passed": 1, "skipped": 1, "failed": 1, "error": 1}
    assert document["exit_status"] == 1
    assert document["format"] == 2


def test_what_a_test_measured_is_kept(project: Path) -> None:
    (row,) = [row for row in results(project)["tests"] if row["id"].endswith("test_passes")]
    assert row["measured"] == {"ratio": 0.5, "microseconds": {"ours": 1.0, "theirs": 2.0}}


def test_a_file_that_is_skipped_or_broken_as_a_whole_is_reported(project: Path) -> None:
    (project / "test_sample.py").write_text(
        "import pytest\npytest.skip('not here', allow_module_level=True)\n"
    )
    (project / "test_broken.py").write_text("raise RuntimeError('cannot be read')\n")
    document = results(project, code=2)
    rows = {row["id"]: row for row in document["tests"]}
    assert rows["test_sample.py"]["outcome"] == "skipped"
    assert "not here" in rows["test_sample.py"]["reason"]
    assert rows["test_broken.py"]["outcome"] == "error"
    assert "cannot be read" in rows["test_broken.py"]["reason"]


def test_facts_and_digests_say_what_was_under_test(project: Path) -> None:
    tree = project / "tree"
    (tree / "kernels").mkdir(parents=True)
    (tree / "kernels" / "a.py").write_bytes(b"a\n")
    (project / "table.py").write_bytes(b"b\n")
    document = results(
        project,
        *("--vllm-tree", str(tree)),
        *("--result-fact", "pin=v0.26.0", "--result-fact", "note=a=b"),
        *("--result-digest", "kernels", "--result-digest", "table.py"),
    )
    assert document["facts"] == {"pin": "v0.26.0", "note": "a=b"}
    assert document["digests"] == {
        "kernels/a.py": "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7",
        "table.py": "0263829989b6fd954f72baaf2fc64bc2e2f01d692d4de72986ea808f6e99813f",
    }


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--result-fact", "pin", "wants KEY=VALUE"),
        ("--result-fact", "=x", "wants KEY=VALUE"),
        ("--result-digest", "nowhere", "there is no nowhere"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    project: Path, option: str, value: str, message: str
) -> None:
    output = run(project, "--result-file", "result.json", option, value, code=4)
    assert message in output
    assert not (project / "result.json").exists()


def test_without_the_option_nothing_is_written(project: Path) -> None:
    run(project, code=1)
    assert {path.name for path in project.iterdir() if path.suffix == ".json"} == set()


def test_the_environment_is_that_of_the_run(project: Path) -> None:
    environment = results(project)["environment"]
    assert environment["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert environment["pytest"] == pytest.__version__
    # Nothing imported them, so nothing is claimed about them.
    assert environment["torch"] is None
    assert environment["device"] is None
