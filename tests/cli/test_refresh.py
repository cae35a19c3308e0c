"""`refresh`: from commits back to patch files."""

from __future__ import annotations

from pathlib import Path

from support.synthetic import Change, SyntheticProject, commit, git


def files(project: SyntheticProject, patchset: str = "alpha") -> dict[str, bytes]:
    folder = project.root / "patchsets" / patchset / "v1.0.0"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_untouched_is_a_no_op_byte_for_byte(applied: SyntheticProject) -> None:
    before = files(applied), files(applied, "beta")
    result = applied.succeed("refresh", "alpha")
    assert result.out.startswith("alpha on v1.0.0, 3 patches: nothing to write\n")
    answer = applied.run("refresh", "beta", "--json").json
    assert (answer["written"], answer["lock_is_stale"], answer["dry_run"]) == (False, False, False)
    assert [row["outcome"] for row in answer["patches"]] == ["kept"]
    assert (files(applied), files(applied, "beta")) == before


def amend_last(project: SyntheticProject) -> None:
    """Change the last commit, which is beta's."""
    (project.checkout / "vllm" / "config.py").write_bytes(
        (project.checkout / "vllm" / "config.py").read_bytes().replace(b"= 32", b"= 48")
    )
    git(project.checkout, "commit", "--quiet", "--all", "--amend", "--no-edit")


def test_amended_commit_is_written_and_locks_anew(applied: SyntheticProject) -> None:
    amend_last(applied)
    before = files(applied, "beta")
    dry = applied.run("refresh", "beta", "--dry-run", "--json").json
    assert (dry["written"], dry["lock_is_stale"], dry["dry_run"]) == (False, True, True)
    assert "nothing written (dry run)" in applied.succeed("refresh", "beta", "--dry-run").out
    assert files(applied, "beta") == before
    result = applied.succeed("refresh", "beta")
    assert "  rewritten  0001-Bugfix-DSV4-Gr-ere-Bl-cke.patch\n" in result.out
    assert "next: `dsv4port lock STACK`" in result.out
    assert applied.run("apply", "demo").code in (4, 5)
    applied.succeed("lock", "demo")
    applied.succeed("apply", "demo", "--force")
    assert b"= 48" in (applied.checkout / "vllm" / "config.py").read_bytes()
    applied.succeed("verify", "--deep")


def test_new_commit_becomes_a_patch_of_the_last_patchset(applied: SyntheticProject) -> None:
    commit(applied.checkout, Change("[Core] Add more", {"vllm/more.py": b"x = 1\n"}))
    answer = applied.run("refresh", "beta", "--json").json
    assert [(row["file"], row["outcome"]) for row in answer["patches"]][-1] == (
        "0002-add-more.patch", "added",
    )  # fmt: skip
    assert "0002-add-more.patch" in files(applied, "beta")


def test_a_commit_that_is_gone_needs_drop(applied: SyntheticProject) -> None:
    git(applied.checkout, "rebase", "--quiet", "--onto", "HEAD~2", "HEAD~1")
    name = "0003-Kernel-Skip-the-factor-one.patch"
    refused = applied.run("refresh", "alpha")
    assert refused.code == 4
    assert name in refused.err and "--drop" in refused.err
    assert name in files(applied)
    result = applied.succeed("refresh", "alpha", "--drop", name)
    assert f"  dropped  {name}\n" in result.out
    assert name not in files(applied)
    series = applied.root / "patchsets" / "alpha" / "v1.0.0" / "series"
    assert name not in series.read_text()


def test_uncommitted_changes_are_refused(applied: SyntheticProject) -> None:
    (applied.checkout / "notes.txt").write_text("x")
    result = applied.run("refresh", "alpha")
    assert result.code == 4
    assert "\n  notes.txt\n" in result.err


def test_patchset_that_is_not_applied(applied: SyntheticProject) -> None:
    assert applied.run("refresh", "nope").code == 2
    applied.succeed("reset")
    assert applied.run("refresh", "alpha").code == 2


def test_no_checkout(locked: SyntheticProject, tmp_path: Path) -> None:
    assert locked.run("refresh", "alpha").code == 4
    assert locked.run("refresh").code == 2
