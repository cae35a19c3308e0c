"""Every commit of an applied stack is a tree that could be used: a bisection may stop anywhere."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PIN = "refs/dsv4port/pin"


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", tree, *arguments], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def commits(vllm_tree: Path) -> list[str]:
    """The stack in the checkout, one commit a patch, in the order of application."""
    found = git(vllm_tree, "rev-list", "--reverse", f"{PIN}..HEAD").split()
    assert found
    return found


def changed_python(tree: Path, commit: str) -> Iterator[tuple[str, str]]:
    """Path and content of each Python file that a commit changes or adds."""
    listed = git(tree, "diff-tree", "-r", "--diff-filter=d", "--name-only", f"{commit}^", commit)
    for path in listed.splitlines():
        if path.endswith(".py"):
            yield path, git(tree, "show", f"{commit}:{path}")


def imports_of_vllm(source: str) -> set[str]:
    """Modules named in `import vllm.a` and `from vllm.a import b`, anywhere in a file."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name for name in names if name.split(".")[0] == "vllm"}


def test_every_changed_file_parses_after_every_patch(vllm_tree: Path, commits: list[str]) -> None:
    seen = 0
    for commit in commits:
        for path, source in changed_python(vllm_tree, commit):
            # The oldest Python that vLLM runs on.
            ast.parse(source, f"{path} at {commit}", feature_version=(3, 10))
            seen += 1
    assert seen >= len(commits)


def test_no_patch_imports_what_only_a_later_one_adds(vllm_tree: Path, commits: list[str]) -> None:
    on_pin = set(git(vllm_tree, "ls-tree", "-r", "--name-only", PIN).splitlines())
    for commit in commits:
        there = set(git(vllm_tree, "ls-tree", "-r", "--name-only", commit).splitlines())
        for path, source in changed_python(vllm_tree, commit):
            new = imports_of_vllm(source)
            if path in on_pin:
                # What upstream imports itself may be built, not shipped.
                new -= imports_of_vllm(git(vllm_tree, "show", f"{PIN}:{path}"))
            for name in new:
                file = name.replace(".", "/")
                assert {f"{file}.py", f"{file}/__init__.py"} & there, f"{path} at {commit}: {name}"
