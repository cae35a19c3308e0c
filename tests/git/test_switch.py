"""The switch that is done in the process leaves what git's own would leave, or refuses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv4port.git.index import Index, NotPlainIndexError
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository
from dsv4port.git.switch import Switch, settle_new_files

Content = bytes | str
"""Bytes: a file, executable where they start with ``#!``. Text: the target of a link."""

OLD: dict[str, Content] = {
    "README": b"old\n",
    "run": b"#!/bin/sh\n",
    "link": "README",
    "vllm/a.py": b"a = 1\n",
    "vllm/b.py": b"b = 1\n",
    "vllm/deep/er/c.py": b"c = 1\n",
    "vllm.py": b"x\n",
    "other/same.py": b"same\n",
}


def git(folder: Path, *arguments: str, **environment: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def write(folder: Path, files: dict[str, Content]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
            path.chmod(0o755 if content.startswith(b"#!") else 0o644)


def commit(folder: Path, files: dict[str, Content]) -> str:
    git(folder, "read-tree", "--empty")
    for path in sorted(folder.rglob("*"), reverse=True):
        if ".git" not in path.relative_to(folder).parts:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    write(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "HEAD").strip()


class Pair:
    """A repository with two commits, whose work tree holds the first."""

    def __init__(self, folder: Path, old: dict[str, Content], new: dict[str, Content]) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "-q")
        self.new = commit(folder, new)
        self.old = commit(folder, old)
        self.repository = Repository(folder / ".git", folder / ".git")

    def age(self) -> None:
        """Nothing is racy: every file is older than the index."""
        for path in self.folder.rglob("*"):
            if ".git" not in path.relative_to(self.folder).parts:
                os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
        git(self.folder, "update-index", "--refresh", "-q")

    def trees(self) -> dict[bytes, str]:
        listed = git(self.folder, "ls-tree", "-r", "-t", "-d", self.new).splitlines()
        trees = {line.split("\t")[1].encode(): line.split()[2] for line in listed}
        return {**trees, b"": git(self.folder, "rev-parse", f"{self.new}^{{tree}}").strip()}

    def switch(self, *, trees: bool = True) -> None:
        touched = self.repository.changed_entries(self.old, self.new)
        with (
            ObjectReader(self.repository.git) as reader,
            Switch(self.folder / ".git", self.folder, touched) as switch,
        ):
            known = self.trees() if trees else {}
            switch.run(lambda identifier: reader.read(identifier)[1], known)

    def index_of_git(self, name: str) -> bytes:
        """The cached trees that git itself writes for the new commit."""
        git(self.folder, "read-tree", self.new, GIT_INDEX_FILE=name)
        return _cached_trees((self.folder / ".git" / ".." / name).read_bytes())

    def state(self) -> tuple[bytes, dict[str, Content]]:
        return (self.folder / ".git" / "index").read_bytes(), on_disk(self.folder)


def _cached_trees(data: bytes) -> bytes:
    at = data.rfind(b"TREE\0")
    return data[at + 8 : at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")]


def on_disk(folder: Path) -> dict[str, Content]:
    found: dict[str, Content] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if ".git" in name.parts:
            continue
        if path.is_symlink():
            found[str(name)] = str(path.readlink())
        elif path.is_file():
            executable = bool(path.stat().st_mode & 0o100)
            content = path.read_bytes()
            assert executable == content.startswith(b"#!")
            found[str(name)] = content
    return found


def assert_switched(pair: Pair, new: dict[str, Content]) -> None:
    assert on_disk(pair.folder) == new
    git(pair.folder, "update-ref", "HEAD", pair.new)
    assert git(pair.folder, "status", "--porcelain") == ""
    assert (
        git(pair.folder, "write-tree").strip()
        == git(pair.folder, "rev-parse", f"{pair.new}^{{tree}}").strip()
    )
    git(pair.folder, "fsck", "--strict")
    git(pair.folder, "diff-files", "--quiet")


def test_changed_files_and_cached_trees_as_git_writes_them(tmp_path: Path) -> None:
    new = {**OLD, "vllm/a.py": b"a = 22\n", "vllm/deep/er/c.py": b"#!c\n", "link": "vllm.py"}
    pair = Pair(tmp_path / "r", OLD, new)
    pair.age()
    pair.switch()
    ours = _cached_trees((pair.folder / ".git" / "index").read_bytes())
    assert_switched(pair, new)
    assert ours == pair.index_of_git(str(tmp_path / "index"))


NAMES = st.sampled_from([*OLD, "new", "vllm/new.py", "vllm/deep/new.py", "fresh/x/y.py", "a-b"])
CONTENTS = st.sampled_from([b"1\n", b"", b"#!x\n", b"longer than before\n" * 9, "README", "gone"])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(NAMES, st.none() | CONTENTS, max_size=6), trees=st.booleans())
def test_any_plain_change(
    tmp_path_factory: pytest.TempPathFactory,
    changes: dict[str, Content | None],
    trees: bool,
) -> None:
    new = {name: found for name, found in {**OLD, **changes}.items() if found is not None}
    pair = Pair(tmp_path_factory.mktemp("pair") / "r", OLD, new)
    pair.switch(trees=trees)
    assert_switched(pair, new)
    folders = {str(path.parent) for path in pair.folder.rglob("*")}
    assert all(any(Path(folder).iterdir()) for folder in folders)


def status(pair: Pair) -> str:
    """What git says, without its writing down what it found."""
    return git(pair.folder, "status", "--porcelain", GIT_OPTIONAL_LOCKS="0")


def test_a_file_changed_in_the_second_of_the_index_is_still_seen(tmp_path: Path) -> None:
    new = {**OLD, "vllm/a.py": b"a = 22\n"}
    pair = Pair(tmp_path / "r", OLD, new)
    racy = pair.folder / "other" / "same.py"
    index = pair.folder / ".git" / "index"
    git(pair.folder, "update-index", "--refresh", "-q")
    # Same size, and the time the index has on record: only its content tells.
    before = racy.stat()
    racy.write_bytes(b"SAME\n")
    os.utime(racy, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(index, ns=(before.st_mtime_ns, before.st_mtime_ns))
    data = bytearray(index.read_bytes())
    _forge_change_time(data, b"other/same.py", racy)
    index.write_bytes(data[:-20] + hashlib.sha1(data[:-20]).digest())
    os.utime(index, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert status(pair) == " M other/same.py\n"
    time.sleep(1.1)
    pair.switch()
    git(pair.folder, "update-ref", "HEAD", pair.new)
    assert status(pair) == " M other/same.py\n"


def _forge_change_time(data: bytearray, path: bytes, disk: Path) -> None:
    at = data.index(path + b"\0") - 62
    found = disk.stat()
    data[at : at + 8] = (found.st_ctime_ns // 10**9).to_bytes(4, "big") + (
        found.st_ctime_ns % 10**9
    ).to_bytes(4, "big")


def _staged(pair: Pair) -> None:
    (pair.folder / "vllm/a.py").write_bytes(b"mine\n")
    git(pair.folder, "add", "vllm/a.py")


def _unmerged(pair: Pair) -> None:
    blob = git(pair.folder, "rev-parse", f"{pair.old}:README").strip()
    rows = "".join(f"100644 {blob} {stage}\tmerge\n" for stage in (1, 2, 3))
    subprocess.run(
        ["git", "update-index", "--index-info"], cwd=pair.folder, input=rows.encode(), check=True
    )


def _intend(pair: Pair) -> None:
    (pair.folder / "intended").write_bytes(b"x\n")
    git(pair.folder, "add", "-N", "intended")


def _occupy(pair: Pair) -> None:
    (pair.folder / "new.py").write_bytes(b"mine\n")


def _occupy_by_link(pair: Pair) -> None:
    (pair.folder / "new.py").symlink_to("nowhere")


def _link_a_folder(pair: Pair) -> None:
    (pair.folder / "vllm").rename(pair.folder / "elsewhere")
    (pair.folder / "vllm").symlink_to("elsewhere")


def _break(pair: Pair) -> None:
    file = pair.folder / ".git" / "index"
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)


def _lock(pair: Pair) -> None:
    (pair.folder / ".git" / "index.lock").write_bytes(b"")


@pytest.mark.parametrize(
    "prepare",
    [
        lambda pair: git(pair.folder, "update-index", "--skip-worktree", "vllm/b.py"),
        lambda pair: git(pair.folder, "update-index", "--assume-unchanged", "vllm/a.py"),
        lambda pair: git(pair.folder, "update-index", "--split-index"),
        lambda pair: git(pair.folder, "update-index", "--force-untracked-cache"),
        lambda pair: git(pair.folder, "update-index", "--index-version", "4"),
        _staged, _unmerged, _intend, _occupy, _occupy_by_link, _link_a_folder, _break, _lock,
        lambda pair: (pair.folder / ".git" / "index").unlink(),
    ],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_is_left_alone(tmp_path: Path, prepare: object) -> None:
    pair = Pair(tmp_path / "r", OLD, {**OLD, "vllm/a.py": b"a = 22\n", "new.py": b"new\n"})
    assert callable(prepare)
    prepare(pair)
    index = pair.folder / ".git" / "index"
    before = index.read_bytes() if index.exists() else None, on_disk(pair.folder)
    locked = index.with_name("index.lock").exists()
    with pytest.raises(NotPlainIndexError):
        pair.switch()
    assert (index.read_bytes() if index.exists() else None, on_disk(pair.folder)) == before
    assert index.with_name("index.lock").exists() == locked


@pytest.mark.parametrize(
    "new",
    [
        {**{k: v for k, v in OLD.items() if k != "vllm.py"}, "vllm.py/x": b"x\n"},
        {**{k: v for k, v in OLD.items() if not k.startswith("other/")}, "other": b"x\n"},
    ],
)
def test_a_file_that_becomes_a_folder_is_left_to_git(
    tmp_path: Path, new: dict[str, Content]
) -> None:
    pair = Pair(tmp_path / "r", OLD, new)
    before = pair.state()
    with pytest.raises(NotPlainIndexError):
        pair.switch()
    assert pair.state() == before


def test_a_hard_link_elsewhere_keeps_its_content(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "r", OLD, {**OLD, "README": b"new\n"})
    (tmp_path / "kept").hardlink_to(pair.folder / "README")
    pair.switch()
    assert (tmp_path / "kept").read_bytes() == b"old\n"


def test_new_files_are_settled(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "r", OLD, OLD)
    git(pair.folder, "read-tree", "HEAD")
    git(pair.folder, "update-index", "--refresh", "-q")
    trees = _cached_trees((pair.folder / ".git" / "index").read_bytes())
    settle_new_files(pair.folder / ".git", pair.folder)
    index = Index(pair.folder / ".git")
    assert index.racy() == {}
    index.release()
    assert _cached_trees((pair.folder / ".git" / "index").read_bytes()) == trees
    assert status(pair) == ""
    # Same size, moments later: git sees it, although it trusts the times now.
    (pair.folder / "README").write_bytes(b"OLD\n")
    assert status(pair) == " M README\n"
