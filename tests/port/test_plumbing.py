"""`port --repo R --base T --onto T PATCH...`: what scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import git, make_repository, write_files

BASE = {"m.py": b"def f(x):\n    y = x + 1\n    y = y * 2\n    z = y - 3\n    return z\n"}
ONTO = {"m.py": b"def f(x):\n    y = x + 1\n    y = y * 20\n    z = y - 3\n    return z\n"}
PATCH = (
    b"--- a/m.py\n+++ b/m.py\n@@ -2,4 +2,4 @@ def f(x):\n     y = x + 1\n     y = y * 2\n"
    b"-    z = y - 3\n+    z = y - 4\n     return z\n"
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    make_repository(folder, BASE)
    git(folder, "tag", "old")
    write_files(folder, ONTO)
    git(folder, "commit", "--quiet", "--all", "--message", "new")
    (tmp_path / "one.patch").write_bytes(PATCH)
    return folder


def port(
    folder: Path, *arguments: str, patches: tuple[str, ...] = ("one.patch",)
) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", "port", "--repo", str(folder), "--base", "old",
         "--onto", "HEAD", "--json", *arguments, *patches],
        cwd=folder.parent, capture_output=True, text=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == done.returncode
    return done.returncode, answer


def test_the_keys_that_scripts_rely_on(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    code, answer = port(repository)
    assert code == 0
    (row,) = answer["patches"]
    assert {"file", "outcome", "tree", "hunks"} <= set(row)
    assert row["file"] == "one.patch"
    (hunk,) = row["hunks"]
    assert {"file", "outcome", "old_scope", "new_scope", "reason"} <= set(hunk)
    assert (hunk["file"], hunk["old_scope"], hunk["new_scope"]) == ("m.py", "f", "f")
    assert answer["tree"] == row["tree"]
    shown = git(repository, "show", f"{answer['tree']}:m.py")
    assert "y = y * 20\n    z = y - 4" in shown
    # Objects only: no reference moved, no file changed.
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "fsck", "--strict").count("error") == 0


def test_an_answer_in_doubt_is_in_the_tree_and_marked(repository: Path) -> None:
    _, answer = port(repository)
    assert answer["patches"][0]["review"]
    assert answer["patches"][0]["hunks"][0]["rung"] == "structural"


def test_a_policy_can_accept_or_refuse_a_rung(repository: Path) -> None:
    code, answer = port(repository, "--policy", "structural=accept")
    assert (code, answer["patches"][0]["review"]) == (0, [])
    code, answer = port(repository, "--policy", "structural=refuse")
    assert (code, answer["patches"][0]["outcome"]) == (3, "conflict")
    assert answer["tree"] == git(repository, "rev-parse", "HEAD^{tree}")
    code, answer = port(repository, "--policy", "structural=perhaps")
    assert (code, answer["error"]["kind"]) == (2, "Usage")


def test_stop_at_first(repository: Path) -> None:
    conflict = PATCH.replace(b"y * 2\n-    z = y - 3\n+", b"y * 2\n-    z = y - 9\n+")
    (repository.parent / "bad.patch").write_bytes(conflict)
    patches = ("bad.patch", "one.patch")
    code, answer = port(repository, patches=patches)
    assert (code, len(answer["patches"])) == (3, 2)
    assert answer["patches"][1]["outcome"] == "merged"
    code, answer = port(repository, "--stop-at-first", patches=patches)
    assert (code, len(answer["patches"])) == (3, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": "nothing"}, "names no tree"),
        ({"patch": "absent.patch"}, "cannot be read"),
        ({"patch": "text.patch"}, "text.patch"),
    ],
)
def test_bad_input(repository: Path, change: dict[str, str], words: str) -> None:
    (repository.parent / "text.patch").write_bytes(b"--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x\n")
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", "port", "--repo", str(repository),
         "--base", change.get("base", "old"), "--onto", "HEAD", change.get("patch", "one.patch")],
        cwd=repository.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 5, done
    assert words in done.stderr


def test_the_same_run_gives_the_same_objects(repository: Path) -> None:
    first, second = port(repository)[1], port(repository)[1]
    assert first == second


def test_a_path_out_of_the_tree_is_refused(repository: Path) -> None:
    (repository.parent / "out.patch").write_bytes(PATCH.replace(b"m.py", b"../m.py"))
    code, answer = port(repository, patches=("out.patch",))
    assert code == 5
    assert answer["error"]["kind"] == "UnsafePath"


def test_a_file_that_changes_a_path_twice_is_ported_whole_or_not_at_all(repository: Path) -> None:
    again = PATCH.replace(b"-    z = y - 3\n+    z = y - 4", b"-    z = y - 4\n+    z = y - 5")
    (repository.parent / "two.patch").write_bytes(PATCH + b"\nand then\n\n" + again)
    code, answer = port(repository, patches=("two.patch",))
    assert (code, len(answer["patches"])) == (0, 1)
    assert "z = y - 5" in git(repository, "show", f"{answer['tree']}:m.py")
    wrong = PATCH.replace(b"-    z = y - 3\n+    z = y - 4", b"-    z = y - 8\n+    z = y - 5")
    (repository.parent / "two.patch").write_bytes(PATCH + b"\nand then\n\n" + wrong)
    code, answer = port(repository, patches=("two.patch",))
    assert code == 3
    assert answer["tree"] == answer["onto_tree"]
