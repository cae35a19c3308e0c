"""Whatever was tampered with, verify does not say that it holds."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import SyntheticProject, git

Tamper = Callable[[SyntheticProject], object]


def kinds(project: SyntheticProject, *options: str) -> set[tuple[str, str]]:
    found = project.run("verify", "demo", "--json", *options)
    assert found.code == 1, found
    return {(row["kind"], row["subject"]) for row in found.json["findings"]}


def edit_lock(project: SyntheticProject, pattern: str, replacement: str) -> None:
    file = project.root / "manifests" / "locks" / "demo.lock.yaml"
    text = file.read_text()
    changed = re.sub(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert changed != text
    file.write_text(changed)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def hide_by_exclude(project: SyntheticProject) -> None:
    write(project.checkout / "vllm/evil.py", "x\n")
    write(project.checkout / ".git/info/exclude", "# rules\nevil.py\n")


def hide_by_itself(project: SyntheticProject) -> None:
    write(project.checkout / "vllm/evil/__init__.py", "x\n")
    write(project.checkout / "vllm/evil/.gitignore", "*\n")


def hide_beside_the_tree(project: SyntheticProject) -> None:
    write(project.checkout / "vllm/evil.py", "x\n")
    write(project.checkout / "vllm/.gitignore", "evil.py\n.gitignore\n")


def flagged(flag: str, content: bytes | None, *before: str) -> Tamper:
    def tamper(project: SyntheticProject) -> None:
        if before:
            git(project.checkout, "update-index", *before)
        git(project.checkout, "update-index", flag, "vllm/data.bin")
        file = project.checkout / "vllm/data.bin"
        file.unlink() if content is None else file.write_bytes(content)

    return tamper


def flag_and_link(project: SyntheticProject) -> None:
    for path in ("vllm/data.bin", "vllm/config.py", "vllm/worker.py", "vllm/extra.py",
                 "vllm/__init__.py", "vllm/ignored.log"):  # fmt: skip
        git(project.checkout, "update-index", "--skip-worktree", path)
    (project.checkout / "vllm").rename(project.base / "outside")
    (project.checkout / "vllm").symlink_to(project.base / "outside")


def same_size_and_time(project: SyntheticProject) -> None:
    for path in project.checkout.glob("vllm/*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    git(project.checkout, "update-index", "-q", "--refresh")
    file = project.checkout / "vllm/data.bin"
    time.sleep(1.1)  # git looks at whole seconds of the time of change
    data = bytearray(file.read_bytes())
    data[7] ^= 1
    file.write_bytes(data)
    os.utime(file, (1_700_000_000, 1_700_000_000))


def other_file(name: str) -> Tamper:
    return lambda project: write(project.checkout / name, "x\n")


def repository_inside(project: SyntheticProject) -> None:
    write(project.checkout / "vllm/evil/__init__.py", "x\n")
    git(project.checkout / "vllm/evil", "init", "--quiet")


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("tamper", "kind", "subject"),
    [
        (hide_by_exclude, "extra", "vllm/evil.py"),
        (hide_by_itself, "extra", "vllm/evil/.gitignore"),
        (hide_beside_the_tree, "extra", "vllm/.gitignore"),
        (flagged("--assume-unchanged", bytes(256)), "content", "vllm/data.bin"),
        (flagged("--skip-worktree", bytes(256)), "content", "vllm/data.bin"),
        (flagged("--skip-worktree", None), "missing", "vllm/data.bin"),
        (flagged("--assume-unchanged", bytes(256), "--split-index"), "content", "vllm/data.bin"),
        (flagged("--assume-unchanged", b"", "--index-version", "4"), "content", "vllm/data.bin"),
        (flag_and_link, "missing", "vllm/data.bin"),
        (same_size_and_time, "content", "vllm/data.bin"),
        (other_file("vllm/Worker.py"), "extra", "vllm/Worker.py"),
        (repository_inside, "extra", "vllm/evil/"),
        (lambda p: edit_lock(p, r"^- \{path: vllm/extra.py.*\n", ""), "lock", "vllm/extra.py"),
        (lambda p: edit_lock(p, r"(config.py, before: 100644 )\w+", rf"\g<1>{'ab' * 20}"),
         "lock", "vllm/config.py"),
    ],
)  # fmt: skip
def test_it_is_found(
    applied: SyntheticProject, tamper: Tamper, kind: str, subject: str, deep: bool
) -> None:
    tamper(applied)
    assert (kind, subject) in kinds(applied, *(["--deep"] if deep else []))


@pytest.mark.parametrize(
    ("pattern", "value", "kind", "subject"),
    [
        (r"(path: vllm/extra.py.*sha256: )\w+", "ab" * 32, "lock", "vllm/extra.py"),
        (r"(0001-Core.*patch_id: )\w+", "ab" * 20, "rebuilt",
         "alpha/0001-Core-Count-the-loads-of-a-worker.patch"),
        (r"(path: vllm/extra.py.*patches: \[).*\]", "alpha/0003-Kernel-Skip-the-factor-one.patch]",
         "lock", "vllm/extra.py"),
    ],
)  # fmt: skip
def test_what_only_applying_anew_tells(
    applied: SyntheticProject, pattern: str, value: str, kind: str, subject: str
) -> None:
    edit_lock(applied, pattern, rf"\g<1>{value}")
    assert kinds(applied, "--deep") == {(kind, subject)}


def test_flags_on_files_that_are_as_they_should_be_are_no_mismatch(
    applied: SyntheticProject,
) -> None:
    git(applied.checkout, "update-index", "--assume-unchanged", "vllm/data.bin", "README.md")
    git(applied.checkout, "update-index", "--skip-worktree", "vllm/config.py")
    git(applied.checkout, "pack-refs", "--all")
    applied.succeed("verify", "demo")
    assert applied.run("status", "--json").json["clean"]


def test_status_and_apply_see_what_the_index_hides(applied: SyntheticProject) -> None:
    flagged("--assume-unchanged", bytes(256))(applied)
    status = applied.run("status", "--json").json
    assert status["changes"] == [{"path": "vllm/data.bin", "state": "modified"}]
    assert not status["clean"]
    refused = applied.run("apply", "demo", "--json")
    assert refused.code == 4
    assert "vllm/data.bin" in refused.json["error"]["details"]
    assert applied.succeed("apply", "demo", "--force")
    applied.succeed("verify", "demo", "--deep")


NO_RECEIPT: list[Any] = [5, None, "abc", [], [1, 2], {}, {"format": 1}]
WRONG_VALUES: list[dict[str, Any]] = [
    {"commit": 5}, {"tree": None}, {"pin_commit": "zz"}, {"pin": []}, {"stack": 5}, {"inputs": 5},
    {"inputs": [["a", 5]]}, {"patches": [{}]}, {"locked": "yes"}, {"more": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", [*NO_RECEIPT, *WRONG_VALUES], ids=repr)
def test_a_receipt_that_is_none_is_refused_and_written_anew(
    applied: SyntheticProject, value: Any
) -> None:
    file = applied.checkout / ".git/dsv4port/receipt.json"
    written = {**json.loads(file.read_bytes()), **value} if value in WRONG_VALUES else value
    file.write_text(json.dumps(written))
    for command in (["status"], ["verify"], ["refresh", "alpha"], ["reset"]):
        refused = applied.run(*command, "--json")
        assert refused.code == 5, (command, refused)
        assert "receipt" in refused.json["error"]["what"]
    applied.succeed("apply", "demo")
    applied.succeed("verify")


def test_a_receipt_without_inputs_proves_nothing(applied: SyntheticProject) -> None:
    file = applied.checkout / ".git/dsv4port/receipt.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "inputs": []}))
    assert applied.run("apply", "demo", "--json").json["outcome"] == "published"


@pytest.mark.parametrize("text", ["", "5", "null", "[1, 2]", '{"format": 1}', "{"])
def test_a_journal_that_is_none_is_named(applied: SyntheticProject, text: str) -> None:
    journal = applied.checkout / ".git/dsv4port/journal.json"
    journal.write_text(text)
    for command in (["status"], ["verify"], ["apply", "demo", "--force"], ["reset"]):
        refused = applied.run(*command, "--json")
        assert refused.code == 5, (command, refused)
        assert str(journal) in refused.json["error"]["what"]
    journal.unlink()
    applied.succeed("apply", "demo", "--force")
