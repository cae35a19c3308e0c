"""``dsv4port test`` on a small project: trees, verdicts, files, and all that can go wrong."""

from __future__ import annotations

import json
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import Result, SyntheticProject, git

from dsv4port.manifest.lock import load_lock
from dsv4port.manifest.project import Project
from dsv4port.testing.results import decode_run

PASSING = """
import pytest

@pytest.mark.fix
def test_the_patch_is_there(vllm_tree):
    assert (vllm_tree / "vllm" / "extra.py").is_file()

def test_the_tree_is_what_is_imported(vllm_tree):
    import vllm
    assert vllm.__file__ == str(vllm_tree / "vllm" / "__init__.py")

@pytest.mark.gpu(sm=90)
def test_on_a_device(): ...
"""


def write_test(project: SyntheticProject, text: str, name: str = "test_alpha.py") -> Path:
    file = project.root / "patchsets" / "alpha" / "tests" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(textwrap.dedent(text))
    return file


def declare(project: SyntheticProject, **keys: Any) -> None:
    """Put further keys into the manifest of `alpha`."""
    file = project.root / "patchsets" / "alpha" / "patchset.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def run(project: SyntheticProject, *arguments: str, **environment: str) -> Result:
    return project.run("test", "--python", sys.executable, *arguments, **environment)


@pytest.fixture
def tested(locked: SyntheticProject) -> SyntheticProject:
    write_test(locked, PASSING)
    declare(locked, tests=[{"path": "tests/test_alpha.py", "covers": "it", "fix": True}])
    return locked


def test_a_run_says_what_ran_where_and_keeps_it(tested: SyntheticProject, tmp_path: Path) -> None:
    result, junit = tmp_path / "out" / "result.json", tmp_path / "junit.xml"
    found = run(
        tested, "demo", "--red-on-pin", "--result", str(result), "--junit", str(junit), "--json"
    ).json
    assert (found["exit_code"], found["holds"]) == (0, True), found
    assert found["counts"] == {"deselected": 1, "passed": 2}
    assert found["red_counts"] == {"red": 1}
    kept = decode_run(result.read_bytes(), "result")
    patched, red = kept.suites
    lock = load_lock(Project(tested.root), "demo")
    assert (patched.stack, patched.pin, patched.tree) == ("demo", "v1.0.0", lock.tree)
    assert patched.lock_sha256 is not None
    assert (red.stack, red.lock_sha256, red.kind.value) == (None, None, "red-on-pin")
    assert red.tree == git(tested.cache / "store.git", "rev-parse", "refs/pins/v1.0.0/sdist^{tree}")
    command = "dsv4port test demo --device cpu --red-on-pin --python PATH"
    assert " ".join(kept.command) == command, "no places on the machine"
    assert kept.environment["packages"]["pytest"] == pytest.__version__
    assert kept.host["cpus"] and "name" not in kept.host
    (deselected,) = [test for test in patched.tests if test.outcome.value == "deselected"]
    assert "CUDA" in (deselected.reason or "") and deselected.seconds == 0
    names = [suite.get("name") for suite in ElementTree.parse(junit).iter("testsuite")]
    assert names == ["alpha, patchset, on demo"]
    assert not tested.checkout.exists(), "the user's checkout is not touched, nor made"


def test_for_people(tested: SyntheticProject) -> None:
    found = run(tested, "alpha", "--red-on-pin")
    assert found.code == 0, found
    assert found.out.splitlines()[0].split()[:3] == ["alpha", "patchset", "demo"]
    assert "1 deselected, 2 passed" in found.out and "1 red" in found.out


def test_failures_are_the_answer_no(tested: SyntheticProject) -> None:
    write_test(tested, "def test_it():\n    assert 1 == 2, 'arithmetic'\n", "test_more.py")
    found = run(tested, "demo")
    assert found.code == 1, found
    assert "failed: patchsets/alpha/tests/test_more.py::test_it: " in found.out
    assert "arithmetic" in found.out
    assert "the manifest of alpha says nothing about tests/test_more.py" in found.err


def test_a_fix_test_that_passes_on_the_bare_pin_is_told(tested: SyntheticProject) -> None:
    write_test(
        tested,
        """
        import pytest
        @pytest.mark.fix
        def test_green(): ...
        @pytest.mark.fix
        def test_skipped(): pytest.skip("here")
        @pytest.fixture
        def patched(vllm_tree):
            assert (vllm_tree / "vllm" / "extra.py").is_file()
        @pytest.mark.fix
        def test_broken(patched): ...
        @pytest.mark.fix
        @pytest.mark.gpu
        def test_device(): ...
        """,
        "test_green.py",
    )
    assert run(tested, "alpha").code == 0
    found = run(tested, "alpha", "--red-on-pin", "--json").json
    assert found["exit_code"] == 1
    assert found["red_counts"] == {
        "green": 1, "left out": 1, "red": 1, "red by error": 1, "unknown": 1
    }  # fmt: skip
    bad = {row["id"].partition("::")[2] for suite in found["suites"] for row in suite["bad"]}
    assert bad == {"test_green", "test_skipped"}


def test_a_file_declared_as_fix_needs_a_test_marked_so(tested: SyntheticProject) -> None:
    write_test(tested, "def test_it(): ...\n", "test_second.py")
    tests = [
        {"path": f"tests/{name}", "covers": "it", "fix": True}
        for name in ("test_alpha.py", "test_second.py")
    ]
    declare(tested, tests=tests)
    found = run(tested, "alpha", "--red-on-pin", "--json").json
    problems = [line for suite in found["suites"] for line in suite["problems"]]
    assert (found["exit_code"], len(problems)) == (1, 1)
    assert "patchsets/alpha/tests/test_second.py has no test marked `fix`" in problems[0]


def test_what_the_environment_lacks_is_neither_passed_nor_failed(
    tested: SyntheticProject, tmp_path: Path
) -> None:
    write_test(
        tested,
        "class GatedRepoError(Exception): ...\ndef test_it():\n    raise GatedRepoError('403')\n",
        "test_gated.py",
    )
    result = tmp_path / "result.json"
    answer = run(tested, "alpha", "--result", str(result), "--json").json
    assert (answer["exit_code"], answer["error"]["kind"]) == (6, "EnvironmentProblem")
    assert answer["counts"] == {"deselected": 1, "environment": 1, "passed": 2}
    assert not decode_run(result.read_bytes(), "result").holds
    assert "GatedRepoError" in answer["error"]["details"][0]


def test_upstreams_own_tests_run_on_the_patched_tree(tested: SyntheticProject) -> None:
    files = {
        **tested.trees["v1.0.0"],
        "tests/test_upstream.py": b"import vllm.extra\ndef test(): ...\n",
    }
    tested.add_pin("v1.0.0", files)
    declare(tested, upstream_tests=["tests/test_upstream.py"])
    tested.succeed("fetch", "v1.0.0")
    tested.succeed("lock", "demo")
    found = run(tested, "alpha", "--json").json
    assert found["exit_code"] == 0, found
    upstream = [suite for suite in found["suites"] if suite["kind"] == "upstream"]
    assert [suite["counts"] for suite in upstream] == [{"passed": 1}]
    assert len(run(tested, "alpha", "--no-upstream", "--json").json["suites"]) == 1
    declare(tested, upstream_tests=["tests/test_upstream.py", "tests/test_gone.py"])
    found = run(tested, "alpha", "--json").json
    assert found["exit_code"] == 1
    assert "tests/test_gone.py" in found["suites"][1]["problems"][0]


def test_tests_that_change_the_tree_are_told_and_the_tree_is_made_anew(
    tested: SyntheticProject,
) -> None:
    bad = write_test(
        tested,
        """
        def test_it(vllm_tree):
            (vllm_tree / "vllm" / "new.log").write_text("ignored by upstream's rules")
            (vllm_tree / "vllm" / "config.py").write_text("")
        """,
        "test_writes.py",
    )
    found = run(tested, "alpha", "--json").json
    assert found["exit_code"] == 1
    told = " ".join(found["suites"][0]["problems"])
    assert "vllm/new.log" in told and "vllm/config.py" in told
    bad.unlink()
    assert run(tested, "alpha").code == 0


def test_the_users_checkout_only_if_it_is_what_the_lock_says(tested: SyntheticProject) -> None:
    tested.succeed("apply", "demo")
    assert run(tested, "demo", "--checkout", str(tested.checkout)).code == 0
    (tested.checkout / "vllm" / "config.py").write_text("mine\n")
    found = run(tested, "demo", "--checkout", str(tested.checkout))
    assert found.code == 5, found
    assert "vllm/config.py" in found.err
    assert (tested.checkout / "vllm" / "config.py").read_text() == "mine\n"


def test_the_users_vllm_and_variables_stay_out(tested: SyntheticProject, tmp_path: Path) -> None:
    foreign = tmp_path / "site"
    (foreign / "vllm").mkdir(parents=True)
    (foreign / "vllm" / "__init__.py").write_text("raise RuntimeError('foreign')\n")
    write_test(
        tested,
        """
        import os, sys
        def test_it(vllm_tree):
            assert not [p for p in sys.path if p.endswith("/site")]
            assert "VLLM_ATTENTION_BACKEND" not in os.environ
            folders = [p for p in sys.path if os.path.isdir(p)]
            # Of what lies beside the program, tests see the program and nothing else.
            beside = [os.listdir(p) for p in folders if "dsv4port" in os.listdir(p)]
            assert beside[0] == ["dsv4port"]
        """,
        "test_path.py",
    )
    path = f"{tested.environment['PYTHONPATH']}:{foreign}"
    found = run(
        tested, "alpha", PYTHONPATH=path, VLLM_ATTENTION_BACKEND="X", PYTEST_ADDOPTS="--nonsense"
    )  # fmt: skip
    assert found.code == 0, found


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("conftest.py", "raise RuntimeError('broken conftest')\n", 5, "broken conftest"),
        ("test_kill.py", "import os\ndef test_it():\n    os.kill(os.getpid(), 9)\n", 6, "signal 9"),
        ("test_exit.py", "import os\ndef test_it():\n    os._exit(0)\n", 6, "no whole record"),
        ("test_broken.py", "import no_such_module\n", 1, "no_such_module"),
        ("test_stop.py", "def test_it():\n    raise KeyboardInterrupt\n", 6, "no whole record"),
        (
            "test_cut.py",
            "import atexit, sys\nfrom pathlib import Path\ndef test_it():\n"
            "    [name] = [a for a in sys.argv if a.startswith('--result-file=')]\n"
            "    file = Path(name.partition('=')[2])\n"
            "    atexit.register(lambda: file.write_text(file.read_text()[:100]))\n",
            6,
            "no whole record",
        ),
    ],
)
def test_what_does_not_run_to_its_end(
    tested: SyntheticProject, tmp_path: Path, name: str, text: str, code: int, words: str
) -> None:
    write_test(tested, text, name)
    result = tmp_path / "result.json"
    found = run(tested, "alpha", "--result", str(result))
    assert found.code == code, found
    assert words in found.err + found.out
    if code != 1:
        assert "\n→ " in found.err
        assert not result.exists(), "no result of half a run"


def test_a_result_that_cannot_be_written_leaves_the_old_one(
    tested: SyntheticProject, tmp_path: Path
) -> None:
    folder = tmp_path / "file"
    folder.write_text("in the way")
    found = run(tested, "alpha", "--result", str(folder / "result.json"))
    assert found.code == 6, found
    assert found.err.startswith("error: ") and "\n→ " in found.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nope"], 5, "neither a stack nor a patchset"),
        (["demo", "--pin", "v1.1.0"], 5, "no stack to test on v1.1.0"),
        (["demo", "-k", "nothing_is_called_so"], 1, "no test was run"),
        (["demo", "--device", "cuda"], 5, "--device cuda"),
        (["demo", "--device", "tpu"], 2, "tpu"),
    ],
)
def test_what_cannot_be_asked_for(
    tested: SyntheticProject, arguments: list[str], code: int, words: str
) -> None:
    found = run(tested, *arguments, CUDA_VISIBLE_DEVICES="")
    assert (found.code, words in found.err + found.out) == (code, True), found


def test_a_stack_without_a_lock_is_refused(demo: SyntheticProject) -> None:
    write_test(demo, PASSING)
    demo.succeed("fetch", "v1.0.0")
    found = run(demo, "demo")
    assert found.code == 5 and "dsv4port lock demo" in found.err, found


def test_stacks_of_one_tree_are_tested_once(tested: SyntheticProject) -> None:
    tested.add_stack("twin", "v1.0.0", ["alpha", "beta"])
    tested.succeed("lock", "twin")
    found = run(tested)
    assert found.code == 0, found
    assert "twin: the same tree and patchsets as demo" in found.out
    assert found.out.count("patchset") == 2


def test_an_interpreter_that_is_none_is_refused(tested: SyntheticProject, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    found = tested.run("test", "demo", "--python", str(broken))
    assert found.code == 6 and "no Python that runs" in found.err, found
