"""A checkout whose .git somebody else wrote: nothing of it runs, and no content changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import SyntheticProject, demo_result, git, tree_id

SETTINGS = """
[core]
 fsmonitor = EVIL
 hooksPath = HOOKS
 sshCommand = EVIL
 pager = EVIL
 editor = EVIL
 alternateRefsCommand = EVIL
 attributesFile = ATTRIBUTES
 worktree = ELSEWHERE
 bare = true
 autocrlf = true
 eol = crlf
 ignoreStat = true
 trustctime = false
 fileMode = false
 sparseCheckout = true
[filter "evil"]
 clean = EVIL
 smudge = EVIL
 process = EVIL
 required = true
[diff]
 external = EVIL
[diff "evil"]
 textconv = EVIL
 command = EVIL
[include]
 path = INCLUDED
[credential]
 helper = !EVIL
[gpg]
 program = EVIL
[commit]
 gpgSign = true
[alias]
 status = !EVIL
 read-tree = !EVIL
[remote "evil"]
 url = ext::EVIL
 promisor = true
[protocol]
 allow = always
[submodule]
 recurse = true
[index]
 version = 4
"""
COMMANDS = [
    ["status"], ["apply", "demo"], ["verify", "demo", "--deep"], ["refresh", "alpha"],
    ["reset", "v1.0.0"], ["apply", "demo", "--force"], ["verify", "demo"],
]  # fmt: skip


@pytest.fixture
def hostile(locked: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    locked.succeed("reset", "v1.0.0")
    git_dir = locked.checkout / ".git"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    evil.chmod(0o755)
    for folder in (tmp_path / "hooks", git_dir / "hooks"):
        folder.mkdir(exist_ok=True)
        for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
            (folder / hook).write_bytes(evil.read_bytes())
            (folder / hook).chmod(0o755)
    (tmp_path / "attributes").write_text("* filter=evil diff=evil text eol=crlf ident\n")
    (tmp_path / "included").write_text(f"[core]\n fsmonitor = {evil}\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "README.md").write_text("precious\n")
    (git_dir / "info" / "sparse-checkout").write_text("/vllm/\n")
    settings = SETTINGS
    for word in ("EVIL", "HOOKS", "ATTRIBUTES", "ELSEWHERE", "INCLUDED"):
        settings = settings.replace(word, str(tmp_path / word.lower()))
    with (git_dir / "config").open("a") as config:
        config.write(settings)
    return locked


def test_nothing_runs_and_nothing_changes(hostile: SyntheticProject, tmp_path: Path) -> None:
    for command in COMMANDS:
        hostile.succeed(*command)
        assert not (tmp_path / "ran").exists(), command
    found = hostile.run("status", "--json").json["receipt"]["tree"]
    assert found == tree_id(demo_result())
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["README.md"]
    assert (tmp_path / "elsewhere" / "README.md").read_text() == "precious\n"
    readme = (hostile.checkout / "README.md").read_bytes()
    assert readme == demo_result()["README.md"]


def test_replaced_objects_are_not_taken(applied: SyntheticProject) -> None:
    original = git(applied.checkout, "rev-parse", "HEAD:vllm/config.py")
    other = git(applied.checkout, "hash-object", "-w", "--stdin", stdin=b"evil\n")
    git(applied.checkout, "replace", original, other)
    applied.succeed("verify", "demo", "--deep")
    applied.succeed("reset", "v1.0.0")
    applied.succeed("apply", "demo")
    assert b"evil" not in (applied.checkout / "vllm" / "config.py").read_bytes()


@pytest.mark.parametrize("command", COMMANDS)
def test_attributes_of_the_repository_are_refused(
    command: list[str], hostile: SyntheticProject, tmp_path: Path
) -> None:
    attributes = hostile.checkout / ".git" / "info" / "attributes"
    neutral = attributes.read_bytes()
    attributes.write_bytes((tmp_path / "attributes").read_bytes())
    refused = hostile.run(*command)
    assert refused.code == 4, refused
    assert f"{attributes} is not as dsv4port wrote it" in refused.err
    assert "→ remove the file; it is written anew\n" in refused.err
    assert not (tmp_path / "ran").exists()
    attributes.unlink()
    hostile.succeed("apply", "demo")
    assert attributes.read_bytes() == neutral
    hostile.succeed("verify", "--deep")
    assert not (tmp_path / "ran").exists()
