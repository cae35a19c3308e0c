"""Nothing more can be written, at whatever point: the machine's fault, named, and nothing lost.

A limit on the size of files stands for the full disk, which only root could make.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.synthetic import DEMO_FILES, Result, SyntheticProject, demo_result, git, tree_id


def limited(project: SyntheticProject, kibibytes: int, *arguments: str) -> Result:
    """Run the program with a limit of so many KiB for every file it or its git writes."""
    script = f'ulimit -f {kibibytes} && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-m", "dsv4port", *arguments],
        cwd=project.root, env=project.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("source", ["download", "--from"])
def test_fetch(source: str, demo: SyntheticProject) -> None:
    archive = demo.archives / "vllm-1.0.0.tar.gz"
    assert archive.stat().st_size > 1024
    arguments = ["fetch", "v1.0.0", *(["--from", str(archive)] if source == "--from" else [])]
    result = limited(demo, 1, *arguments)
    assert result.code == 6, result
    assert result.err.startswith(f"error: cannot write to the cache: {demo.cache}/")
    assert "→ " in result.err and "DSV4PORT_CACHE" in result.err
    assert "in the cache" not in demo.succeed("list", "pins").out
    row = demo.run(*arguments, "--json").json["pins"][0]
    assert (row["fetched"], row["tree"]) == (True, tree_id(DEMO_FILES))


@pytest.mark.parametrize("force", [False, True])
def test_apply_to_a_checkout(force: bool, locked: SyntheticProject) -> None:
    """The result is the old state, the new one, or one that the next command finishes."""
    locked.succeed("reset", "v1.0.0")
    arguments = ["apply", "demo", *(["--force"] if force else [])]
    codes = []
    for kibibytes in (0, 1, 2, 3, 4, 6, 9):
        if force:
            (locked.checkout / "notes.txt").write_text("mine\n")
        result = limited(locked, kibibytes, *arguments)
        codes.append(result.code)
        assert result.code in (0, 6), result
        if result.code == 6:
            assert "\n→ " in result.err, result
            assert "internal" not in result.err
            packs = locked.checkout / ".git" / "objects" / "pack"
            assert list(packs.glob("tmp_*")) == [], "each try would make the disk fuller"
            # What was there is there still, on disk or saved.
            saved = git(locked.checkout, "for-each-ref", "--format=%(refname)", "refs/dsv4port")
            notes = locked.checkout / "notes.txt"
            assert not force or notes.exists() or "recovery" in saved
    assert 6 in codes
    locked.succeed(*arguments)
    locked.succeed("verify", "--deep")
    assert git(locked.checkout, "rev-parse", "HEAD^{tree}") == tree_id(demo_result())


def test_the_first_apply_leaves_no_half_checkout(locked: SyntheticProject) -> None:
    codes = []
    for kibibytes in (0, 1, 2, 4):
        result = limited(locked, kibibytes, "apply", "demo")
        codes.append(result.code)
        assert result.code in (0, 6), result
        assert "\n→ " in result.err or result.code == 0
        left = [path.name for path in Path(locked.checkout.parent).glob(".*.new-*")]
        assert left == [], result
    assert 6 in codes
    locked.succeed("apply", "demo")
    locked.succeed("verify", "--deep")
