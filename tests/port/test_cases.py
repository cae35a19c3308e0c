"""Every folder below cases is a port, and what must come of it.

``base/`` is what the patches were written for, ``onto/`` the tree to port them to, ``expected/``
the whole result; without it the result is ``onto/``. ``expect.yaml`` holds the exit code and, as
far as the case is about them, outcomes, scopes, and parts of reasons. ``review: true`` means that
the patch must be marked, its absence that it must not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.parent.name for path in CASES.glob("*/expect.yaml"))
PATCH_KEYS = {"outcome", "review", "depends", "hunks"}
HUNK_KEYS = {
    "outcome", "rung", "old_scope", "new_scope", "old_line", "new_line", "new_file", "reason",
    "score_at_least", "upstream",
}  # fmt: skip


def git(repository: Path, *arguments: str, work_tree: Path | None = None) -> str:
    environment = {
        "PATH": os.environ["PATH"], "HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DIR": str(repository), "GIT_INDEX_FILE": str(repository / "case-index"),
        **({} if work_tree is None else {"GIT_WORK_TREE": str(work_tree)}),
    }  # fmt: skip
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *arguments],
        cwd=work_tree or repository.parent, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    return os.fsdecode(done.stdout).strip()


def tree_of(repository: Path, folder: Path) -> str:
    """The tree that git makes of a folder."""
    (repository / "case-index").unlink(missing_ok=True)
    if not folder.exists():
        return git(repository, "mktree")
    git(repository, "add", "--all", "--force", ".", work_tree=folder)
    return git(repository, "write-tree")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "case.git"
    subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True)
    return folder


def run(repository: Path, case: Path, base: str, onto: str) -> tuple[int, dict[str, Any]]:
    patches = sorted(path.name for path in case.glob("*.patch"))
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", "port", "--repo", str(repository), "--base", base,
         "--onto", onto, "--json", *patches],
        cwd=case, capture_output=True, text=True,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, repository: Path) -> None:
    case = CASES / name
    expect = yaml.safe_load((case / "expect.yaml").read_text())
    base, onto = tree_of(repository, case / "base"), tree_of(repository, case / "onto")
    before = {path for path in repository.rglob("*") if "objects" not in path.parts}

    code, answer = run(repository, case, base, onto)

    shown = json.dumps(answer["patches"], indent=1)
    assert code == expect["exit"], shown
    for row, wanted in zip(answer["patches"], expect["patches"], strict=True):
        compare_patch(row, wanted, shown)
    result = case / "expected" if (case / "expected").exists() else case / "onto"
    assert answer["tree"] == answer["patches"][-1]["tree"]
    if answer["tree"] != tree_of(repository, result):
        difference = git(repository, "diff", tree_of(repository, result), answer["tree"])
        pytest.fail(f"{difference}\n{shown}")
    assert git(repository, "cat-file", "-t", answer["tree"]) == "tree"
    after = {path for path in repository.rglob("*") if "objects" not in path.parts}
    assert after - before <= {repository / "case-index"}, "more than objects was written"


def compare_patch(row: dict[str, Any], wanted: dict[str, Any], shown: str) -> None:
    assert set(wanted) <= PATCH_KEYS
    assert row["outcome"] == wanted["outcome"], shown
    if row["outcome"] not in ("conflict", "misplaced"):
        assert bool(row["review"]) == wanted.get("review", False), shown
    assert row["depends"] == wanted.get("depends", []), shown
    for hunk, one in zip(row["hunks"], wanted.get("hunks", row["hunks"]), strict=True):
        if hunk is not one:
            compare_hunk(hunk, one, shown)


def compare_hunk(hunk: dict[str, Any], wanted: dict[str, Any], shown: str) -> None:
    assert set(wanted) <= HUNK_KEYS
    for key, value in wanted.items():
        if key == "score_at_least":
            assert hunk["score"] >= value, shown
        elif key in ("reason", "upstream") and value:
            assert value in hunk[key], shown
        else:
            assert hunk[key] == value, (key, shown)
