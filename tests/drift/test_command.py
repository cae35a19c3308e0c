"""`dsv4port drift` as a process: which series, which exit code, which form of answer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.synthetic import DEMO_FILES, WORKER, Change, SyntheticProject, make_patches

USE = Change(
    "Use the worker",
    {"vllm/use.py": b"from vllm.worker import make_worker\n\nworker = make_worker('spare')\n"},
)
WITHOUT = WORKER.split(b"\n\n\ndef make_worker")[0] + b"\n"
MEANING = """format: 1
entries:
  - id: loads-twice
    older: v1.0.0
    newer: v2.0.0
    symbols: ["vllm/worker.py:Worker.load"]
    words: [MAX_TOKENS]
    what: a worker is loaded twice
    evidence:
      - {pin: v1.0.0, path: vllm/worker.py, line: 5, text: def load}
"""


@pytest.fixture
def project(demo: SyntheticProject) -> SyntheticProject:
    """The demo project with a third pin that has no `make_worker`."""
    demo.add_pin("v2.0.0", {**DEMO_FILES, "vllm/worker.py": WITHOUT})
    folder = demo.root / "mine"
    folder.mkdir()
    for file, data in make_patches(DEMO_FILES, [USE]).items():
        (folder / file).write_bytes(data)
    return demo


def test_a_series_that_depends_on_what_is_gone(project: SyntheticProject) -> None:
    result = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine")
    assert result.code == 1
    assert "error: symbol-removed: make_worker is gone" in result.out
    assert "was vllm/worker.py:26" in result.out
    assert "0001-Use-the-worker.patch:17 (vllm/use.py:1)" in result.out


def test_json_says_the_same(project: SyntheticProject) -> None:
    result = project.run(
        "drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine", "--json"
    )
    answer = result.json
    assert (result.code, answer["exit_code"], answer["ok"]) == (1, 1, False)
    (found,) = answer["findings"]
    assert (found["kind"], found["severity"]) == ("symbol-removed", "error")
    assert found["old"] == {"path": "vllm/worker.py", "line": 26}
    assert found["new"] is None
    concern = found["concerns"][0]
    patch = (project.root / concern["file"]).read_text().splitlines()
    assert patch[concern["patch_line"] - 1] == "+from vllm.worker import make_worker"
    assert answer["counts"] == {"error": 1, "warning": 0, "note": 0}


@pytest.mark.parametrize("pin", ["v1.0.0", "v1.1.0"])
def test_nothing_that_matters_changed(project: SyntheticProject, pin: str) -> None:
    result = project.run("drift", "--from", "v1.0.0", "--to", pin, "--series", "mine")
    assert (result.code, result.out) == (0, f"mine from v1.0.0 to {pin}: no drift\n")


def test_a_stack_brings_its_own_pin(project: SyntheticProject) -> None:
    assert project.run("drift", "--stack", "demo", "--to", "v1.1.0").code == 0
    other = project.run("drift", "--stack", "demo", "--from", "v1.1.0", "--to", "v1.0.0")
    assert other.code == 2
    assert "stack demo is for v1.0.0" in other.err


def test_a_patchset(project: SyntheticProject) -> None:
    result = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--patchset", "alpha")
    assert result.code == 0


def test_without_a_series_every_change_is_listed(project: SyntheticProject) -> None:
    result = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0")
    assert result.code == 1
    assert "make_worker is gone" in result.out
    under = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--under", "csrc/")
    assert (under.code, under.out) == (0, "v1.0.0 to v2.0.0: no drift\n")


def test_the_threshold_decides(project: SyntheticProject) -> None:
    pins = ("drift", "--from", "v1.0.0", "--to", "v1.1.0")
    assert project.run(*pins).code == 0
    assert project.run(*pins, "--fail-on", "note").code == 1
    gone = ("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine")
    assert project.run(*gone, "--fail-on", "error").code == 1


def test_the_curated_file_is_heeded(project: SyntheticProject) -> None:
    (project.root / "drift").mkdir()
    (project.root / "drift" / "meaning.yaml").write_text(MEANING)
    # It lies between the pins only when both ends do.
    pins = project.root / "manifests" / "pins.yaml"
    read = json.loads(pins.read_text())
    del read["pins"]["v1.1.0"]
    pins.write_text(json.dumps(read))
    result = project.run(
        "drift", "--from", "v1.0.0", "--to", "v2.0.0", "--patchset", "alpha", "--json"
    )
    (found,) = result.json["findings"]
    assert (result.code, found["kind"], found["subject"]) == (1, "meaning", "loads-twice")
    assert found["message"] == "a worker is loaded twice"
    assert found["old"] == {"path": "vllm/worker.py", "line": 5}
    assert {one["patch"] for one in found["concerns"]} == {
        "alpha/0001-Core-Count-the-loads-of-a-worker.patch"
    }
    same = project.run("drift", "--from", "v1.0.0", "--to", "v1.0.0", "--patchset", "alpha")
    assert same.code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("v1.0.0\n    newer: v2.0.0", "v2.0.0\n    newer: v1.0.0"),
        ("what: a worker", "waht: a worker"),
        ("MAX_TOKENS", "MAX TOKENS"),
        ("vllm/worker.py:Worker.load", "Worker.load"),
        ("line: 5", "line: 0"),
        ("newer: v2.0.0", "newer: v3.0.0"),
    ],
)
def test_a_wrong_curated_file_is_refused(project: SyntheticProject, old: str, new: str) -> None:
    assert old in MEANING
    (project.root / "drift").mkdir()
    (project.root / "drift" / "meaning.yaml").write_text(MEANING.replace(old, new))
    result = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0")
    assert result.code == 5
    assert "drift/meaning.yaml:" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "v1.0.0"],
        ["--to", "v1.0.0"],
        ["--to", "v1.0.0", "--patchset", "alpha"],
        ["--from", "v1.0.0", "--to", "v2.0.0", "--patchset", "alpha", "--stack", "demo"],
        ["--from", "v1.0.0", "--to", "v2.0.0", "--sarif", "--json"],
        ["--from", "v1.0.0", "--to", "v2.0.0", "--patchset", "alpha", "--under", "vllm"],
        ["--from", "v1.0.0", "--to", "v2.0.0", "--fail-on", "never"],
    ],
)
def test_usage(project: SyntheticProject, arguments: list[str]) -> None:
    assert project.run("drift", *arguments).code == 2


def test_a_series_must_apply_to_its_pin(project: SyntheticProject) -> None:
    result = project.run("drift", "--from", "v2.0.0", "--to", "v1.0.0", "--series", "mine")
    assert result.code == 0
    changed = make_patches(
        DEMO_FILES,
        [Change("Edit", {"vllm/worker.py": WORKER.replace(b"return Worker()", b"pass")})],
    )
    for file, data in changed.items():
        (project.root / "mine" / file).write_bytes(data)
    result = project.run("drift", "--from", "v2.0.0", "--to", "v1.0.0", "--series", "mine")
    assert result.code == 3


def test_an_unknown_pin(project: SyntheticProject) -> None:
    result = project.run("drift", "--from", "v1.0.0", "--to", "v9")
    assert result.code == 5
    assert "unknown pin" in result.err


def test_a_damaged_index_is_made_anew(project: SyntheticProject, tmp_path: Path) -> None:
    pins = ("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine")
    first = project.run(*pins)
    (index,) = project.cache.rglob("symbols.sqlite")
    index.write_bytes(b"no database" * 1000)
    assert project.run(*pins) == first
    assert index.read_bytes().startswith(b"SQLite format 3")


def test_what_only_one_pin_has_read_is_not_gone(project: SyntheticProject) -> None:
    """`tests` is read for a series that touches it, and then known of one pin alone."""
    before = {**DEMO_FILES, "tests/test_a.py": b"def test_a():\n    assert True\n"}
    project.add_pin("v3.0.0", before)
    project.add_pin("v4.0.0", {**before, "tests/test_a.py": b"def test_a():\n    assert 1\n"})
    folder = project.root / "touching"
    folder.mkdir()
    added = Change("Test", {"tests/test_b.py": b"from tests.test_a import test_a\n"})
    for file, data in make_patches(before, [added]).items():
        (folder / file).write_bytes(data)
    same = ("drift", "--from", "v3.0.0", "--to", "v3.0.0", "--series", "touching")
    assert project.run(*same).code == 0
    listed = project.run("drift", "--from", "v3.0.0", "--to", "v4.0.0", "--fail-on", "note")
    assert (listed.code, listed.out) == (0, "v3.0.0 to v4.0.0: no drift\n")
    other = project.run("drift", "--from", "v3.0.0", "--to", "v4.0.0", "--under", "tests/")
    assert other.code == 0


def test_several_at_once(project: SyntheticProject) -> None:
    pins = ("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine")
    project.succeed("fetch", "--all")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: project.run(*pins), range(4)))
    # Who has to wait says so.
    assert {(one.code, one.out) for one in answers} == {(1, project.run(*pins).out)}


def test_a_cache_that_cannot_be_written(project: SyntheticProject) -> None:
    pins = ("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "mine")
    first = project.run(*pins)
    (index,) = project.cache.rglob("symbols.sqlite")
    index.unlink()
    index.mkdir()
    second = project.run(*pins)
    assert (second.code, second.out) == (first.code, first.out)
    assert "it is made in memory" in second.err


@pytest.mark.parametrize(
    "content",
    [
        b"def broken(:\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\n",
        b"name = '\xff\xfe'\n",
        b"\xef\xbb\xbfimport vllm.worker\r\nx = vllm.worker.make_worker\r\n",
        b"",
        b"\x00\x01binary\x00",
        b"x = " + b"(" * 300 + b")" * 300 + b"\n",
        b"from .nowhere import thing\nfrom ... import far\nimport vllm.nothing.here\nthing()\n",
        b"class A(A):\n    def f(self): return super().f(1)\n",
        b"import vllm.worker as w\nw.Worker.load = w.Worker.load = 3\nsetattr(w, 'x' + 'y', 1)\n",
        b"match x:\n    case {'a': b, **rest}:\n        b(rest)\n",
        b"async def f(*, a, **k):\n    async with g() as h, i: yield (lambda z: z + h)\n",
    ],
)
def test_any_file_can_be_added(project: SyntheticProject, content: bytes) -> None:
    folder = project.root / "odd"
    folder.mkdir()
    added = Change("Add", {"vllm/odd.py": content, "csrc/odd.cu": content})
    for file, data in make_patches(DEMO_FILES, [added]).items():
        (folder / file).write_bytes(data)
    result = project.run("drift", "--from", "v1.0.0", "--to", "v2.0.0", "--series", "odd", "--json")
    assert result.code in (0, 1), result
    assert all(one["subject"] != "vllm.odd" for one in result.json["findings"])
