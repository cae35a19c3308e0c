"""Conflicts as artifacts, decided by hand, kept, and used again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.port_project import (
    BASE,
    GAMMA_FILES,
    NEW_SERVER,
    RESOLVED,
    SERVER,
    applied,
    by_name,
    files_below,
)
from support.synthetic import Change, Executable, Link, Result, SyntheticProject, git

A, B, C, D, E, F = GAMMA_FILES
WHO = ("--author", "Bo <bo@example.org>")


def worktree(project: SyntheticProject) -> Path:
    return project.root / ".dsv4port" / "resolve" / "worktree"


def open_b(project: SyntheticProject, onto: str = "v2.0.0") -> Path:
    """The work tree of patch B in conflict."""
    result = project.run("resolve", "gamma", B, "--from", "v1.0.0", "--onto", onto)
    assert result.code == 0, result
    return worktree(project)


def resolve_b(project: SyntheticProject) -> Result:
    """Patch B resolved on v2.0.0, as a person would."""
    (open_b(project) / "vllm/server.py").write_bytes(RESOLVED)
    result = project.run("resolve", "--continue", *WHO)
    assert result.code == 0, result
    return result


def port(project: SyntheticProject, *more: str) -> dict[str, Any]:
    """Rows of gamma's patches on v2.0.0."""
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift", "--json", *more)
    assert result.code in (0, 3), result
    patches = by_name(result.json["pins"][0])["gamma"]["patches"]
    assert isinstance(patches, dict)
    return patches


@pytest.fixture
def conflicted(project: SyntheticProject) -> SyntheticProject:
    """The project after a port with conflicts."""
    assert project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift").code == 3
    return project


@pytest.fixture(scope="module")
def resolved_template(
    port_template: SyntheticProject, tmp_path_factory: pytest.TempPathFactory
) -> SyntheticProject:
    project = port_template.copy(tmp_path_factory.mktemp("resolved"))
    project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    resolve_b(project)
    return project


@pytest.fixture
def resolved(resolved_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """The project after B was resolved; nothing is in conflict."""
    return resolved_template.copy(tmp_path / "project")


def resolution_files(project: SyntheticProject) -> dict[str, bytes]:
    folder = project.root / "patchsets/gamma/resolutions"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*"))}


# Artifacts.


def test_artifacts_hold_the_sides_and_an_explanation(conflicted: SyntheticProject) -> None:
    folder = conflicted.root / "port/v1.0.0-v2.0.0/gamma"
    patch = folder / B.removesuffix(".patch")
    assert (patch / "base/vllm/server.py").read_bytes() == SERVER
    assert (patch / "ours/vllm/server.py").read_bytes() == NEW_SERVER
    assert b"self.open = port > 0" in (patch / "theirs/vllm/server.py").read_bytes()
    merged = (patch / "merged/vllm/server.py").read_text()
    assert merged.count("<<<<<<< ours: v2.0.0") == merged.count("||||||| base: v1.0.0") == 1
    assert f">>>>>>> theirs: {B}" in merged
    text = (patch / "explanation.md").read_text()
    assert "+        self.open = bool(port)" in text
    assert "What upstream changed in Server.start from v1.0.0 to v2.0.0" in text
    assert f"dsv4port resolve gamma {B} --from v1.0.0 --onto v2.0.0" in text
    fields = json.loads((patch / "explanation.json").read_text())
    (hunk,) = fields["hunks"]
    assert (hunk["file"], hunk["number"], hunk["upstream_scope"]) == (
        "vllm/server.py", 1, "Server.start",
    )  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    assert {row["file"]: row["fate"] for row in report["patches"]}[E] == "conflict"


def test_artifacts_go_when_nothing_is_in_conflict(resolved: SyntheticProject) -> None:
    assert not (resolved.root / "port").exists()


# The work tree.


def test_work_tree_has_markers_and_three_stages(conflicted: SyntheticProject) -> None:
    tree = open_b(conflicted)
    assert git(tree, "status", "--porcelain") == "UU vllm/server.py"
    assert git(tree, "show", ":1:vllm/server.py").encode() == SERVER.rstrip(b"\n")
    assert git(tree, "show", ":2:vllm/server.py").encode() == NEW_SERVER.rstrip(b"\n")
    assert (tree / "vllm/other.py").exists(), "it is the whole pin"


def test_git_mergetool_works(conflicted: SyntheticProject) -> None:
    tree = open_b(conflicted)
    git(
        tree, "-c", "mergetool.mine.cmd=cat \"$REMOTE\" > \"$MERGED\"",
        "-c", "mergetool.mine.trustExitCode=true", "mergetool", "--no-prompt", "--tool=mine",
    )  # fmt: skip
    assert git(tree, "status", "--porcelain") == "M  vllm/server.py"
    assert conflicted.run("resolve", "--continue", *WHO).code == 0
    assert b"self.open = port > 0" in (conflicted.root / "patchsets/gamma/v2.0.0" / B).read_bytes()


def test_continue_is_refused_while_anything_is_left(conflicted: SyntheticProject) -> None:
    tree = open_b(conflicted)
    before = files_below(conflicted.root)
    result = conflicted.run("resolve", "--continue", *WHO)
    assert result.code == 3
    assert "vllm/server.py:9: has conflict markers" in result.err
    server = tree / "vllm/server.py"
    server.write_bytes(server.read_bytes().replace(b"<<<<<<< ours", b"# ours"))
    assert "has conflict markers" in conflicted.run("resolve", "--continue", *WHO).err
    server.write_bytes(RESOLVED.replace(b"def stop(self):", b"def stop(self:"))
    result = conflicted.run("resolve", "--continue", *WHO)
    assert result.code == 3
    assert "vllm/server.py: line 12:" in result.err
    server.write_bytes(RESOLVED)
    (tree / "notes.md").write_text("mine\n")
    result = conflicted.run("resolve", "--continue", *WHO)
    assert result.code == 3
    assert "notes.md: is new" in result.err
    server.write_bytes(NEW_SERVER)
    (tree / "notes.md").unlink()
    assert "would change nothing" in conflicted.run("resolve", "--continue", *WHO).err
    assert files_below(conflicted.root) == before


def test_nobody_decides_without_a_name(conflicted: SyntheticProject) -> None:
    (open_b(conflicted) / "vllm/server.py").write_bytes(RESOLVED)
    result = conflicted.run("resolve", "--continue")
    assert result.code == 2
    assert "--author" in result.err
    (conflicted.home / ".gitconfig").write_text("[user]\nname = Cy\nemail = cy@example.org\n")
    assert conflicted.run("resolve", "--continue").code == 0
    (document,) = [
        yaml.safe_load(content)
        for name, content in resolution_files(conflicted).items()
        if name.endswith(".yaml")
    ]
    assert document["author"] == "Cy <cy@example.org>"


# What a decision does.


def test_patch_gets_into_its_place_and_later_ones_follow(resolved: SyntheticProject) -> None:
    folder = resolved.root / "patchsets/gamma/v2.0.0"
    assert (folder / "series").read_text() == f"{B}\n{C}\n{D}\n{E}\n{F}\n"
    checkout = applied(resolved, ["gamma"], "v2.0.0")
    assert (checkout / "vllm/server.py").read_bytes() == RESOLVED.replace(
        b"port > 0", b"port > 1"
    ).replace(b"{server.port}: {state}", b"{server.port} is {state}").replace(
        b"LIMIT = 4", b"LIMIT = 8"
    )
    assert git(checkout, "log", "-5", "--format=%an", "--reverse").split("\n")[0] == "Zoë Müller"


def test_resolution_is_a_file_for_review(resolved: SyntheticProject) -> None:
    files = resolution_files(resolved)
    change, document = sorted(files)
    assert b"+        self.open = bool(port) and port > 0" in files[change]
    content = yaml.safe_load(files[document])
    assert (content["patch"], content["from"], content["onto"]) == (B, "v1.0.0", "v2.0.0")
    assert content["author"] == "Bo <bo@example.org>"
    (row,) = content["files"]
    blob = git(resolved.base, "hash-object", "--stdin", stdin=NEW_SERVER)
    assert row["ours"] == f"100644 {blob}"


def test_resolution_is_used_again_and_named(resolved: SyntheticProject) -> None:
    import shutil

    before = files_below(resolved.root)
    # As on another machine: the series is not there, the resolution is.
    shutil.rmtree(resolved.root / "patchsets/gamma/v2.0.0")
    row = port(resolved)[B]
    assert row["fate"] == "resolved"
    assert row["resolution"]["author"] == "Bo <bo@example.org>"
    assert files_below(resolved.root) == before
    text = resolved.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    assert "resolved by Bo <bo@example.org>" in text.out


def test_resolution_for_other_content_is_not_used(resolved: SyntheticProject) -> None:
    result = resolved.run(
        "port", "gamma", "--from", "v1.0.0", "--onto", "v3.0.0", "--no-drift", "--json"
    )
    row = by_name(result.json["pins"][0])["gamma"]["patches"][B]
    assert (row["fate"], row["resolution"]) == ("conflict", None)
    assert [stale["why"] for stale in row["stale"]] == [
        "vllm/server.py is another file in the target now"
    ]


@pytest.mark.parametrize("suffix", [".change", ".yaml"])
def test_edited_resolution_is_refused(resolved: SyntheticProject, suffix: str) -> None:
    folder = resolved.root / "patchsets/gamma/resolutions"
    (file,) = folder.glob(f"*{suffix}")
    if suffix == ".change":
        file.write_bytes(file.read_bytes().replace(b"port > 0", b"port > 9"))
    else:
        blob = git(resolved.base, "hash-object", "--stdin", stdin=NEW_SERVER)
        file.write_text(
            file.read_text().replace(f"ours: 100644 {blob}", f"ours: 100644 {'1' * 40}")
        )
    before = files_below(resolved.root)
    result = resolved.run("port", "gamma", "--onto", "v2.0.0", "--from", "v1.0.0", "--no-drift")
    assert result.code == 5, result
    assert "edited" in result.err
    assert files_below(resolved.root) == before


def test_resolution_with_another_result_is_refused(resolved: SyntheticProject) -> None:
    """Both files edited so that they agree: the result is not the blob that was reviewed."""
    import hashlib

    folder = resolved.root / "patchsets/gamma/resolutions"
    (change,), (document,) = folder.glob("*.change"), folder.glob("*.yaml")
    old = change.read_bytes()
    new = old.replace(b"port > 0", b"port > 9")
    change.write_bytes(new)
    document.write_text(
        document.read_text().replace(
            hashlib.sha256(old).hexdigest(), hashlib.sha256(new).hexdigest()
        )
    )
    result = resolved.run("port", "gamma", "--onto", "v2.0.0", "--from", "v1.0.0", "--no-drift")
    assert result.code == 5, result
    assert "vllm/server.py" in result.err


def test_skip_leaves_the_patch_out_for_a_reason(conflicted: SyntheticProject) -> None:
    open_b(conflicted)
    assert conflicted.run("resolve", "--skip", *WHO).code == 2
    result = conflicted.run(
        "resolve", "--skip", *WHO, "--why", "the server checks it now", "--json"
    )
    rows = by_name(result.json["pins"][0])["gamma"]["patches"]
    assert rows[B]["fate"] == "left-out"
    assert rows[B]["resolution"]["why"] == "the server checks it now"
    assert rows[E]["fate"] == "conflict"
    assert result.code == 3, "E was written on top of it"
    assert port(conflicted)[B]["fate"] == "left-out"


def test_abort_keeps_the_edits_as_a_diff(conflicted: SyntheticProject) -> None:
    before = files_below(conflicted.root)
    (open_b(conflicted) / "vllm/server.py").write_bytes(RESOLVED)
    answer = conflicted.run("resolve", "--abort", "--json").json
    assert b"+        self.open = bool(port) and port > 0" in Path(answer["saved"]).read_bytes()
    assert not worktree(conflicted).exists()
    assert files_below(conflicted.root) == before
    assert conflicted.run("resolve", "--status", "--json").json["open"] is None
    assert conflicted.run("resolve", "--continue").code == 2


def test_one_at_a_time(conflicted: SyntheticProject) -> None:
    tree = open_b(conflicted)
    (tree / "vllm/server.py").write_bytes(RESOLVED)
    assert conflicted.run("resolve", "gamma", E, "--onto", "v2.0.0").code == 4
    assert open_b(conflicted) == tree
    assert (tree / "vllm/server.py").read_bytes() == RESOLVED, "edits are kept"


def test_patch_that_merges_can_be_decided_too(project: SyntheticProject) -> None:
    name = ("resolve", "gamma", D, "--onto", "v2.0.0")
    result = project.run(*name)
    assert result.code == 2
    assert "--again" in result.err
    assert project.run(*name, "--again").code == 0
    notes = worktree(project) / "vllm/notes.txt"
    assert b"zwei\r\n" in notes.read_bytes()
    notes.write_bytes(notes.read_bytes().replace(b"zwei", b"deux"))
    assert project.run("resolve", "--continue", *WHO, "--json").json["pins"][0]["conflicts"] == 2
    assert port(project)[D]["fate"] == "resolved"
    checkout = applied(project, ["gamma"], "v2.0.0")
    assert (checkout / "vllm/notes.txt").read_bytes() == b"zero\r\none\r\ndeux\r\nthree\r\nfour\r\n"


def test_series_that_was_changed_by_hand_is_not_overwritten(conflicted: SyntheticProject) -> None:
    patch = conflicted.root / "patchsets/gamma/v2.0.0" / D
    mine = patch.read_bytes().replace(b"[D] Windows line", b"[D] My line")
    patch.write_bytes(mine)
    (open_b(conflicted) / "vllm/server.py").write_bytes(RESOLVED)
    result = conflicted.run("resolve", "--continue", *WHO)
    assert result.code == 4, result
    assert f"{D}: differs" in result.err
    assert patch.read_bytes() == mine
    assert worktree(conflicted).exists()
    assert conflicted.run("resolve", "--continue", *WHO, "--replace").code == 0
    kept = list((conflicted.root / ".dsv4port/port/replaced").rglob(D))
    assert mine in [path.read_bytes() for path in kept]


STEPS = (
    "resolve-resolution-written", "port-staged", "port-journal-written", "port-one-moved",
    "port-all-moved", "resolve-series-written",
)  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_kill_while_continuing_loses_nothing(
    conflicted: SyntheticProject, resolved_template: SyntheticProject, step: str
) -> None:
    (open_b(conflicted) / "vllm/server.py").write_bytes(RESOLVED)
    killed = conflicted.run("resolve", "--continue", *WHO, DSV4PORT_TEST_STOP_AT=step)
    assert killed.code == -9
    assert (worktree(conflicted) / "vllm/server.py").read_bytes() == RESOLVED
    assert conflicted.run("resolve", "--continue", *WHO).code == 0
    after, expected = files_below(conflicted.root), files_below(resolved_template.root)
    assert after.keys() == expected.keys()
    differing = {name for name in after if after[name] != expected[name]}
    assert {Path(name).suffix for name in differing} <= {".yaml"}, "only the date of the decision"
    assert not worktree(conflicted).exists()


@pytest.mark.parametrize("step", ["resolve-worktree-made", "resolve-opened"])
def test_kill_while_opening(conflicted: SyntheticProject, step: str) -> None:
    name = ("resolve", "gamma", B, "--onto", "v2.0.0")
    assert conflicted.run(*name, DSV4PORT_TEST_STOP_AT=step).code == -9
    status = conflicted.run("resolve", "--status", "--json").json["open"]
    assert (status is None) == (step == "resolve-worktree-made")
    assert conflicted.run(*name).code == 0
    assert git(worktree(conflicted), "status", "--porcelain") == "UU vllm/server.py"


# Other kinds of conflicts.


def conflict_of(
    project: SyntheticProject, change: Mapping[str, bytes | Executable | Link | None]
) -> Path:
    """A patchset with one change, ported to v2.0.0 and opened."""
    project.add_patchset("kappa", "v1.0.0", [Change("K", change)])
    assert project.run("port", "kappa", "--onto", "v2.0.0", "--no-drift").code == 3
    assert project.run("resolve", "0001-K.patch", "--onto", "v2.0.0").code == 0
    return worktree(project)


def drop_from_next(project: SyntheticProject, path: str) -> None:
    """v2.0.0 without a file."""
    files = {name: content for name, content in project.trees["v2.0.0"].items() if name != path}
    archive = project.add_pin("v2.1.0", files)
    assert archive.exists()
    project.succeed("fetch", "v2.1.0")


def test_file_that_upstream_deleted(project: SyntheticProject) -> None:
    drop_from_next(project, "vllm/util.py")
    content = b"def helper():\n    return 43\n"
    project.add_patchset("kappa", "v1.0.0", [Change("K", {"vllm/util.py": content})])
    assert project.run("port", "kappa", "--onto", "v2.1.0", "--no-drift").code == 3
    assert project.run("resolve", "0001-K.patch", "--onto", "v2.1.0").code == 0
    tree = worktree(project)
    assert git(tree, "status", "--porcelain") == "DU vllm/util.py"
    assert (tree / "vllm/util.py").read_bytes() == content
    refused = project.run("resolve", "--continue", *WHO)
    assert refused.code == 3
    assert "vllm/util.py: not resolved yet" in refused.err
    git(tree, "add", "vllm/util.py")
    assert project.run("resolve", "--continue", *WHO).code == 0
    assert (applied(project, ["kappa"], "v2.1.0") / "vllm/util.py").read_bytes() == content


def test_file_that_both_added(project: SyntheticProject) -> None:
    tree = conflict_of(project, {"vllm/other.py": b"import os\n\nANOTHER = os.sep\n"})
    text = (tree / "vllm/other.py").read_text()
    assert "<<<<<<< ours" in text
    (tree / "vllm/other.py").write_text("OTHER = 1\nANOTHER = 2\n")
    assert project.run("resolve", "--continue", *WHO).code == 0
    assert (applied(project, ["kappa"], "v2.0.0") / "vllm/other.py").read_text() == (
        "OTHER = 1\nANOTHER = 2\n"
    )


def test_binary_file(project: SyntheticProject) -> None:
    base = {**BASE, "vllm/data.bin": bytes(range(256))}
    new = {**project.trees["v2.0.0"], "vllm/data.bin": bytes(range(255, -1, -1))}
    project.add_pin("v1.5.0", base)
    project.add_pin("v2.5.0", new)
    project.succeed("fetch", "v1.5.0", "v2.5.0")
    mine = b"\0" * 100
    project.add_patchset("kappa", "v1.5.0", [Change("K", {"vllm/data.bin": mine})])
    assert project.run("port", "kappa", "--onto", "v2.5.0", "--no-drift").code == 3
    assert project.run("resolve", "0001-K.patch", "--onto", "v2.5.0").code == 0
    tree = worktree(project)
    assert project.run("resolve", "--continue", *WHO).code == 3
    git(tree, "checkout", "--theirs", "vllm/data.bin")
    git(tree, "add", "vllm/data.bin")
    assert project.run("resolve", "--continue", *WHO).code == 0
    assert (applied(project, ["kappa"], "v2.5.0") / "vllm/data.bin").read_bytes() == mine


def test_other_files_of_the_patch_are_merged_already(project: SyntheticProject) -> None:
    tree = conflict_of(
        project,
        {
            "vllm/server.py": SERVER.replace(b"self.open = True", b"self.open = port > 0"),
            "vllm/notes.txt": b"one\r\nzwei\r\nthree\r\nfour\r\n",
            "vllm/new.sh": Executable(b"#!/bin/sh\n"),
            "vllm/util.py": None,
        },
    )
    assert git(tree, "status", "--porcelain").splitlines()[-1].endswith("vllm/util.py")
    assert (tree / "vllm/notes.txt").read_bytes() == b"zero\r\none\r\nzwei\r\nthree\r\nfour\r\n"
    assert os.access(tree / "vllm/new.sh", os.X_OK)
    (tree / "vllm/server.py").write_bytes(RESOLVED)
    git(tree, "rm", "--quiet", "--force", "vllm/util.py")
    (tree / "extra.txt").write_text("also\n")
    git(tree, "add", "extra.txt")
    assert project.run("resolve", "--continue", *WHO).code == 0
    checkout = applied(project, ["kappa"], "v2.0.0")
    assert (checkout / "vllm/server.py").read_bytes() == RESOLVED
    assert os.access(checkout / "vllm/new.sh", os.X_OK)
    assert (checkout / "extra.txt").read_text() == "also\n"
    assert not (checkout / "vllm/util.py").exists()


TWINS = b"""class First:
    def load(self):
        self.model = None
        self.ready = True
        return self


class Second:
    def load(self):
        self.model = None
        self.ready = True
        return self
"""


def test_hunk_that_would_land_in_another_scope_gets_markers(project: SyntheticProject) -> None:
    """Upstream dropped the first of two twins: git merges into the second without a word."""
    second = TWINS[TWINS.index(b"class Second") :]
    project.add_pin("v1.7.0", {**BASE, "vllm/twins.py": TWINS})
    project.add_pin("v2.7.0", {**BASE, "vllm/twins.py": second})
    project.succeed("fetch", "v1.7.0", "v2.7.0")
    changed = TWINS.replace(b"        return self\n", b"        return self.model\n", 1)
    project.add_patchset("kappa", "v1.7.0", [Change("K", {"vllm/twins.py": changed})])
    assert project.run("port", "kappa", "--onto", "v2.7.0", "--no-drift").code == 3
    assert project.run("resolve", "0001-K.patch", "--onto", "v2.7.0").code == 0
    text = (worktree(project) / "vllm/twins.py").read_bytes()
    assert b"<<<<<<< ours" in text
    assert b"return self.model" in text[text.index(b"<<<<<<< ours") :]
    assert project.run("resolve", "--continue", *WHO).code == 3


def test_resolved_in_a_stack_meets_the_stack(project: SyntheticProject) -> None:
    assert project.run("port", "both", "--onto", "v2.0.0", "--no-drift").code == 3
    assert project.run("resolve", "both", f"gamma/{B}", "--onto", "v2.0.0").code == 0
    (worktree(project) / "vllm/server.py").write_bytes(RESOLVED)
    result = project.run("resolve", "--continue", *WHO, "--json")
    assert result.code == 0, result
    assert by_name(result.json["pins"][0]).keys() == {"gamma", "delta"}


def test_the_users_git_is_not_asked(conflicted: SyntheticProject) -> None:
    """The session does not depend on whatever surrounds the project."""
    subprocess.run(["git", "init", "--quiet", str(conflicted.root)], check=True)
    assert git(open_b(conflicted), "rev-parse", "--show-toplevel") == str(worktree(conflicted))


def test_conflict_that_the_manifest_knows_to_be_upstream_says_so(
    project: SyntheticProject,
) -> None:
    """Upstream has the change in other words: no merge can tell, the manifest can."""
    manifest = project.root / "patchsets/gamma/patchset.yaml"
    content = json.loads(manifest.read_text())
    mark = {"path": "vllm/server.py", "contains": "bool(port)"}
    content["upstreamed"] = [{"pin": "v2.0.0", "patches": [B], "fingerprint": mark}]
    manifest.write_text(json.dumps(content, indent=1))
    result = project.run("port", "gamma", "--onto", "v2.0.0", "--no-drift")
    assert f"{B}: upstream has it: 'bool(port)' in vllm/server.py is there; it may be one to" in (
        result.err
    )
    assert f"{E}: upstream has it" not in result.err
    folder = project.root / "port/v1.0.0-v2.0.0/gamma"
    explained = {
        file: (folder / file.removesuffix(".patch") / "explanation.md").read_text()
        for file in (B, E)
    }
    assert "resolve --skip" in explained[B]
    assert "resolve --skip" not in explained[E]
