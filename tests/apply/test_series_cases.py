"""Every folder below series_cases is a series, a tree, and what must come of it.

``base/`` is what the patches were written for: its blobs are in the repository. ``target/`` is the
tree they are applied to (the base, where there is none). ``expect.yaml`` holds the exit code and,
as far as the case is about them: outcome, a part of the reason, the patch that is refused, the
outcomes up to there, author and message of the last commit. ``expected/`` is the whole result.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from dsv4port.apply.engine import SeriesConflictError
from dsv4port.apply.repo_apply import apply_to_repository
from dsv4port.errors import Dsv4portError

CASES = Path(__file__).parent / "series_cases"
NAMES = sorted(path.parent.relative_to(CASES).as_posix() for path in CASES.glob("*/*/expect.yaml"))
KEYS = {"exit", "outcome", "reason", "failed", "applied", "author", "message"}


def git(folder: Path, *arguments: str, work_tree: Path | None = None) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_DIR": str(folder / ".git"),
        "GIT_WORK_TREE": str(work_tree or folder),
        "GIT_INDEX_FILE": str(folder / ".git" / "case-index"),
        **{
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", "A"), ("EMAIL", "a@b"), ("DATE", "1600000000 +0000"))
        },
    }
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", *arguments],
        cwd=work_tree or folder, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    return os.fsdecode(done.stdout)


def tree_of(repository: Path, folder: Path) -> str:
    """The tree that git makes of a folder as it lies there, the folder's own settings aside.

    A ``dot-gitattributes`` of a case stands for ``.gitattributes``, which under its own name
    would already change what a clone of this project holds.
    """
    (repository / ".git" / "case-index").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        copy = shutil.copytree(folder, Path(name) / "tree", symlinks=True)
        for found in list(copy.rglob("dot-gitattributes")):
            found.rename(found.with_name(".gitattributes"))
        git(repository, "add", "-A", "-f", ".", work_tree=copy)
        return git(repository, "write-tree").strip()


def make_repository(case: Path, folder: Path) -> str:
    """A repository with the blobs of the base; returns the commit to apply to."""
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "--template=", str(folder)], check=True)
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "attributes").write_text("* -text\n")
    base = tree_of(folder, case / "base")
    target = tree_of(folder, case / "target") if (case / "target").exists() else base
    commit = git(folder, "commit-tree", "-m", "target", target).strip()
    git(folder, "update-ref", "refs/heads/main", commit)
    return commit


def seen(repository: Path) -> dict[str, bytes]:
    """Everything a user has there, objects apart."""
    return {
        path.relative_to(repository).as_posix(): path.read_bytes()
        for path in repository.rglob("*")
        if path.is_file() and "objects" not in path.parts
    }


def series_folder(case: Path, spare: Path) -> Path:
    # git does not keep empty folders.
    folder = case / "series"
    if not folder.exists():
        spare.mkdir()
        return spare
    return folder


def outcome_of(repository: Path, onto: str, series: Path) -> dict[str, Any]:
    """What a strict apply said, in the words of the JSON interface."""
    try:
        report = apply_to_repository(repository, onto, series)
        if report.failure is not None:
            error: Dsv4portError = SeriesConflictError(report)
        else:
            outcomes = [patch.outcome.value for patch in report.patches]
            moved = [outcome for outcome in outcomes if outcome != "exact"]
            return {
                "exit": 0,
                "outcome": moved[-1] if moved else "exact",
                "applied": outcomes,
                "tree": report.tree,
                "commit": report.commit,
                "reason": "",
            }
        failure = report.failure
        assert failure is not None
        return {
            "exit": int(error.exit_code),
            "outcome": failure.outcome.value,
            "failed": failure.key,
            "applied": [patch.outcome.value for patch in report.patches],
            "reason": "\n".join([error.what, *error.details]),
            "fix": error.fix,
        }
    except Dsv4portError as error:
        reason = "\n".join([error.what, *error.details])
        return {"exit": int(error.exit_code), "reason": reason, "fix": error.fix}


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, tmp_path: Path) -> None:
    case = CASES / name
    expect = yaml.safe_load((case / "expect.yaml").read_text("utf-8"))
    assert expect.keys() <= KEYS
    repository = tmp_path / "repository"
    onto = make_repository(case, repository)
    before = seen(repository)

    found = outcome_of(repository, onto, series_folder(case, tmp_path / "empty"))

    allowed = expect["exit"] if isinstance(expect["exit"], list) else [expect["exit"]]
    assert found["exit"] in allowed, found
    for key in ("outcome", "failed", "applied"):
        if key in expect:
            assert found[key] == expect[key], found
    assert expect.get("reason", "") in found["reason"]
    if found["exit"] == 0:
        assert found["tree"] == tree_of(repository, case / "expected")
        git(repository, "fsck", "--strict", "--no-dangling")
        raw = git(repository, "cat-file", "commit", found["commit"])
        head, _, message = raw.partition("\n\n")
        if "message" in expect:
            assert message == expect["message"]
        if "author" in expect:
            assert f"author {expect['author']}" in head.split("\n")
    else:
        assert not (case / "expected").exists(), "a refusal has no result"
    (repository / ".git" / "case-index").unlink(missing_ok=True)
    before.pop(".git/case-index", None)
    assert seen(repository) == before, "references, index and files stay as they were"
    assert not (tmp_path / "evil").exists()
    assert not list((repository / ".git" / "objects" / "pack").glob("tmp_*"))


def command(repository: Path, onto: str, series: Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", "apply", "--repo", str(repository), "--onto", onto,
         "--series", str(series), "--json"],
        capture_output=True, check=False, cwd=repository,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    "name",
    ["place/look-alikes-reordered", "place/scope-is-gone", "atom/third-of-five-conflicts",
     "form/count-too-large", "hostile/git-folder"],
)  # fmt: skip
def test_the_command_says_what_the_library_says(name: str, tmp_path: Path) -> None:
    case = CASES / name
    onto = make_repository(case, tmp_path / "repository")
    found = outcome_of(tmp_path / "repository", onto, case / "series")
    code, answer = command(tmp_path / "repository", onto, case / "series")
    assert code == answer["exit_code"] == found["exit"]
    assert answer.get("outcome") == found.get("outcome")
    assert answer.get("tree", found.get("tree")) == found.get("tree") or code != 0
    assert [row["outcome"] for row in answer.get("patches", [])] == found.get("applied", [])


def test_a_folder_inside_another_repository_is_refused(tmp_path: Path) -> None:
    """git would find the outer repository, apply nothing to the folder, and end with 0."""
    case = CASES / "false-applied" / "two-edits-of-one-line"
    outer = tmp_path / "outer"
    onto = make_repository(case, outer)
    inner = outer / "vendored"
    inner.mkdir()
    (inner / "f.py").write_bytes((case / "base" / "f.py").read_bytes())
    found = outcome_of(inner, onto, case / "series")
    assert found["exit"] == 5
    assert "not a git repository itself" in found["reason"]


def test_settings_of_user_and_repository_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES / "place" / "look-alikes-reordered"
    onto = make_repository(case, tmp_path / "plain")
    expected = outcome_of(tmp_path / "plain", onto, case / "series")
    make_repository(case, tmp_path / "hostile")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("reference-transaction", "post-index-change", "pre-commit", "fsmonitor"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
        (hooks / hook).chmod(0o755)
    settings = (
        "[diff]\n noprefix = true\n mnemonicPrefix = true\n external = false\n context = 0\n"
        f"[core]\n autocrlf = true\n eol = crlf\n hooksPath = {hooks}\n"
        f" fsmonitor = {hooks}/fsmonitor\n quotePath = false\n abbrev = 4\n"
        "[commit]\n gpgsign = true\n[user]\n name = Someone Else\n signingkey = X\n"
        "[alias]\n rev-parse = !false\n cat-file = !false\n[i18n]\n commitEncoding = latin1\n"
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(settings)
    with (tmp_path / "hostile" / ".git" / "config").open("a") as config:
        config.write(settings)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "plain" / ".git"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.autocrlf=true'")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert outcome_of(tmp_path / "hostile", onto, case / "series") == expected
    assert not (tmp_path / "ran").exists()
