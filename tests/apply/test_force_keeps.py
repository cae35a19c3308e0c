"""A forced publish takes the last name from nothing, and reaches nothing outside the checkout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from support.synthetic import SyntheticProject, git

from dsv4port.apply.steps import STOP_AT, Step

STAGED, DISK, MINE = b"staged\n", b"on disk\n", b"mine\n"


def commit(project: SyntheticProject, name: str, content: bytes) -> None:
    (project.checkout / name).write_bytes(content)
    git(project.checkout, "add", name)
    git(project.checkout, "commit", "--quiet", "--message", name)


def stage_then_edit(project: SyntheticProject) -> None:
    (project.checkout / "vllm/config.py").write_bytes(STAGED)
    git(project.checkout, "add", "vllm/config.py")
    (project.checkout / "vllm/config.py").write_bytes(DISK)


def stage_then_remove(project: SyntheticProject) -> None:
    (project.checkout / "vllm/mine.py").write_bytes(STAGED)
    git(project.checkout, "add", "vllm/mine.py")
    (project.checkout / "vllm/mine.py").unlink()


def commit_then_look_at_an_older_one(project: SyntheticProject) -> None:
    commit(project, "mine.txt", MINE)
    git(project.checkout, "checkout", "--quiet", "--detach", "HEAD~1")


def commit_on_two_lines(project: SyntheticProject) -> None:
    commit_then_look_at_an_older_one(project)
    commit(project, "other.txt", DISK)


def rebase_with_autostash(project: SyntheticProject) -> None:
    commit(project, "mine.txt", MINE)
    (project.checkout / "vllm/config.py").write_bytes(DISK)
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "rebase", "--quiet",
         "--interactive", "--autostash", "HEAD~3"],
        cwd=project.checkout, check=True, capture_output=True,
        env={**os.environ, "GIT_SEQUENCE_EDITOR": "sed -i 1s/pick/edit/"},
    )  # fmt: skip
    assert (project.checkout / ".git/rebase-merge/autostash").exists()


def merge_in_conflict(project: SyntheticProject) -> None:
    git(project.checkout, "checkout", "--quiet", "--detach", "HEAD~1")
    commit(project, "vllm/config.py", MINE)
    theirs = git(project.checkout, "rev-parse", "HEAD")
    git(project.checkout, "checkout", "--quiet", "dsv4port")
    (project.checkout / "README.md").write_bytes(STAGED)
    git(project.checkout, "add", "README.md")
    git(project.checkout, "commit", "--quiet", "--message", "readme")
    merged = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "merge", theirs],
        cwd=project.checkout, check=False, capture_output=True,
    )  # fmt: skip
    assert merged.returncode == 1


def reachable(project: SyntheticProject, content: bytes) -> bool:
    blob = git(project.checkout, "hash-object", "--stdin", stdin=content)
    listed = git(project.checkout, "rev-list", "--objects", "--all", "--no-object-names")
    return blob in listed.split()


@pytest.mark.parametrize("command", [["apply", "demo"], ["reset", "v1.0.0"]], ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("prepare", "contents"),
    [
        (stage_then_edit, (STAGED, DISK)),
        (stage_then_remove, (STAGED,)),
        (commit_then_look_at_an_older_one, (MINE,)),
        (commit_on_two_lines, (MINE, DISK)),
        (rebase_with_autostash, (MINE, DISK)),
        (merge_in_conflict, (MINE, STAGED)),
    ],
)
def test_everything_keeps_a_name(
    applied: SyntheticProject,
    prepare: Callable[[SyntheticProject], None],
    contents: tuple[bytes, ...],
    command: list[str],
) -> None:
    prepare(applied)
    refused = applied.run(*command)
    assert refused.code == 4, refused
    applied.succeed(*command, "--force")
    git(applied.checkout, "reflog", "expire", "--expire=now", "--all")
    git(applied.checkout, "gc", "--quiet", "--prune=now")
    assert [reachable(applied, content) for content in contents] == [True] * len(contents)
    assert applied.run("status", "--json").json["clean"]


@pytest.mark.parametrize("command", [["apply", "demo"], ["reset", "v1.0.0"]], ids=lambda c: c[0])
def test_nothing_behind_a_link_is_touched(applied: SyntheticProject, command: list[str]) -> None:
    outside = applied.base / "outside"
    (applied.checkout / "vllm").rename(outside)
    (applied.checkout / "vllm").symlink_to(outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    assert applied.run(*command).code == 4
    forced = applied.run(*command, "--force", "--json").json
    assert forced["ok"], forced["error"]
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert not (applied.checkout / "vllm").is_symlink()
    assert git(applied.checkout, "show", f"{forced['saved']}:vllm") == str(outside)
    assert applied.run("status", "--json").json["clean"]


def test_a_link_set_after_an_interruption_is_not_followed(applied: SyntheticProject) -> None:
    applied.run("reset", "v1.0.0", **{STOP_AT: Step.JOURNAL_WRITTEN.value})
    outside = applied.base / "outside"
    (applied.checkout / "vllm").rename(outside)
    (applied.checkout / "vllm").symlink_to(outside)
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    recovered = applied.run("status", "--json").json["recovered"]
    assert git(applied.checkout, "show", f"{recovered['saved']}:vllm") == str(outside)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before


@pytest.mark.parametrize("step", [Step.FILES_WRITTEN, Step.REFERENCES_MOVED])
def test_a_commit_made_after_an_interruption_is_kept(applied: SyntheticProject, step: Step) -> None:
    applied.run("reset", "v1.0.0", **{STOP_AT: step.value})
    commit(applied, "mine.txt", MINE)
    recovered = applied.run("status", "--json").json["recovered"]
    assert recovered["saved"], recovered
    assert git(applied.checkout, "show", f"{recovered['saved']}:mine.txt") == "mine"
    assert reachable(applied, MINE)


@pytest.mark.parametrize("with_commit", [False, True])
def test_a_repository_inside_is_left_alone(applied: SyntheticProject, with_commit: bool) -> None:
    inner = applied.checkout / "vllm/inner"
    inner.mkdir()
    (inner / "x.py").write_bytes(MINE)
    git(inner, "init", "--quiet")
    if with_commit:
        git(inner, "add", "x.py")
        git(inner, "commit", "--quiet", "--message", "x")
    (applied.checkout / "vllm/config.py").write_bytes(DISK)
    applied.succeed("apply", "demo", "--force")
    assert (inner / "x.py").read_bytes() == MINE
    assert (inner / ".git").is_dir()
    assert reachable(applied, DISK)


def test_what_no_commit_can_hold_is_refused(applied: SyntheticProject) -> None:
    pipe = applied.checkout / "vllm/config.py"
    pipe.unlink()
    os.mkfifo(pipe)
    (applied.checkout / "vllm/worker.py").write_bytes(MINE)
    refused = applied.run("apply", "demo", "--force", "--json")
    assert refused.code == 4, refused
    assert refused.json["error"]["details"] == ["vllm/config.py"]
    assert pipe.is_fifo()
    assert (applied.checkout / "vllm/worker.py").read_bytes() == MINE
    pipe.unlink()
    applied.succeed("apply", "demo", "--force")


def test_what_a_kill_left_half_written_goes_with_the_next_publish(
    applied: SyntheticProject,
) -> None:
    state = applied.checkout / ".git/dsv4port"
    (state / ".journal.json.0123abcd.tmp").write_bytes(b"{")
    (state / "snapshot-x").mkdir()
    (state / "snapshot-x" / "index").write_bytes(b"DIRC")
    applied.succeed("reset", "v1.0.0")
    assert {path.name for path in state.iterdir()} == {"lock", "receipt.json"}
