"""An apply that is killed leaves the old state or the new one, and the next command says which."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.synthetic import (
    Files,
    SyntheticProject,
    after,
    demo_result,
    git,
    tree_id,
    write_files,
)

from dsv4port.apply import publish as publish_module
from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.journal import Journal
from dsv4port.apply.publish import hold_checkout
from dsv4port.apply.receipt import readable_receipt
from dsv4port.apply.steps import STOP_AT, Step
from dsv4port.errors import LockHeldError
from dsv4port.git.checkout import Checkout
from dsv4port.git.index import NotPlainIndexError
from dsv4port.git.index_lock import take_index_lock

BEFORE_JOURNAL = {Step.OBJECTS_WRITTEN, Step.CHANGES_SAVED}


def tree_on_disk(project: SyntheticProject) -> str:
    """The tree that git makes of everything on disk, with an index of its own."""
    git_dir = project.checkout / ".git"
    index = str(project.base / "index")
    Path(index).unlink(missing_ok=True)
    git(project.checkout, "add", "-A", "-f", GIT_INDEX_FILE=index, GIT_DIR=str(git_dir),
        GIT_WORK_TREE=str(project.checkout))  # fmt: skip
    return git(project.checkout, "write-tree", GIT_INDEX_FILE=index)


@pytest.fixture(scope="session")
def old_tree(locked_template: SyntheticProject) -> str:
    return tree_id(locked_template.trees["v1.0.0"])


@pytest.fixture(scope="session")
def new_tree() -> str:
    return tree_id(demo_result())


@pytest.fixture(scope="session")
def reset_template(
    locked_template: SyntheticProject, tmp_path_factory: pytest.TempPathFactory
) -> SyntheticProject:
    project = locked_template.copy(tmp_path_factory.mktemp("reset"))
    project.succeed("reset", "v1.0.0")
    return project


@pytest.fixture
def at_pin(reset_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """The locked project with a checkout of the bare pin."""
    return reset_template.copy(tmp_path / "project")


def assert_applied(project: SyntheticProject, new_tree: str) -> None:
    assert tree_on_disk(project) == new_tree
    assert git(project.checkout, "rev-parse", "refs/heads/dsv4port^{tree}") == new_tree
    assert git(project.checkout, "status", "--porcelain") == ""
    verified = project.run("verify", "demo", "--deep", "--json")
    assert verified.code == 0, verified
    git(project.checkout, "fsck", "--strict", "--no-dangling")


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.CHANGES_SAVED])
def test_killed_at_a_step(
    step: Step, at_pin: SyntheticProject, old_tree: str, new_tree: str
) -> None:
    killed = at_pin.run("apply", "demo", **{STOP_AT: step.value})
    assert killed.code == -signal.SIGKILL
    status = at_pin.run("status", "--json").json
    if step in BEFORE_JOURNAL:
        assert tree_on_disk(at_pin) == old_tree
        assert not status["recovered"]
    else:
        assert status["recovered"]
        assert tree_on_disk(at_pin) == new_tree
    done = at_pin.run("apply", "demo", "--json")
    assert done.code == 0, done
    assert_applied(at_pin, new_tree)


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("next_command", ["status", "apply"])
def test_killed_while_forcing_loses_nothing(
    step: Step, next_command: str, at_pin: SyntheticProject, new_tree: str
) -> None:
    mine: Files = {"vllm/worker.py": b"mine\n", "notes.txt": b"untracked\n"}
    write_files(at_pin.checkout, mine)
    on_disk = tree_on_disk(at_pin)
    killed = at_pin.run("apply", "demo", "--force", **{STOP_AT: step.value})
    assert killed.code == -signal.SIGKILL
    recovered = at_pin.run(*(["apply", "demo", "--force"] if next_command == "apply" else
                             ["status"]), "--json")  # fmt: skip
    assert recovered.code == 0, recovered
    saved = git(at_pin.checkout, "for-each-ref", "--format=%(tree)", "refs/dsv4port/recovery/")
    kept = {*saved.splitlines(), tree_on_disk(at_pin)}
    assert on_disk in kept
    assert at_pin.run("apply", "demo", "--force").code == 0
    assert_applied(at_pin, new_tree)


def test_an_edit_after_the_kill_is_saved_before_the_publish_is_finished(
    at_pin: SyntheticProject, new_tree: str
) -> None:
    assert at_pin.run("apply", "demo", **{STOP_AT: Step.JOURNAL_WRITTEN.value}).code != 0
    (at_pin.checkout / "vllm/worker.py").write_bytes(b"written after the kill\n")
    answer = at_pin.run("apply", "demo", "--json").json
    assert answer["ok"] and answer["recovered"]
    saved = git(at_pin.checkout, "for-each-ref", "--format=%(refname)", "refs/dsv4port/recovery/")
    assert git(at_pin.checkout, "show", f"{saved}:vllm/worker.py") == "written after the kill"
    assert_applied(at_pin, new_tree)


def test_killed_at_random_times(at_pin: SyntheticProject, old_tree: str, new_tree: str) -> None:
    """Twenty kills of the whole process group, the present publish included."""
    chance = random.Random(20)
    environment = {**at_pin.environment}
    for _ in range(20):
        started = subprocess.Popen(
            [sys.executable, "-m", "dsv4port", "apply", "demo"],
            cwd=at_pin.root, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(chance.uniform(0.12, 0.40))
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        status = at_pin.run("status", "--json")
        assert status.code == 0, status
        tree = tree_on_disk(at_pin)
        assert tree in (old_tree, new_tree)
        assert git(at_pin.checkout, "rev-parse", "HEAD^{tree}") == tree
        if tree == new_tree:
            assert at_pin.run("reset", "v1.0.0").code == 0
    assert at_pin.run("apply", "demo").code == 0
    assert_applied(at_pin, new_tree)
    leftovers = [*(at_pin.checkout / ".git" / "objects" / "pack").glob("tmp_*")]
    assert len(leftovers) <= 20


@pytest.mark.parametrize("step", [Step.JOURNAL_WRITTEN])
def test_a_first_apply_that_is_killed(step: Step, locked: SyntheticProject, new_tree: str) -> None:
    assert locked.run("apply", "demo", **{STOP_AT: step.value}).code == -signal.SIGKILL
    assert locked.run("apply", "demo").code == 0
    assert_applied(locked, new_tree)


def test_force_saves_everything_and_gives_it_back(applied: SyntheticProject, new_tree: str) -> None:
    mine = {
        "vllm/worker.py": b"mine\n",
        "README.md": b"also mine\r\n",
        "new folder/x.txt": b"untracked\n",
        "vllm/extra.py": None,
    }
    write_files(applied.checkout, mine)
    (applied.checkout / "tools/run.sh").chmod(0o644)
    git(applied.checkout, "add", "vllm/worker.py")
    refused = applied.run("apply", "demo", "--json")
    assert refused.code == 4
    for name in mine:
        assert any(name in line for line in refused.json["error"]["details"]), refused.out
    before = tree_on_disk(applied)
    forced = applied.run("apply", "demo", "--force", "--json").json
    assert forced["ok"] and forced["saved"], forced["error"]
    assert_applied(applied, new_tree)
    assert git(applied.checkout, "rev-parse", forced["saved"] + "^{tree}") == before
    assert forced["restore"]
    subprocess.run(forced["restore"], shell=True, check=True, cwd=applied.root,
                   env=applied.environment, capture_output=True)  # fmt: skip
    for name, content in mine.items():
        path = applied.checkout / name
        if content is None:
            continue
        assert path.read_bytes() == content


def test_a_checkout_behind_a_link_is_saved_as_well(at_pin: SyntheticProject, new_tree: str) -> None:
    real = at_pin.base / "elsewhere"
    at_pin.checkout.rename(real)
    at_pin.checkout.symlink_to(real)
    write_files(at_pin.checkout, {"vllm/extra.py": b"mine\n"})
    forced = at_pin.run("apply", "demo", "--force", "--json").json
    assert forced["ok"], forced["error"]
    assert git(at_pin.checkout, "show", f"{forced['saved']}:vllm/extra.py") == "mine"
    assert_applied(at_pin, new_tree)


def test_commits_of_the_user_are_kept(applied: SyntheticProject, new_tree: str) -> None:
    (applied.checkout / "vllm/worker.py").write_bytes(b"mine\n")
    git(applied.checkout, "commit", "-qam", "my work")
    mine = git(applied.checkout, "rev-parse", "HEAD")
    assert applied.run("apply", "demo").code == 4
    assert git(applied.checkout, "rev-parse", "HEAD") == mine
    forced = applied.run("apply", "demo", "--force", "--json").json
    git(applied.checkout, "merge-base", "--is-ancestor", mine, forced["saved"])
    assert_applied(applied, new_tree)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_an_edit_that_the_index_hides_is_seen(flag: str, at_pin: SyntheticProject) -> None:
    git(at_pin.checkout, "update-index", flag, "vllm/worker.py")
    (at_pin.checkout / "vllm/worker.py").write_bytes(b"mine\n")
    refused = at_pin.run("apply", "demo", "--json")
    assert refused.code == 4, refused
    assert "vllm/worker.py" in refused.json["error"]["details"]
    assert (at_pin.checkout / "vllm/worker.py").read_bytes() == b"mine\n"
    forced = at_pin.run("apply", "demo", "--force", "--json").json
    assert forced["ok"], forced["error"]
    assert git(at_pin.checkout, "show", f"{forced['saved']}:vllm/worker.py") == "mine"


def test_an_untracked_or_ignored_file_in_the_way_is_refused(at_pin: SyntheticProject) -> None:
    write_files(at_pin.checkout, {"vllm/extra.py": b"mine\n"})
    git(at_pin.checkout, "config", "core.excludesFile", str(at_pin.base / "excludes"))
    (at_pin.base / "excludes").write_text("extra.py\n")
    refused = at_pin.run("apply", "demo", "--json")
    assert refused.code == 4
    assert "vllm/extra.py" in refused.json["error"]["details"]
    assert (at_pin.checkout / "vllm/extra.py").read_bytes() == b"mine\n"


def test_files_that_the_tree_ignores_stay(at_pin: SyntheticProject) -> None:
    write_files(at_pin.checkout, {"build/out.o": b"built\n", "x.log": b"log\n"})
    assert at_pin.run("apply", "demo").code == 0
    assert at_pin.run("apply", "demo", "--force").code == 0
    assert (at_pin.checkout / "build/out.o").read_bytes() == b"built\n"
    assert (at_pin.checkout / "x.log").read_bytes() == b"log\n"


def test_an_unfinished_rebase_is_refused(applied: SyntheticProject, new_tree: str) -> None:
    checkout = applied.checkout
    with pytest.raises(AssertionError):
        git(checkout, "rebase", "-i", "HEAD~2", GIT_SEQUENCE_EDITOR="sed -i '1i break' && false")
    git(checkout, "rebase", "-i", "HEAD~2", GIT_SEQUENCE_EDITOR="sed -i 1ibreak")
    assert (checkout / ".git" / "rebase-merge").exists()
    refused = applied.run("apply", "demo", "--json")
    assert refused.code == 4
    assert any("rebase" in line for line in refused.json["error"]["details"])
    assert applied.run("apply", "demo", "--force").code == 0
    assert_applied(applied, new_tree)
    assert list((checkout / ".git" / "dsv4port" / "set-aside").glob("*/rebase-merge"))


def test_a_conflict_changes_nothing(at_pin: SyntheticProject, old_tree: str) -> None:
    folder = at_pin.root / "patchsets" / "beta" / "v1.0.0"
    patch = next(folder.glob("*.patch"))
    patch.write_bytes(patch.read_bytes().replace(b"-    block_size = 16", b"-    block_size = 17"))
    refused = at_pin.run("apply", "demo", "--unlocked", "--json")
    assert refused.code == 3, refused
    assert tree_on_disk(at_pin) == old_tree
    assert git(at_pin.checkout, "rev-parse", "HEAD^{tree}") == old_tree
    assert not at_pin.run("status", "--json").json["recovered"]


def test_a_lock_held_by_another_process(applied: SyntheticProject) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from dsv4port.apply.publish import hold_checkout\n"
        "with hold_checkout(Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(applied.checkout)],
        env=applied.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockHeldError, match=str(holder.pid)), hold_checkout(applied.checkout):
            pass
        refused = applied.run("apply", "demo", "--force", "--json")
        assert refused.code == 4
        assert refused.json["error"]["kind"] == "LockHeld"
    finally:
        holder.kill()
        holder.wait()
    assert applied.run("apply", "demo").code == 0, "the lock of a dead process holds nobody"


def test_another_git_at_work_is_not_disturbed(at_pin: SyntheticProject, old_tree: str) -> None:
    lock = at_pin.checkout / ".git" / "index.lock"
    lock.write_bytes(b"")
    refused = at_pin.run("apply", "demo")
    assert refused.code == 4
    assert f"another git is at work in the checkout: {lock} exists" in refused.err
    assert lock.exists()
    assert not (at_pin.checkout / ".git" / "dsv4port" / "journal.json").exists()
    lock.unlink()
    assert tree_on_disk(at_pin) == old_tree
    at_pin.succeed("apply", "demo")


def test_a_lock_that_a_kill_before_the_journal_left_is_removed(
    at_pin: SyntheticProject, new_tree: str
) -> None:
    os.close(take_index_lock(at_pin.checkout / ".git"))
    at_pin.succeed("apply", "demo")
    assert_applied(at_pin, new_tree)


def test_a_change_at_the_last_moment_is_saved(
    at_pin: SyntheticProject, new_tree: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git refuses to overwrite what somebody changed after the publish had looked."""
    at_pin.succeed("apply", "demo")
    commit = git(at_pin.checkout, "rev-parse", "HEAD")
    at_pin.succeed("reset", "v1.0.0")
    begin = publish_module._begin

    def late_edit(checkout: Checkout, journal: Journal) -> None:
        begin(checkout, journal)
        (at_pin.checkout / "vllm" / "config.py").write_text("mine\n")

    monkeypatch.setattr(publish_module, "_begin", late_edit)
    monkeypatch.setattr("dsv4port.git.switch.Switch.__init__", _not_plain)
    receipt = readable_receipt(at_pin.checkout / ".git" / "dsv4port")
    assert receipt is not None
    with hold_checkout(at_pin.checkout) as session:
        saved = publish_module.publish(
            session, replace(receipt, commit=commit, stack="demo"), force=False
        )
    assert saved is not None
    assert git(at_pin.checkout, "show", f"{saved}:vllm/config.py") == "mine"
    assert tree_on_disk(at_pin) == new_tree


def _not_plain(self: object, *arguments: object) -> None:
    raise NotPlainIndexError("a test wants git to do it")


def test_a_lock_can_be_taken_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "lock"
    with (
        exclusive(file, "the thing"),
        pytest.raises(LockHeldError, match="the thing"),
        exclusive(file, "the thing"),
    ):
        pass
    with exclusive(file, "the thing"):
        pass


@pytest.mark.parametrize("command", [("apply", "demo"), ("reset", "v1.0.0")])
@pytest.mark.parametrize("way", ["vendor", "dangling", "state"])
def test_what_stands_where_a_folder_belongs_is_named(
    way: str, command: tuple[str, ...], locked: SyntheticProject
) -> None:
    obstacle = locked.root / (".dsv4port" if way == "state" else "vendor")
    if obstacle.is_dir():
        shutil.rmtree(obstacle)
    if way == "dangling":
        obstacle.symlink_to("nowhere")
    else:
        obstacle.write_text("")
    result = locked.run(*command)
    assert result.code == 6, result
    assert f"→ move {obstacle} away: a folder belongs there\n" in result.err
    obstacle.unlink()
    locked.succeed(*command)


def test_an_empty_folder_is_no_checkout_yet(locked: SyntheticProject) -> None:
    locked.checkout.mkdir(parents=True)
    for arguments in (["status"], ["verify", "demo"], ["refresh", "alpha"]):
        refused = locked.run(*arguments)
        assert refused.code == 4, refused
        assert ": the folder is empty\n→ make one with `dsv4port apply STACK`" in refused.err
    locked.succeed("reset", "v1.0.0")


def test_somebody_elses_folder_is_left_alone(locked: SyntheticProject) -> None:
    files = {"a.txt": b"precious\n"}
    write_files(locked.checkout, files)
    for arguments in (["apply", "demo", "--force"], ["reset", "v1.0.0", "--force"]):
        refused = locked.run(*arguments, "--json")
        assert refused.code == 4, refused
        assert refused.json["error"]["kind"] == "NotOurCheckout"
    assert {path.name for path in locked.checkout.iterdir()} == {"a.txt"}
    assert after(files) == {"a.txt": (locked.checkout / "a.txt").read_bytes()}
