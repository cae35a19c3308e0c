"""Environments for targets: a small project of vLLM's shape, built, checked and broken."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.build_project import NEEDS_CC, make_base
from support.synthetic import SOURCE_ROOT, SyntheticProject

from dsv4port.build.environment import BuiltEnvironment, build_environment
from dsv4port.build.environment_plan import EnvironmentPlan, plan_environment
from dsv4port.build.smoke import CheckKind, CheckOutcome
from dsv4port.build.targets import load_target
from dsv4port.errors import BuildFailedError, EnvironmentProblemError, ToolchainError
from dsv4port.manifest.project import Project

CASES = Path(__file__).parent / "cases"

HAS_WHEEL = find_spec("wheel") or find_spec("setuptools.command.bdist_wheel")

pytestmark = [
    NEEDS_CC,
    pytest.mark.skipif(not HAS_WHEEL, reason="neither wheel nor setuptools 70.1 is installed"),
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is missing"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "base")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    (root / "manifests").mkdir(parents=True)
    (root / "manifests" / "pins.yaml").write_text("format: 1\npins: {}\n")
    shutil.copytree(CASES / "small_vllm", root / "vendor" / "vllm")
    return Project(root)


def planned(project: Project, base: Path, **variables: str) -> EnvironmentPlan:
    environment = {**os.environ, "PIP_NO_INDEX": "1", **variables}
    return plan_environment(
        project, load_target("small", CASES / "targets"), project.default_checkout, environment,
        jobs=2, base=base,
    )  # fmt: skip


def outcomes(built: BuiltEnvironment) -> dict[tuple[str, str], CheckOutcome]:
    return {(one.kind.value, one.subject): one.outcome for one in built.smoke.checks}


def folder(project: Project) -> Path:
    return project.root / ".dsv4port" / "build" / "targets" / "small"


def generations(project: Project) -> list[str]:
    return sorted(path.name for path in (folder(project) / "generations").glob("*"))


def current(project: Project) -> str:
    return str((folder(project) / "current").readlink())


def test_built_checked_and_switched(project: Project, base: Path) -> None:
    plan = planned(project, base, CMAKE_ARGS="-DMINE=1", PYTHONPATH="/nowhere")
    assert plan.replaced == ("CMAKE_ARGS=-DMINE=1",)
    before = sorted(project.default_checkout.rglob("*"))
    built = build_environment(project, plan, accept=frozenset([CheckKind.PACKAGES]))
    assert sorted(project.default_checkout.rglob("*")) == before, "the checkout stays as it is"
    found = outcomes(built)
    assert found["package", "vllm"] is CheckOutcome.HOLDS
    assert found["extension", "vllm._C"] is CheckOutcome.HOLDS
    assert found["versions", "tools/generate_versions_json.py"] is CheckOutcome.HOLDS
    assert built.receipt is not None
    python = folder(project) / "current" / "venv" / "bin" / "python"
    code = "import vllm._C as c; print(c.answer(), c.__file__)"
    said = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.split()
    assert said[0] == "42"
    assert Path(said[1]).is_relative_to(plan.generation)
    receipt = json.loads(built.receipt.read_text())
    [extension] = receipt["extensions"]
    assert (extension["module"], len(extension["sha256"])) == ("vllm._C", 64)
    assert "vllm==1.2.3" in receipt["packages"]
    [step] = [one for one in receipt["steps"] if one["name"] == "build"]
    assert step["environment"][:2] == ["VLLM_TARGET_DEVICE=cpu", "MAX_JOBS=2"]
    log = built.log.read_text()
    assert "Target device: cpu" in log and "$ " in log


def test_the_one_of_before_stays_for_the_way_back(project: Project, base: Path) -> None:
    accept = frozenset([CheckKind.PACKAGES])
    for number in (1, 2, 3):
        build_environment(project, planned(project, base), accept=accept)
        assert current(project) == f"generations/{number}"
    assert generations(project) == ["2", "3"]


def test_a_check_that_fails_switches_nothing(project: Project, base: Path) -> None:
    accept = frozenset([CheckKind.PACKAGES])
    build_environment(project, planned(project, base), accept=accept)
    (project.default_checkout / "tools" / "out_of_sync").touch()
    init = project.default_checkout / "vllm" / "__init__.py"
    extension = project.default_checkout / "csrc" / "extension.c"
    good = extension.read_text()
    extension.write_text(good.replace("return PyModule_Create(&module);", "return 0;"))
    built = build_environment(project, planned(project, base), accept=accept)
    found = outcomes(built)
    assert found["extension", "vllm._C"] is CheckOutcome.FAILS
    assert found["versions", "tools/generate_versions_json.py"] is CheckOutcome.FAILS
    assert built.receipt is None
    assert (current(project), generations(project)) == ("generations/1", ["1", "2"])
    extension.write_text(good)
    init.write_text("import os\nos.abort()\n")
    crashed = build_environment(project, planned(project, base), accept=accept)
    assert outcomes(crashed)["package", "vllm"] is CheckOutcome.FAILS
    assert (current(project), generations(project)) == ("generations/1", ["1", "3"])


def test_no_extension_came_out(project: Project, base: Path) -> None:
    setup = project.default_checkout / "setup.py"
    setup.write_text(setup.read_text().replace('[CMakeExtension("vllm._C")]', "[]"))
    built = build_environment(project, planned(project, base))
    assert outcomes(built)["extension", "vllm"] is CheckOutcome.FAILS
    assert not (folder(project) / "current").exists()


def test_a_package_from_elsewhere_is_no_pass(project: Project, base: Path, tmp_path: Path) -> None:
    other = make_base(tmp_path / "other")
    [packages] = list(other.glob("lib/python*/site-packages"))
    (packages / "sitecustomize.py").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\n"
    )
    shutil.copytree(CASES / "small_vllm" / "vllm", tmp_path / "elsewhere" / "vllm")
    built = build_environment(project, planned(project, other))
    [row] = [one for one in built.smoke.checks if one.kind is CheckKind.PACKAGE]
    assert row.outcome is CheckOutcome.FAILS
    assert f"it is imported from {tmp_path / 'elsewhere'}" in row.detail


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("not C", BuildFailedError),
        ('#error "No space left on device"\n', EnvironmentProblemError),
        ('#error "Could not resolve host: github.com"\n', EnvironmentProblemError),
    ],
)
def test_a_build_that_fails(
    source: str, error: type[Exception], project: Project, base: Path
) -> None:
    (project.default_checkout / "csrc" / "extension.c").write_text(source)
    with pytest.raises(error) as caught:
        build_environment(project, planned(project, base))
    assert "the step `build` failed" in str(caught.value)
    assert generations(project) == []
    assert not (folder(project) / "current").exists()
    assert (folder(project) / "build.log").stat().st_size > 0


def test_missing_tools_end_it_before_anything_is_made(project: Project, base: Path) -> None:
    [git] = [shutil.which("git")]
    assert git is not None
    tools = project.root / "tools"
    tools.mkdir()
    (tools / "git").symlink_to(git)
    with pytest.raises(ToolchainError, match="lacks cmake") as caught:
        build_environment(project, planned(project, base, PATH=str(tools)))
    assert caught.value.fix == "pip install cmake"
    assert not folder(project).exists()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_half_way(how: signal.Signals, project: Project, base: Path, tmp_path: Path) -> None:
    accept = frozenset([CheckKind.PACKAGES])
    build_environment(project, planned(project, base), accept=accept)
    mark = tmp_path / "half-way"
    paths = [str(SOURCE_ROOT), str(SOURCE_ROOT / "tests"), str(Path(__file__).parent)]
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = {paths}\n"
        "import test_environment as t\n"
        "from dsv4port.build.process import interruptible\n"
        f"p, b = t.Project(Path({str(project.root)!r})), Path({str(base)!r})\n"
        "with interruptible():\n"
        f"    t.build_environment(p, t.planned(p, b, SMALL_WAIT_FILE={str(mark)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    builder = wait_for(mark)
    assert generations(project) == ["1", "2"]
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert current(project) == "generations/1"
    if how is signal.SIGTERM:
        assert gone(builder), "the build's own processes outlive it"
        assert generations(project) == ["1"]
    build_environment(project, planned(project, base), accept=accept)
    assert len(generations(project)) == 2, "what the killed build left is gone"
    assert not list(folder(project).glob("generations/*/source/vllm/half*"))
    with contextlib.suppress(ProcessLookupError):
        # What a killed build had started deep down; it would only sleep.
        os.kill(builder, signal.SIGKILL)


def wait_for(file: Path) -> int:
    return int(until(lambda: file.read_text() if file.exists() else ""))


def gone(process: int) -> bool:
    def ended() -> bool:
        status = Path(f"/proc/{process}/stat")
        return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z"

    return bool(until(ended))


def until(ask: Callable[[], object]) -> str:
    for _ in range(1200):
        answer = ask()
        if answer:
            return str(answer)
        time.sleep(0.05)
    raise AssertionError("it did not come")


# ---- by the command line


@pytest.fixture
def applied_small(applied: SyntheticProject) -> SyntheticProject:
    """The applied demo project, whose tree is a Python package with a setup.py."""
    (applied.checkout / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='vllm', version='1.0', packages=['vllm'])\n"
    )
    return applied


def test_the_empty_target_from_a_checkout(applied_small: SyntheticProject, base: Path) -> None:
    arguments = ["build", "--target", "empty", "--base", str(base), "--accept", "packages"]
    plan = applied_small.run(*arguments, "--plan", "--json")
    assert (plan.code, plan.json["planned"], plan.json["environment"]) == (0, True, None)
    assert [step["name"] for step in plan.json["steps"]] == ["environment", "build"]
    assert not (applied_small.root / ".dsv4port" / "build").exists()
    answer = applied_small.run(*arguments, "--json").json
    assert answer["exit_code"] == 0, answer
    receipt = json.loads(Path(answer["receipt"]).read_text())
    assert sorted(receipt["source"]["changed"]) == ["setup.py"]
    assert len(receipt["source"]["commit"]) == 40
    skipped = [row for row in answer["checks"] if row["outcome"] == "not-checked"]
    assert {row["check"] for row in skipped} == {"extension", "schema", "versions"}


def test_a_full_disk_while_copying(applied_small: SyntheticProject, base: Path) -> None:
    """A limit on the size of files stands for it."""
    (applied_small.checkout / "vllm" / "large.bin").write_bytes(b"x" * 300_000)
    arguments = ["build", "--target", "empty", "--base", str(base), "--accept", "packages"]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 200 && exec "$@"', "bash", sys.executable, "-m", "dsv4port",
         *arguments],
        cwd=applied_small.root, env=applied_small.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 6, done
    assert "large.bin: file too large" in done.stderr and "\n→ " in done.stderr
    place = applied_small.root / ".dsv4port" / "build" / "targets" / "empty"
    assert not (place / "current").exists()
    assert list((place / "generations").iterdir()) == []


def test_plans_of_every_target_say_what_is_missing(applied_small: SyntheticProject) -> None:
    for name in ("cpu", "cuda-sm90", "cuda-sm100", "cuda-sm120", "musa", "empty"):
        lists = applied_small.checkout / "requirements"
        for file in ("build/cuda.txt", "build/cpu.txt", "cuda.txt", "cpu.txt", "common.txt"):
            (lists / file).parent.mkdir(parents=True, exist_ok=True)
            (lists / file).touch()
        result = applied_small.run("build", "--target", name, "--plan")
        assert result.code == 0, result
        assert f"VLLM_TARGET_DEVICE={load_target(name).device}" in result.out
    assert "missing" in applied_small.run("build", "--target", "musa", "--plan").out
    refused = applied_small.run("build", "--target", "musa")
    assert (refused.code, "MUSA_HOME is missing" in refused.err) == (6, True)


def test_a_tree_without_what_the_target_installs(applied: SyntheticProject) -> None:
    result = applied.run("build", "--target", "cpu")
    assert result.code == 5
    assert "has no requirements/build/cpu.txt and no requirements/cpu.txt" in result.err


def test_nothing_to_build(applied: SyntheticProject, base: Path) -> None:
    result = applied.run("build", "--target", "empty", "--base", str(base))
    assert (result.code, "it has no setup.py" in result.err) == (5, True)
    result = applied.run("build", "--target", "empty", "--base", str(applied.root))
    assert (result.code, "is no virtual environment" in result.err) == (5, True)
