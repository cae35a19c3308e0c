"""`lock`: written for review, and only when it differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.synthetic import Change, SyntheticProject, demo_result, edit_alpha, tree_id


def lock_file(project: SyntheticProject) -> Path:
    return project.root / "manifests" / "locks" / "demo.lock.yaml"


def test_created_then_unchanged(demo: SyntheticProject) -> None:
    result = demo.succeed("lock", "demo")
    assert result.out.startswith("manifests/locks/demo.lock.yaml: written; review it")
    assert f"tree {tree_id(demo_result())}\n" in result.out
    written = lock_file(demo).read_bytes()
    again = demo.succeed("lock", "demo")
    assert again.out.startswith("manifests/locks/demo.lock.yaml: up to date\n")
    assert lock_file(demo).read_bytes() == written


def test_json(locked: SyntheticProject) -> None:
    answer = locked.run("lock", "demo", "--json").json
    assert answer["outcome"] == "unchanged"
    assert answer["lock"] == str(lock_file(locked))
    assert answer["tree"] == tree_id(demo_result())
    assert answer["base_tree"] == tree_id(locked.trees["v1.0.0"])
    assert (answer["pin"], answer["source"], answer["files"]) == ("v1.0.0", "sdist", 5)
    assert [row["file"].split("/")[0] for row in answer["patches"]] == ["alpha"] * 3 + ["beta"]
    assert all(len(row["sha256"]) == 64 for row in answer["patches"])
    assert answer["differences"] == []


def test_check(demo: SyntheticProject) -> None:
    missing = demo.run("lock", "demo", "--check", "--json")
    assert (missing.code, missing.json["outcome"]) == (1, "missing")
    assert not lock_file(demo).exists()
    demo.succeed("lock", "demo")
    demo.succeed("lock", "demo", "--check")
    edit_alpha(demo)
    written = lock_file(demo).read_bytes()
    result = demo.run("lock", "demo", "--check")
    assert result.code == 1
    assert result.out.startswith("manifests/locks/demo.lock.yaml: not up to date\n")
    assert lock_file(demo).read_bytes() == written
    answer = demo.run("lock", "demo", "--check", "--json").json
    assert answer["ok"] is False
    subjects = {row["subject"]: row for row in answer["differences"]}
    assert "alpha/0002-Tools-Add-a-check.patch" in subjects
    assert "vllm/extra.py" in subjects and "result" in subjects
    assert "vllm/config.py" not in subjects


def test_updated(locked: SyntheticProject) -> None:
    edit_alpha(locked)
    answer = locked.run("lock", "demo", "--json").json
    assert answer["outcome"] == "updated"
    assert answer["differences"]
    assert locked.succeed("apply", "demo").code == 0


def test_only_the_tools_version_is_no_difference(locked: SyntheticProject) -> None:
    file = lock_file(locked)
    other = re.sub(r"^tool: .*$", 'tool: "0.0.1"', file.read_text(), flags=re.MULTILINE)
    assert other != file.read_text()
    file.write_text(other)
    locked.succeed("lock", "demo", "--check")
    locked.succeed("lock", "demo")
    assert file.read_text() == other


def test_patch_taken_away(locked: SyntheticProject) -> None:
    stack = locked.root / "manifests" / "stacks" / "demo.yaml"
    stack.write_text(stack.read_text().replace('"alpha",', '"alpha"').replace(' "beta"\n', ""))
    answer = locked.run("lock", "demo", "--check", "--json").json
    rows = {(row["subject"], row["what"]): row for row in answer["differences"]}
    gone = rows["beta/0001-Bugfix-DSV4-Gr-ere-Bl-cke.patch", "patch"]
    assert (gone["expected"], gone["found"]) == ("there", "nothing")
    assert ("vllm/config.py", "file") in rows


def test_a_lock_that_cannot_be_read_is_written_anew(locked: SyntheticProject) -> None:
    lock_file(locked).write_text("format: 0\n")
    check = locked.run("lock", "demo", "--check")
    assert check.code == 5
    assert "manifests/locks/demo.lock.yaml:1: " in check.err
    assert locked.run("lock", "demo", "--json").json["outcome"] == "updated"
    locked.succeed("apply", "demo")


def test_conflict(locked: SyntheticProject) -> None:
    other = {**locked.trees["v1.0.0"], "vllm/config.py": b"MAX_BATCH = 1\n"}
    change = Change("Raise it", {"vllm/config.py": b"MAX_BATCH = 2\n"})
    locked.add_patchset("gamma", "v1.0.0", [change], base=other)
    locked.add_stack("worse", "v1.0.0", ["gamma"])
    result = locked.run("lock", "worse", "--json")
    assert result.code == 3
    assert [row["outcome"] for row in result.json["patches"]] == ["conflict"]
    assert not (locked.root / "manifests" / "locks" / "worse.lock.yaml").exists()


@pytest.mark.parametrize(("name", "code"), [("nope", 5), ("../x", 5)])
def test_unknown_stack(demo: SyntheticProject, name: str, code: int) -> None:
    assert demo.run("lock", name).code == code
    assert demo.run("lock").code == 2
