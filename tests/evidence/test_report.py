"""``dsv4port report``: every number from a file that it names, and nothing claimed beyond them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import SyntheticProject, write_yaml

from dsv4port.manifest.lock import Lock, load_lock
from dsv4port.manifest.project import Project
from dsv4port.testing.outcomes import Outcome
from dsv4port.testing.results import SuiteResult, TestRow, TestRun, encode_run
from dsv4port.testing.suites import SuiteKind

CASES = Path(__file__).with_name("cases")
IDS = [f"patchsets/alpha/tests/test_it.py::test_{name}" for name in ("one", "two", "three")]


def lock_of(project: SyntheticProject) -> Lock:
    return load_lock(Project(project.root), "demo")


def keep(project: SyntheticProject, name: str, content: bytes | dict[str, Any]) -> None:
    folder = project.root / "evidence"
    folder.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / name).write_bytes(data)


def row(name: str, outcome: Outcome, reason: str | None = None) -> TestRow:
    return TestRow(name, outcome, reason, 1.5, (), {})


def a_run(lock: Lock, *tests: TestRow, **changes: Any) -> bytes:
    suite: dict[str, Any] = {
        "kind": SuiteKind.PATCHSET, "patchset": "alpha", "stack": "demo", "pin": "v1.0.0",
        "tree": lock.tree, "lock_sha256": "0" * 64, "seconds": 3.0, "tests": tests, **changes,
    }  # fmt: skip
    host = {"system": "Linux", "machine": "x86_64", "cpus": 2, "memory_bytes": 8 << 30}
    environment = {"python": "3.11.7", "torch": "2.13.0", "triton": None, "driver": None}
    return encode_run(
        TestRun(
            "0.1.0",
            "2026-11-30T00:00:00+00:00",
            ("dsv4port", "test", "demo"),
            "cpu",
            host,
            environment,
            {},
            (SuiteResult(**suite),),
        )
    )


def report(project: SyntheticProject, *arguments: str, code: int = 0) -> dict[str, Any]:
    answer = project.run("report", "demo", *arguments, "--json").json
    assert answer["exit_code"] == code, answer
    return answer


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_a_stack_without_evidence(locked: SyntheticProject) -> None:
    found = report(locked)
    text = found["markdown"]
    for title in (
        "Summary", "Commits", "Root causes", "Files changed", "Environment", "Commands",
        "Validation", "Benchmarks", "Not run", "Left out on purpose", "Remaining gates",
    ):  # fmt: skip
        assert f"\n## {title}\n" in text
    lock = lock_of(locked)
    assert lock.tree in section(text, "Summary")
    for patch in lock.patches:
        assert patch.commit[:12] in section(text, "Commits")
    assert "[Core] Count the loads of a worker" in section(text, "Commits")
    assert section(text, "Files changed").count("| `") == len(lock.files)
    assert "Nothing was recorded." in section(text, "Validation")
    assert len(found["open_gates"]) == 2, "neither patchset has a test that passed"
    assert report(locked, "--strict", code=1)["open_gates"] == found["open_gates"]


def test_numbers_come_with_their_file(locked: SyntheticProject) -> None:
    tests = (
        row(IDS[0], Outcome.PASSED),
        row(IDS[1], Outcome.DESELECTED, "needs a CUDA device; the run is for cpu"),
        row(IDS[2], Outcome.ENVIRONMENT, "download refused: HTTP 403: gated"),
    )
    keep(locked, "cpu.json", a_run(lock_of(locked), *tests))
    found = report(locked)
    text = found["markdown"]
    line = next(line for line in text.splitlines() if line.startswith("| alpha | own tests"))
    assert line == (
        "| alpha | own tests | CPU | this tree | 1 deselected, 1 environment, 1 passed | 4 | "
        "`evidence/cpu.json` |"
    )
    assert "needs a CUDA device" in section(text, "Not run")
    assert f"`{IDS[1]}`" in section(text, "Not run")
    assert f"`{IDS[0]}`" not in section(text, "Not run")
    assert "dsv4port test demo" in section(text, "Commands")
    assert "x86_64, 2 CPUs, 8 GiB" in section(text, "Environment")
    assert any("1 environment" in gate for gate in found["open_gates"])
    assert found["sources"] == ["evidence/cpu.json"]


def test_a_test_that_passed_somewhere_is_shown(locked: SyntheticProject) -> None:
    lock = lock_of(locked)
    keep(locked, "cpu.json", a_run(lock, row(IDS[0], Outcome.DESELECTED, "needs a device")))
    assert any("never passed" in gate for gate in report(locked)["open_gates"])
    keep(locked, "gpu.json", a_run(lock, row(IDS[0], Outcome.PASSED)))
    assert not any("never passed" in gate for gate in report(locked)["open_gates"])


def test_evidence_of_another_tree_proves_nothing(locked: SyntheticProject) -> None:
    stale = a_run(lock_of(locked), row(IDS[0], Outcome.PASSED), tree="1" * 40)
    keep(locked, "old.json", stale)
    found = report(locked)
    assert "| another tree |" in found["markdown"]
    gates = " ".join(found["open_gates"])
    assert "evidence/old.json: alpha ran on another tree" in gates
    assert "alpha: no test of it passed" in gates


def test_another_stack_with_the_same_tree_is_as_good(locked: SyntheticProject) -> None:
    lock = lock_of(locked)
    keep(locked, "twin.json", a_run(lock, row(IDS[0], Outcome.PASSED), stack="twin"))
    assert "`evidence/twin.json`" in report(locked)["markdown"]
    other = a_run(lock, row(IDS[0], Outcome.PASSED), stack="twin", tree="1" * 40)
    keep(locked, "twin.json", other)
    assert "twin.json" not in report(locked)["markdown"]


def test_fix_tests_that_are_not_red_are_a_gate(locked: SyntheticProject) -> None:
    lock = lock_of(locked)
    red = {"kind": SuiteKind.RED, "stack": None, "tree": lock.base_tree, "lock_sha256": None}
    tests = (row(IDS[0], Outcome.FAILED, "as it must"), row(IDS[1], Outcome.PASSED))
    keep(locked, "red.json", a_run(lock, *tests, **red))
    found = report(locked)
    assert (
        "| alpha | fix tests on the bare pin | CPU | the bare pin | 1 green, 1 red |"
        in (found["markdown"])
    )
    assert any("1 green, 1 red" in gate for gate in found["open_gates"])


def record(lock: Lock, **changes: Any) -> dict[str, Any]:
    test = {"id": IDS[0], "outcome": "passed", "reason": None, "markers": [], "measured": {}}
    return {
        "format": 1, "date": "2026-11-30T00:00:00+00:00", "exit_status": 0, "outcomes": {},
        "environment": {"device": {"name": "NVIDIA H200"}, "driver": "580.1", "python": "3.12"},
        "facts": {"pin": "v1.0.0", "tree": lock.tree}, "digests": {}, "tests": [test], **changes,
    }  # fmt: skip


@pytest.mark.parametrize("how", ["tree", "digests", "stale", "other pin"])
def test_files_of_the_plugin_are_read_too(locked: SyntheticProject, how: str) -> None:
    lock = lock_of(locked)
    file = next(one for one in lock.files if one.sha256)
    path = file.path.decode()
    facts, digests = {"pin": "v1.0.0"}, {}
    if how == "tree":
        facts["tree"] = lock.tree
    elif how == "other pin":
        facts["pin"] = "v1.1.0"
    else:
        digests = {path: file.sha256 if how == "digests" else "0" * 64}
    keep(locked, "h200.json", record(lock, facts=facts, digests=digests))
    text = report(locked)["markdown"]
    words = {"tree": "this tree", "digests": "the same files", "stale": "another tree"}
    if how == "other pin":
        assert "h200.json" not in text
    else:
        assert f"| alpha | own tests | NVIDIA H200 | {words[how]} | 1 passed |" in text


def test_benchmarks_of_the_stack_and_of_no_other(locked: SyntheticProject) -> None:
    shutil.copytree(CASES / "gemm-reduce-scatter", locked.root / "evidence" / "gemm")
    other = locked.root / "evidence" / "other"
    shutil.copytree(CASES / "narrow-graph-region" / "ttft", other)
    (other / "bench.yaml").write_text((other / "bench.yaml").read_text() + "stack: another\n")
    found = report(locked)
    text = section(found["markdown"], "Benchmarks")
    assert "| 64 | 2 + 2 | 3147.2 → 3197.8 | +1.6% |" in text
    assert "no stable gain" in text and "41.45" not in text
    assert "evidence/gemm/node17-gemm-rs-0-c16.json" in found["sources"]


def test_a_gate_of_a_benchmark(locked: SyntheticProject, tmp_path: Path) -> None:
    folder = tmp_path / "gemm"
    shutil.copytree(CASES / "gemm-reduce-scatter", folder)
    assert locked.run("report", "--bench", str(folder)).code == 0
    file = folder / "bench.yaml"
    file.write_text(file.read_text().replace("arms: [baseline, fused]", "arms: [fused, baseline]"))
    found = locked.run("report", "--bench", str(folder), "--json").json
    assert found["exit_code"] == 1
    assert any("concurrency 964" in gate for gate in found["open_gates"])


def test_the_same_files_give_the_same_text(locked: SyntheticProject, tmp_path: Path) -> None:
    keep(locked, "cpu.json", a_run(lock_of(locked), row(IDS[0], Outcome.PASSED)))
    out = tmp_path / "out" / "report.md"
    assert locked.run("report", "demo", "--out", str(out)).code == 0
    assert out.read_text() == report(locked.copy(tmp_path / "copy"))["markdown"]


def test_markup_in_manifests_stays_inside_of_its_cell(locked: SyntheticProject) -> None:
    file = locked.root / "patchsets" / "alpha" / "patchset.yaml"
    values = json.loads(file.read_text())
    values["not_run"] = [{"what": "a | b\n| c", "why": "no\n\n# heading"}]
    write_yaml(file, values)
    text = report(locked)["markdown"]
    assert "| alpha | a \\| b \\| c | no # heading |" in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut.json", b'{"kind": "dsv4port test", "form', "no whole JSON file"),
        ("list.json", b"[]", "no JSON object"),
        ("empty.json", b"", "no whole JSON file"),
        ("newer.json", b'{"format": 9, "tests": [], "exit_status": 0}', "format 9"),
        ("part.json", b'{"format": 1, "tests": [], "exit_status": 0}', "no whole record"),
        ("kind.json", b'{"kind": "dsv4port test", "format": 2}', "other kind or format"),
    ],
)
def test_files_that_are_not_whole(
    locked: SyntheticProject, name: str, content: bytes, words: str
) -> None:
    keep(locked, name, content)
    found = locked.run("report", "demo")
    assert found.code == 5 and f"evidence/{name}" in found.err, found
    assert "\n→ " in found.err


def test_a_result_that_was_touched_up_is_refused(locked: SyntheticProject) -> None:
    data = a_run(lock_of(locked), row(IDS[0], Outcome.FAILED, "wrong"))
    keep(locked, "nice.json", data.replace(b'"holds": false', b'"holds": true'))
    found = locked.run("report", "demo")
    assert found.code == 5 and "summary" in found.err, found


@pytest.mark.parametrize("arguments", [[], ["demo", "--bench", "x"]])
def test_a_stack_or_a_comparison(locked: SyntheticProject, arguments: list[str]) -> None:
    assert locked.run("report", *arguments).code == 2


def test_evidence_of_this_project_is_whole() -> None:
    from support.synthetic import SOURCE_ROOT

    from dsv4port.evidence.report import make_report

    project = Project(SOURCE_ROOT)
    for stack in project.stack_names():
        assert make_report(project, stack).markdown.startswith("# ")
