"""`apply STACK`: what it says, its exit codes, and what happens to the user's work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import (
    WORKER,
    Change,
    SyntheticProject,
    commit,
    demo_result,
    edit_alpha,
    git,
    make_repository,
    tree_id,
)


def read(checkout: Path, name: str) -> bytes:
    return (checkout / name).read_bytes()


def test_from_nothing_to_a_proven_checkout(demo: SyntheticProject) -> None:
    demo.succeed("lock", "demo")
    result = demo.succeed("apply", "demo")
    tree = tree_id(demo_result())
    assert result.err == ""
    assert result.out.split("\n")[:2] == [
        "vendor/vllm holds demo: 4 patches on v1.0.0 (sdist), 4 exact",
        f"tree {tree}, as the lock says",
    ]
    assert git(demo.checkout, "rev-parse", "HEAD^{tree}") == tree
    assert git(demo.checkout, "status", "--porcelain") == ""
    assert git(demo.checkout, "log", "-1", "--format=%an|%ae|%ad|%s", "--date=raw") == (
        "Zoë Müller|zoe@example.org|1767312000 -0730|[Bugfix][DSV4] Größere Blöcke"
    )


def test_json(locked: SyntheticProject) -> None:
    answer = locked.run("apply", "demo", "--json").json
    assert answer["ok"] is True
    assert answer["outcome"] == "published"
    assert (answer["stack"], answer["pin"], answer["source"]) == ("demo", "v1.0.0", "sdist")
    assert answer["checkout"] == str(locked.checkout)
    assert answer["tree"] == tree_id(demo_result())
    assert answer["commit"] == git(locked.checkout, "rev-parse", "HEAD")
    assert answer["locked"] is True
    assert (answer["saved"], answer["restore"], answer["recovered"]) == (None, None, None)
    assert len(answer["patches"]) == 4
    first = answer["patches"][0]
    assert first["file"].startswith("alpha/0001-") and first["outcome"] == "exact"
    [hunk] = first["hunks"]
    assert (hunk["file"], hunk["outcome"]) == ("vllm/worker.py", "exact")
    assert hunk["old_line"] == hunk["new_line"] == 5
    assert answer["patches"][-1]["tree"] == answer["tree"]


def test_again_is_a_no_op(applied: SyntheticProject) -> None:
    before = (applied.checkout / ".git" / "index").stat().st_mtime_ns
    result = applied.succeed("apply", "demo")
    assert "vendor/vllm holds demo already" in result.out
    answer = applied.run("apply", "demo", "--json").json
    assert answer["outcome"] == "unchanged"
    assert [patch["hunks"] for patch in answer["patches"]] == [None] * 4
    assert (applied.checkout / ".git" / "index").stat().st_mtime_ns == before


def test_unknown_stack(demo: SyntheticProject) -> None:
    result = demo.run("apply", "demos")
    assert result.code == 5
    assert result.err.startswith('error: there is no stack "demos", did you mean `demo`?\n→ ')
    assert not demo.checkout.exists()


@pytest.mark.parametrize("name", ["../demo", "Demo", "a b", "", "x" * 200])
def test_names_that_are_none(demo: SyntheticProject, name: str) -> None:
    assert demo.run("apply", name).code == 5


def test_no_stack_lists_the_stacks(demo: SyntheticProject) -> None:
    result = demo.run("apply")
    assert result.code == 2
    assert result.err == "error: no STACK was given\n→ name one of demo\n"


def test_without_a_lock(demo: SyntheticProject) -> None:
    result = demo.run("apply", "demo")
    assert result.code == 5
    assert "has no lock" in result.err
    assert "→ run `dsv4port lock demo`" in result.err
    unlocked = demo.succeed("apply", "demo", "--unlocked")
    assert "not compared with a lock" in unlocked.out
    assert demo.run("apply", "demo", "--unlocked", "--json").json["locked"] is False


def test_stale_lock(locked: SyntheticProject) -> None:
    edit_alpha(locked)
    result = locked.run("apply", "demo")
    assert result.code == 5
    assert "alpha/0002-Tools-Add-a-check.patch" in result.err
    assert "dsv4port lock demo" in result.err
    assert locked.run("apply", "demo", "--json").json["error"]["kind"] == "StaleLock"
    assert not locked.checkout.exists()


def test_conflict_names_the_place_and_changes_nothing(applied: SyntheticProject) -> None:
    head = git(applied.checkout, "rev-parse", "HEAD")
    other = {**applied.trees["v1.0.0"], "vllm/config.py": b"MAX_BATCH = 1\n"}
    change = Change("Raise it", {"vllm/config.py": b"MAX_BATCH = 2\n"})
    [file] = applied.add_patchset("gamma", "v1.0.0", [change], base=other)
    applied.add_stack("worse", "v1.0.0", ["alpha", "gamma"])
    result = applied.run("apply", "worse", "--unlocked")
    assert result.code == 3
    assert f"error: gamma/{file} does not apply (conflict); nothing was changed" in result.err
    assert "\n  vllm/config.py:1: " in result.err
    answer = applied.run("apply", "worse", "--unlocked", "--json").json
    assert (answer["ok"], answer["exit_code"], answer["outcome"]) == (False, 3, "conflict")
    assert answer["error"]["kind"] == "SeriesConflict"
    assert [patch["outcome"] for patch in answer["patches"]] == ["exact"] * 3 + ["conflict"]
    [hunk] = answer["patches"][-1]["hunks"]
    assert hunk["new_line"] is None and hunk["reason"]
    assert git(applied.checkout, "rev-parse", "HEAD") == head
    assert "no changes" in applied.succeed("status").out


def test_moved_hunks_are_told(locked: SyntheticProject) -> None:
    locked.add_patchset(
        "moved", "v1.0.0", [Change("Note it", {"vllm/worker.py": WORKER.replace(
            b"    return Worker()\n", b"    return Worker()  # plain\n")})],
        base={**locked.trees["v1.0.0"]},
    )  # fmt: skip
    manifest = locked.root / "patchsets" / "moved" / "patchset.yaml"
    manifest.write_text(manifest.read_text().replace('"v1.0.0": "v1.0.0"', '"v1.1.0": "v1.0.0"'))
    locked.add_stack("later", "v1.1.0", ["moved"])
    # The base blob must be known for the proof: it is, where the checkout stood on that pin.
    locked.succeed("reset", "v1.0.0")
    result = locked.run("apply", "later", "--unlocked")
    assert result.code == 0, result
    assert "1 offset" in result.out
    assert "vllm/worker.py: line 26 is line 30 now" in result.out


def test_dirty_checkout_is_refused_with_the_files(applied: SyntheticProject) -> None:
    (applied.checkout / "vllm" / "config.py").write_text("mine\n")
    (applied.checkout / "notes.txt").write_text("mine too\n")
    result = applied.run("apply", "demo")
    assert result.code == 4
    assert "\n  notes.txt\n" in result.err
    assert "\n  vllm/config.py\n" in result.err
    assert "--force" in result.err
    answer = applied.run("apply", "demo", "--json").json
    assert answer["error"]["kind"] == "DirtyCheckout"
    assert answer["error"]["details"] == ["notes.txt", "vllm/config.py"]
    assert read(applied.checkout, "vllm/config.py") == b"mine\n"


def test_touched_files_are_no_changes(applied: SyntheticProject) -> None:
    for name in ("vllm/worker.py", "README.md"):
        os.utime(applied.checkout / name, (1, 1))
    applied.succeed("reset", "v1.0.0")
    assert "no changes" in applied.succeed("status").out


def test_force_saves_everything_and_prints_how_to_get_it_back(applied: SyntheticProject) -> None:
    checkout = applied.checkout
    (checkout / "vllm" / "config.py").write_text("mine\n")
    (checkout / "notes.txt").write_text("mine too\n")
    result = applied.run("apply", "demo", "--force")
    assert result.code == 0
    [notice] = result.err.splitlines()
    assert notice.startswith("note: what the checkout held is saved as refs/dsv4port/recovery/")
    assert not (checkout / "notes.txt").exists()
    assert "no changes" in applied.succeed("status").out
    restore = notice.partition("to get it back: ")[2]
    assert restore.startswith("git -C vendor/vllm checkout refs/dsv4port/recovery/")
    subprocess.run(shlex.split(restore), cwd=applied.root, check=True, capture_output=True)
    assert read(checkout, "vllm/config.py") == b"mine\n"
    assert read(checkout, "notes.txt") == b"mine too\n"


def test_force_json_has_the_command(applied: SyntheticProject) -> None:
    (applied.checkout / "notes.txt").write_text("mine\n")
    answer = applied.run("apply", "demo", "--force", "--json").json
    assert answer["outcome"] == "published"
    assert answer["saved"].startswith("refs/dsv4port/recovery/")
    assert answer["restore"] == f"git -C vendor/vllm checkout {answer['saved']} -- ."
    assert len(answer["notices"]) == 1
    status = applied.run("status", "--json").json
    assert [row["ref"] for row in status["recovery"]] == [answer["saved"]]
    assert status["recovery"][0]["restore"] == answer["restore"]


def test_force_on_a_clean_checkout_saves_nothing(applied: SyntheticProject) -> None:
    answer = applied.run("apply", "demo", "--force", "--json").json
    assert (answer["saved"], answer["notices"]) == (None, [])


def test_commits_of_the_users_are_refused_and_saved(applied: SyntheticProject) -> None:
    mine = commit(applied.checkout, Change("Mine", {"vllm/mine.py": b"x = 1\n"}))
    assert applied.run("apply", "demo").code == 4
    answer = applied.run("apply", "demo", "--force", "--json").json
    assert git(applied.checkout, "merge-base", mine, answer["saved"]) == mine


def test_a_folder_that_is_not_ours(locked: SyntheticProject, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "file").write_text("keep me")
    inside = tmp_path / "repository"
    make_repository(inside, {"a": b"a"})
    (inside / "below").mkdir()
    (inside / "below" / "file").write_text("keep me")
    for folder, word in (
        (foreign, "no git checkout of its own"),
        (inside, "that dsv4port did not make"),
        (inside / "below", "it lies inside the repository"),
    ):
        for command in (["apply", "demo", "--force"], ["reset", "v1.0.0", "--force"], ["status"]):
            result = locked.run(*command, "--checkout", str(folder))
            assert result.code == 4, (command, result)
            assert word in result.err
            assert "→ " in result.err
    assert (foreign / "file").read_text() == "keep me"
    assert git(inside, "status", "--porcelain") == "?? below/"


def test_a_second_writer_is_refused(applied: SyntheticProject) -> None:
    holder = (
        "import sys\nfrom pathlib import Path\n"
        "from dsv4port.apply.exclusive import exclusive\n"
        "with exclusive(Path('.dsv4port/lock'), 'it'):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder], cwd=applied.root, env=applied.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        for command in (["apply", "demo"], ["reset"], ["refresh", "alpha"]):
            result = applied.run(*command)
            assert result.code == 4, result
            assert f"process {process.pid}" in result.err
            assert applied.run(*command, "--json").json["error"]["kind"] == "LockHeld"
        # Those who only read do not wait.
        assert applied.run("status").code == applied.run("verify").code == 0
    finally:
        process.communicate("", timeout=10)
    assert applied.run("apply", "demo").code == 0


@pytest.mark.parametrize(
    "step", ["objects-written", "journal-written", "files-written", "references-moved"]
)
def test_an_interrupted_publish_is_finished_and_told(locked: SyntheticProject, step: str) -> None:
    locked.succeed("reset", "v1.0.0")
    killed = locked.run("apply", "demo", DSV4PORT_TEST_STOP_AT=step)
    assert killed.code == -9
    result = locked.run("status", "--json")
    assert result.code == 0, result
    answer = result.json
    if step == "objects-written":
        assert answer["recovered"] is None
        assert answer["receipt"]["stack"] is None
    else:
        assert answer["recovered"]["stack"] == "demo"
        assert len(answer["notices"]) == 1 and "is finished now" in answer["notices"][0]
        assert answer["receipt"]["stack"] == "demo"
    assert answer["clean"] is True
    locked.succeed("apply", "demo")
    locked.succeed("verify", "--deep")


def test_recovery_is_told_by_the_command_that_did_it(locked: SyntheticProject) -> None:
    locked.succeed("reset", "v1.0.0")
    locked.run("apply", "demo", DSV4PORT_TEST_STOP_AT="journal-written")
    result = locked.run("apply", "demo")
    assert result.code == 0
    assert "note: a publish of demo had been interrupted and is finished now" in result.err
    locked.run("reset", DSV4PORT_TEST_STOP_AT="journal-written")
    answer = locked.run("reset", "--json").json
    assert answer["recovered"]["pin"] == "v1.0.0"
    assert answer["recovered"]["stack"] is None


@pytest.mark.parametrize(
    "command", [["reset", "v1.1.0"], ["apply", "demo"], ["refresh", "alpha"], ["verify", "none"]]
)
def test_recovery_is_told_also_when_the_command_then_fails(
    locked: SyntheticProject, command: list[str]
) -> None:
    locked.succeed("reset", "v1.0.0")
    locked.run("apply", "demo", DSV4PORT_TEST_STOP_AT="journal-written")
    (locked.checkout / "notes.txt").write_text("mine\n")
    answer = locked.run(*command, "--json").json
    assert answer["exit_code"] in (4, 5)
    assert answer["recovered"]["stack"] == "demo"
    assert len(answer["notices"]) == 1 and "is finished now" in answer["notices"][0]
    assert locked.run("status", "--json").json["recovered"] is None


def test_missing_companion_is_a_notice(locked: SyntheticProject) -> None:
    locked.add_patchset(
        "gamma", "v1.0.0", [Change("Add", {"new.py": b"x = 1\n"})],
        companions=[{"patchset": "beta", "reason": "blocks fit", "breaks": "speed suffers"}],
    )  # fmt: skip
    locked.add_stack("lonely", "v1.0.0", ["gamma"])
    result = locked.run("lock", "lonely")
    expected = "gamma should have beta beside it (blocks fit); without it: speed suffers"
    assert result.err == f"note: {expected}\n"
    answer = locked.run("apply", "lonely", "--json").json
    assert answer["notices"] == [expected]
    assert answer["companions"] == [
        {"patchset": "gamma", "companion": "beta", "reason": "blocks fit",
         "breaks": "speed suffers"}
    ]  # fmt: skip


def test_precondition_that_does_not_hold(locked: SyntheticProject) -> None:
    locked.add_patchset(
        "gamma", "v1.0.0", [Change("Add", {"new.py": b"x = 1\n"})],
        preconditions=[{"path": "vllm/config.py", "contains": "MAX_NOTHING", "why": "it is read"}],
    )  # fmt: skip
    locked.add_stack("wrong", "v1.0.0", ["gamma"])
    result = locked.run("apply", "wrong", "--unlocked")
    assert result.code == 5
    assert "vllm/config.py: the text is not there: it is read" in result.err


def test_a_broken_receipt_does_not_lock_the_user_out(applied: SyntheticProject) -> None:
    (applied.checkout / ".git" / "dsv4port" / "receipt.json").write_text("{")
    status = applied.run("status")
    assert status.code == 5
    assert "→ run `dsv4port apply STACK`" in status.err
    assert applied.run("apply", "demo").code == 0
    assert applied.run("status").code == 0
