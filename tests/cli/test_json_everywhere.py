"""With --json every command prints one object and nothing else, whatever stands in its way."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import Result, SyntheticProject, git

from dsv4port.cli.main import COMMANDS

ARGUMENTS = {
    "fetch": ["fetch", "v1.0.0"],
    "apply": ["apply", "demo"],
    "verify": ["verify", "demo"],
    "status": ["status"],
    "reset": ["reset", "v1.0.0"],
    "lock": ["lock", "demo"],
    "refresh": ["refresh", "alpha"],
    "list": ["list"],
    "show": ["show", "demo"],
    "doctor": ["doctor"],
}
PLUMBING = [
    "apply", "--repo", "vendor/vllm", "--onto", "HEAD", "--series", "patchsets/alpha/v1.0.0",
]  # fmt: skip
READS_A_CHECKOUT = ("apply", "verify", "status", "reset", "refresh")
READS_MANIFESTS = ("fetch", "lock", "list", "show")
NEEDS_GIT = ("apply", "verify", "status", "reset", "lock", "refresh")


def check(result: Result, code: int) -> dict[str, Any]:
    """Hold an answer against what docs/cli.md says of every answer."""
    answer = result.json
    assert result.code == code, result
    assert result.err == "", "notices and errors are in the object"
    assert list(answer)[:5] == ["command", "format", "ok", "exit_code", "notices"]
    assert (answer["format"], answer["exit_code"]) == (1, result.code)
    assert answer["ok"] is (result.code == 0)
    if result.code in (0, 1):
        assert "error" not in answer
    else:
        error = answer["error"]
        assert list(error) == ["kind", "what", "fix", "details"]
        assert error["kind"] and error["what"] and "\n" not in error["what"]
        assert error["fix"] and "\n" not in error["fix"], error
        assert all(isinstance(line, str) for line in error["details"])
    assert "\x1b" not in result.out
    return answer


def test_every_command_is_here_or_has_tests_of_its_own() -> None:
    assert set(COMMANDS) - set(ARGUMENTS) <= {
        "port", "drift", "build", "test", "report", "ladder", "resolve"
    }  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_success(name: str, applied: SyntheticProject) -> None:
    assert check(applied.run(*ARGUMENTS[name], "--json"), 0)["command"] == name


def test_success_of_the_plumbing(applied: SyntheticProject) -> None:
    applied.succeed("reset", "v1.0.0")
    check(applied.run(*PLUMBING, "--json"), 0)


def test_the_answer_is_no(applied: SyntheticProject) -> None:
    (applied.checkout / "vllm" / "config.py").write_text("other\n")
    check(applied.run("verify", "demo", "--json"), 1)
    check(applied.run("verify", "demo", "--installed", "vendor/vllm", "--json"), 1)
    series = applied.root / "patchsets" / "alpha" / "v1.0.0" / "series"
    series.write_text("".join(series.read_text().splitlines(keepends=True)[:-1]))
    (series.parent / "0003-Kernel-Skip-the-factor-one.patch").unlink()
    check(applied.run("lock", "demo", "--check", "--json"), 1)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_usage(name: str, demo: SyntheticProject, tmp_path: Path) -> None:
    answer = check(demo.run(*ARGUMENTS[name], "--nonsense", "--json"), 2)
    assert (answer["command"], answer["error"]["kind"]) == (name, "Usage")
    if name != "doctor":
        (tmp_path / "empty").mkdir()
        answer = check(demo.run(*ARGUMENTS[name], "--json", cwd=tmp_path / "empty"), 2)
        assert answer["error"]["kind"] == "Usage"


def conflict(project: SyntheticProject) -> None:
    """The first patch of `alpha` is for another file than there is."""
    [first, *_] = sorted((project.root / "patchsets" / "alpha" / "v1.0.0").glob("*.patch"))
    first.write_bytes(first.read_bytes().replace(b"self.ready = True", b"self.ready = None"))


def test_conflict(locked: SyntheticProject) -> None:
    locked.succeed("reset", "v1.0.0")
    conflict(locked)
    for arguments in (["apply", "demo", "--unlocked"], ["lock", "demo"], PLUMBING):
        answer = check(locked.run(*arguments, "--json"), 3)
        assert answer["patches"][-1]["outcome"] == "conflict"


def dirty(project: SyntheticProject) -> None:
    (project.checkout / "notes.txt").write_text("mine\n")


def foreign(project: SyntheticProject) -> None:
    shutil.rmtree(project.checkout)
    project.checkout.mkdir()
    git(project.checkout, "init", "--quiet")


@pytest.mark.parametrize(
    ("change", "names", "kind"),
    [
        (dirty, ("reset", "refresh"), ("DirtyCheckout", "Refused")),
        (foreign, READS_A_CHECKOUT, ("NotOurCheckout",)),
    ],
)
def test_refused(
    change: Callable[[SyntheticProject], None],
    names: tuple[str, ...],
    kind: tuple[str, ...],
    applied: SyntheticProject,
) -> None:
    change(applied)
    for name in names:
        answer = check(applied.run(*ARGUMENTS[name], "--json"), 4)
        assert answer["error"]["kind"] in kind


@contextmanager
def held(file: Path) -> Iterator[None]:
    """The lock as another, living process holds it."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


def test_a_lock_that_is_held(applied: SyntheticProject) -> None:
    with held(applied.root / ".dsv4port" / "lock"):
        for name in ("apply", "reset", "refresh"):
            arguments = ["reset", "v1.1.0"] if name == "reset" else ARGUMENTS[name]
            answer = check(applied.run(*arguments, "--json"), 4)
            assert answer["error"]["kind"] == "LockHeld"


@pytest.mark.parametrize(
    "content",
    [b"", b"format: 1\npins: [\n", b"format: 9\n", b"\xff", b"format: 1\npins: {}\nx: 1\n"],
)
def test_bad_manifests(content: bytes, locked: SyntheticProject) -> None:
    (locked.root / "manifests" / "pins.yaml").write_bytes(content)
    for name in READS_MANIFESTS:
        answer = check(locked.run(*ARGUMENTS[name], "--json"), 5)
        assert answer["error"]["kind"] == "Manifest"
        assert answer["error"]["what"].startswith("manifests/pins.yaml:")


def test_names_that_are_not_there(locked: SyntheticProject) -> None:
    for arguments in (
        ["fetch", "v9"],
        ["apply", "x"],
        ["lock", "x"],
        ["show", "x"],
        ["reset", "x"],
    ):
        check(locked.run(*arguments, "--json"), 5)


@pytest.mark.parametrize("name", NEEDS_GIT)
def test_no_git(name: str, applied: SyntheticProject, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (applied.checkout / "vllm" / "config.py").touch()
    answer = check(applied.run(*ARGUMENTS[name], "--json", PATH=str(tmp_path / "bin")), 6)
    assert answer["error"]["kind"] == "Git"


def test_no_network(demo: SyntheticProject) -> None:
    index = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:1/x", "PIP_FIND_LINKS": ""}
    for name in ("fetch", "apply", "reset", "lock"):
        unlocked = ["--unlocked"] if name == "apply" else []
        answer = check(demo.run(*ARGUMENTS[name], *unlocked, "--json", **index), 6)
        assert answer["error"]["kind"] == "Network"
    # The doctor did its work: that something is missing is its answer, no error.
    looked = demo.run("doctor", "--network", "--json", **index)
    assert (looked.code, looked.err, "error" in looked.json) == (6, "", False)


@pytest.mark.parametrize("columns", ["1", "20", "400"])
def test_the_width_of_the_terminal_changes_no_answer(
    columns: str, applied: SyntheticProject
) -> None:
    """Output is for pipes and logs as well: lines are not wrapped, tables not squeezed."""
    for name in ("list", "show", "status", "doctor"):
        usual = applied.run(*ARGUMENTS[name], NO_COLOR="1")
        narrow = applied.run(*ARGUMENTS[name], COLUMNS=columns, TERM="xterm-256color")
        assert "\x1b" not in narrow.out + usual.out
        if name != "doctor":
            assert narrow == usual
        else:
            first = [line.split()[:2] for line in usual.out.splitlines()]
            assert [line.split()[:2] for line in narrow.out.splitlines()] == first
