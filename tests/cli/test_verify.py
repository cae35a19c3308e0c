"""`verify`: every mismatch is a row with a reason, and exit code 1."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.synthetic import (
    Change,
    SyntheticProject,
    commit,
    demo_result,
    edit_alpha,
    git,
    write_files,
)


def rows(project: SyntheticProject, *arguments: str) -> list[dict[str, object]]:
    result = project.run("verify", *arguments, "--json")
    assert result.code == 1, result
    answer = result.json
    assert answer["ok"] is False and "error" not in answer
    found = answer["findings"]
    assert isinstance(found, list) and found
    return found


def test_holds(applied: SyntheticProject) -> None:
    result = applied.succeed("verify")
    assert result.out.startswith("vendor/vllm holds demo on v1.0.0 exactly as locked\n")
    answer = applied.run("verify", "demo", "--deep", "--json").json
    assert answer["ok"] is True
    assert answer["target"] == "checkout"
    assert answer["path"] == str(applied.checkout)
    assert answer["findings"] == []
    assert answer["patches_checked"] == 4
    assert answer["files_checked"] == len(demo_result())
    assert answer["deep"] is True


def test_nothing_applied(locked: SyntheticProject) -> None:
    assert locked.run("verify").code == 4
    locked.succeed("reset", "v1.0.0")
    result = locked.run("verify")
    assert result.code == 5
    assert "→ name the stack" in result.err


def test_unknown_stack_and_missing_lock(applied: SyntheticProject) -> None:
    assert applied.run("verify", "demos").code == 5
    (applied.root / "manifests" / "locks" / "demo.lock.yaml").unlink()
    result = applied.run("verify")
    assert result.code == 5
    assert "→ run `dsv4port lock demo`" in result.err


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    ("damage", "kind", "subject"),
    [
        (lambda top: (top / "vllm/worker.py").write_text("x"), "content", "vllm/worker.py"),
        (lambda top: (top / "vllm/worker.py").unlink(), "missing", "vllm/worker.py"),
        (lambda top: (top / "tools/check.sh").chmod(0o644), "mode", "tools/check.sh"),
        (lambda top: (top / "README.md").write_text("x"), "content", "README.md"),
        (lambda top: (top / "new.py").write_text("x"), "extra", "new.py"),
        (lambda top: shutil.rmtree(top / "csrc"), "missing", "csrc/scale.cu"),
    ],
)
def test_damage_on_disk(applied: SyntheticProject, damage: Damage, kind: str, subject: str) -> None:
    damage(applied.checkout)
    [row] = rows(applied)
    assert (row["kind"], row["subject"]) == (kind, subject)
    assert row["reason"]
    human = applied.run("verify")
    assert human.code == 1
    assert human.out.startswith("vendor/vllm is not demo as locked: 1 mismatch\n")
    assert any(line.split()[:2] == [kind, subject] for line in human.out.splitlines())


def test_the_patch_that_a_file_belongs_to_is_named(applied: SyntheticProject) -> None:
    (applied.checkout / "csrc" / "scale.cu").write_text("x")
    [row] = rows(applied)
    assert row["patches"] == ["alpha/0003-Kernel-Skip-the-factor-one.patch"]
    assert "(of alpha/0003-Kernel-Skip-the-factor-one.patch)" in applied.run("verify").out


def test_deep_sees_what_git_was_told_to_overlook(applied: SyntheticProject) -> None:
    git(applied.checkout, "update-index", "--assume-unchanged", "README.md")
    (applied.checkout / "README.md").write_text("tampered")
    [row] = rows(applied, "--deep")
    assert (row["kind"], row["subject"]) == ("content", "README.md")


def test_changed_patch_file(applied: SyntheticProject) -> None:
    edit_alpha(applied)
    [row] = rows(applied)
    assert row["kind"] == "patch-file"
    assert row["subject"] == "alpha/0002-Tools-Add-a-check.patch"
    assert {row["kind"] for row in rows(applied, "--deep")} == {"patch-file", "rebuilt"}


def test_extra_commit(applied: SyntheticProject) -> None:
    mine = commit(applied.checkout, Change("Mine", {"mine.py": b"x\n"}))
    found = rows(applied)
    assert {"history"} <= {row["kind"] for row in found}
    assert mine in {row["subject"] for row in found}


def install(project: SyntheticProject, folder: Path) -> Path:
    """What a wheel of the patched tree would have installed."""
    write_files(
        folder, {name: data for name, data in demo_result().items() if name.startswith("vllm/")}
    )
    return folder


def test_installed_holds(applied: SyntheticProject, tmp_path: Path) -> None:
    site = install(applied, tmp_path / "site-packages")
    answer = applied.run("verify", "demo", "--installed", str(site), "--json").json
    assert answer["ok"] is True
    assert answer["target"] == "installed"
    assert answer["path"] == str(site)
    assert (answer["prefix"], answer["files_checked"], answer["not_installed"]) == ("vllm/", 3, 2)
    human = applied.succeed("verify", "--installed", str(site))
    assert "is demo on v1.0.0 as locked" in human.out
    assert "3 touched files compared by sha256; 2 touched files outside of vllm/" in human.out


def test_installed_mismatches(applied: SyntheticProject, tmp_path: Path) -> None:
    site = install(applied, tmp_path / "site-packages")
    (site / "vllm" / "extra.py").unlink()
    write_files(site, {"vllm/config.py": applied.trees["v1.0.0"]["vllm/config.py"]})
    found = {row["subject"]: row for row in rows(applied, "demo", "--installed", str(site))}
    assert found["vllm/extra.py"]["kind"] == "missing"
    assert found["vllm/config.py"]["reason"] == "is the pin's own file: not patched"
    assert found["vllm/config.py"]["patches"] == ["beta/0001-Bugfix-DSV4-Gr-ere-Bl-cke.patch"]
    assert applied.run("verify", "demo", "--installed", str(site)).code == 1


def test_installed_with_another_prefix(applied: SyntheticProject, tmp_path: Path) -> None:
    write_files(tmp_path / "tree", demo_result())
    result = applied.run(
        "verify", "demo", "--installed", str(tmp_path / "tree"), "--prefix", "", "--json"
    )
    assert result.code == 0, result
    assert (result.json["files_checked"], result.json["not_installed"]) == (5, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["demo", "--installed", "nowhere"], 5),
        (["demo", "--installed", "manifests"], 5),
        (["demo", "--prefix", "x/"], 2),
        (["demo", "--installed", ".", "--deep"], 2),
        (["nope", "--installed", "."], 5),
        (["demo", "--installed", ".", "--prefix", "patchsets/"], 2),
    ],
)
def test_installed_wrong_input(locked: SyntheticProject, arguments: list[str], code: int) -> None:
    result = locked.run("verify", *arguments)
    assert result.code == code, result
    assert result.err.startswith("error: ")


def test_installed_without_stack_and_checkout(locked: SyntheticProject, tmp_path: Path) -> None:
    site = install(locked, tmp_path / "site")
    result = locked.run("verify", "--installed", str(site))
    assert result.code == 2
    assert result.err.endswith("→ name one of demo\n")
