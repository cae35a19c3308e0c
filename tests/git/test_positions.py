"""References are read from their files as git reads them, or by git."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4port.git import positions as module
from dsv4port.git.positions import positions

NAMES = ("refs/heads/dsv4port", "refs/dsv4port/published", "refs/dsv4port/pin")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "r"
    git(tmp_path, "init", "-q", "-b", "dsv4port", str(folder))
    for name in ("one", "two"):
        git(folder, "commit", "-q", "--allow-empty", "-m", name)
    git(folder, "update-ref", "refs/dsv4port/published", "HEAD")
    git(folder, "update-ref", "refs/dsv4port/pin", "HEAD~1")
    return folder


def _pack_then_move(folder: Path) -> None:
    git(folder, "pack-refs", "--all")
    git(folder, "commit", "-q", "--allow-empty", "-m", "three")


CASES: dict[str, Callable[[Path], object]] = {
    "loose": lambda folder: None,
    "packed": lambda folder: git(folder, "pack-refs", "--all"),
    "packed, then moved": _pack_then_move,
    "detached": lambda folder: git(folder, "checkout", "-q", "HEAD~1"),
    "another branch": lambda folder: git(folder, "checkout", "-q", "-b", "feature/größe"),
    "an unborn branch": lambda folder: git(folder, "symbolic-ref", "HEAD", "refs/heads/none"),
    "no pin": lambda folder: git(folder, "update-ref", "-d", "refs/dsv4port/pin"),
    "a reference in the way": lambda folder: git(
        folder, "symbolic-ref", "HEAD", "refs/heads/dsv4port/below"
    ),
    "an annotated tag packed": lambda folder: (
        git(folder, "tag", "-a", "-m", "x", "v1"),
        git(folder, "pack-refs", "--all"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_as_git_reads_them(repository: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    CASES[case](repository)
    expected = module._from_git(repository / ".git", NAMES)
    monkeypatch.setattr(module, "_from_git", None)
    assert positions(repository / ".git", NAMES) == expected
    assert "HEAD" in expected or case in ("an unborn branch", "a reference in the way")


ODD: dict[str, Callable[[Path], object]] = {
    "a symbolic reference": lambda folder: git(
        folder, "symbolic-ref", "refs/dsv4port/published", "refs/heads/dsv4port"
    ),
    "no id": lambda folder: (folder / ".git/refs/dsv4port/pin").write_text("not an id\n"),
    "a reference table": lambda folder: (folder / ".git/reftable").mkdir(),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_left_to_git(
    repository: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ODD[case](repository)
    asked = []
    from_git = module._from_git
    monkeypatch.setattr(module, "_from_git", lambda *a: asked.append(a) or from_git(*a))
    found = positions(repository / ".git", NAMES)
    assert len(asked) == 1
    assert found["refs/heads/dsv4port"] == git(repository, "rev-parse", "HEAD")
