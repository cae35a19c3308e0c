"""A folder that becomes a file, and the other way round: in trees, checkouts and back again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.synthetic import (
    DEMO_FILES,
    Change,
    Files,
    Link,
    SyntheticProject,
    after,
    git,
    tree_id,
    write_files,
)

FILES: Files = {**DEMO_FILES, "d/x.py": b"x = 1\n", "d/deep/y.py": b"y = 2\n", "f": b"a file\n"}
CHANGES = {
    "folder-to-file": Change("A file", {"d/x.py": None, "d/deep/y.py": None, "d": b"a file now\n"}),
    "folder-to-link": Change("A link", {"d/x.py": None, "d/deep/y.py": None, "d": Link("vllm")}),
    "file-to-folder": Change("A folder", {"f": None, "f/x.py": b"x = 1\n", "f/g/y.py": b"y\n"}),
}


def make(base: Path, change: Change) -> SyntheticProject:
    project = SyntheticProject(base)
    project.add_pin("v1.0.0", FILES)
    project.add_patchset("alpha", "v1.0.0", [change])
    project.add_stack("demo", "v1.0.0", ["alpha"])
    return project


def on_disk(project: SyntheticProject) -> set[str]:
    return {
        path.relative_to(project.checkout).as_posix()
        for path in project.checkout.rglob("*")
        if ".git" not in path.parts and (path.is_symlink() or not path.is_dir())
    }


@pytest.mark.parametrize("name", CHANGES)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    project = make(tmp_path, change)
    wanted = after(FILES, change)
    project.succeed("lock", "demo")
    project.succeed("reset", "v1.0.0")
    answer = project.run("apply", "demo", "--json").json
    assert (answer["exit_code"], answer.get("outcome")) == (0, "published"), answer
    assert answer["tree"] == tree_id(wanted)
    assert on_disk(project) == set(wanted)
    project.succeed("verify", "--deep")
    assert "no changes" in project.succeed("status").out
    assert project.run("refresh", "alpha", "--json").json["written"] is False
    project.succeed("reset", "v1.0.0")
    assert on_disk(project) == set(FILES)
    assert git(project.checkout, "status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_user_put_in_the_way_is_refused_then_saved(name: str, tmp_path: Path) -> None:
    project = make(tmp_path, CHANGES[name])
    project.succeed("reset", "v1.0.0")
    mine = "f" if name == "file-to-folder" else "d/deep/mine.txt"
    write_files(project.checkout, {mine: b"mine\n"})
    before = on_disk(project)
    refused = project.run("apply", "demo", "--unlocked")
    assert refused.code == 4
    assert f"\n  {mine}\n" in refused.err
    assert on_disk(project) == before
    forced = project.run("apply", "demo", "--unlocked", "--force", "--json").json
    assert forced["exit_code"] == 0, forced
    assert git(project.checkout, "show", f"{forced['saved']}:{mine}") == "mine"
    assert on_disk(project) == set(after(FILES, CHANGES[name]))
