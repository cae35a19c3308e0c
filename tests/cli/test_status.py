"""`status`: what the checkout holds."""

from __future__ import annotations

from support.synthetic import (
    Change,
    SyntheticProject,
    commit,
    demo_result,
    edit_alpha,
    git,
    tree_id,
)


def test_no_checkout(locked: SyntheticProject) -> None:
    result = locked.succeed("status")
    assert result.out.startswith("there is no checkout at vendor/vllm\n")
    answer = locked.run("status", "--json").json
    assert (answer["exists"], answer["receipt"], answer["lock"]) == (False, None, None)


def test_applied(applied: SyntheticProject) -> None:
    text = applied.succeed("status").out
    assert "pin       v1.0.0 (sdist), commit " in text
    assert "stack     demo, applied " in text
    assert "beta/0001-Bugfix-DSV4-Gr-ere-Bl-cke.patch (exact)" in text
    assert f"tree      {tree_id(demo_result())}, as the lock says" in text
    assert "files     no changes" in text
    answer = applied.run("status", "--json").json
    assert answer["clean"] is True and answer["at_published"] is True
    assert answer["lock"] == "same"
    assert answer["head"] == answer["receipt"]["commit"]
    assert answer["receipt"]["tree"] == tree_id(demo_result())
    assert len(answer["receipt"]["patches"]) == 4
    assert (answer["changes"], answer["recovery"], answer["operation"]) == ([], [], None)


def test_changes(applied: SyntheticProject) -> None:
    (applied.checkout / "vllm" / "worker.py").unlink()
    (applied.checkout / "README.md").write_text("x")
    (applied.checkout / "new.py").write_text("x")
    answer = applied.run("status", "--json").json
    assert {row["path"]: row["state"] for row in answer["changes"]} == {
        "README.md": "modified", "new.py": "untracked", "vllm/worker.py": "deleted",
    }  # fmt: skip
    assert answer["clean"] is False
    text = applied.run("status")
    assert text.code == 0
    assert "files     3 changes" in text.out
    assert "  untracked  new.py" in text.out


def test_many_changes_are_cut(applied: SyntheticProject) -> None:
    for number in range(45):
        (applied.checkout / f"new{number}.py").write_text("x")
    assert "  … and 15 more" in applied.succeed("status").out
    assert len(applied.run("status", "--json").json["changes"]) == 45


def test_commits_of_the_users(applied: SyntheticProject) -> None:
    mine = commit(applied.checkout, Change("Mine", {"mine.py": b"x\n"}))
    text = applied.succeed("status").out
    assert f"history   HEAD is at {mine[:12]}, not where the last publish left it" in text
    assert applied.run("status", "--json").json["at_published"] is False


def test_operation_under_way(applied: SyntheticProject) -> None:
    git(applied.checkout, "bisect", "start")
    (applied.checkout / ".git" / "MERGE_HEAD").write_text(
        git(applied.checkout, "rev-parse", "HEAD") + "\n"
    )
    assert applied.run("status", "--json").json["operation"] == "a merge"
    assert "git       a merge is under way" in applied.succeed("status").out


def test_lock_that_changed_since(applied: SyntheticProject) -> None:
    edit_alpha(applied)
    applied.succeed("lock", "demo")
    assert applied.run("status", "--json").json["lock"] == "different"
    assert ", which is not what the lock says" in applied.succeed("status").out
    (applied.root / "manifests" / "locks" / "demo.lock.yaml").unlink()
    assert applied.run("status", "--json").json["lock"] == "no-lock"
    assert "; the stack has no lock" in applied.succeed("status").out


def test_bare_pin(applied: SyntheticProject) -> None:
    applied.succeed("reset")
    assert "stack     none, since " in applied.succeed("status").out
    assert applied.run("status", "--json").json["lock"] == "no-stack"


def test_recovery_references_with_the_command(applied: SyntheticProject) -> None:
    (applied.checkout / "notes.txt").write_text("mine\n")
    saved = applied.run("reset", "--force", "--json").json["saved"]
    text = applied.succeed("status").out
    assert "saved     1 recovery reference; to get one back:" in text
    assert f"  git -C vendor/vllm checkout {saved} -- ." in text


def test_restore_command_works_from_another_folder(applied: SyntheticProject) -> None:
    (applied.checkout / "notes.txt").write_text("mine\n")
    saved = applied.run("reset", "--force", "--json").json["saved"]
    result = applied.run("status", cwd=applied.root / "patchsets")
    assert f"  git -C {applied.checkout} checkout {saved} -- ." in result.out
