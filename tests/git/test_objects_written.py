"""What the git room writes is what git itself would have written."""

from __future__ import annotations

import importlib
import subprocess
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.synthetic import git

from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE, Entry, ObjectKind
from dsv4port.git.pack import PackWriter
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import open_repository
from dsv4port.git.tree import PathConflictError, TreeEditor

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    git(folder, "hash-object", "-w", "-t", "tree", "--stdin", stdin=b"")
    return folder


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20), st.integers(0, 9))
def test_a_pack_holds_what_git_would_store(
    empty_repository: Path, blobs: list[bytes], level: int
) -> None:
    opened = open_repository(empty_repository)
    with PackWriter(opened.objects, compression=level) as writer:
        ids = [writer.add(ObjectKind.BLOB, data) for data in blobs]
        assert [writer.read(identifier) for identifier in ids] == blobs
        pack = writer.finish()
    assert pack is not None
    assert pack.count == len(set(blobs))
    git(empty_repository, "verify-pack", str(pack.index))
    for identifier, data in zip(ids, blobs, strict=True):
        assert git(empty_repository, "hash-object", "--stdin", stdin=data) == identifier
    with ObjectReader(opened.git) as reader:
        assert [data for _, data in reader.read_many(ids)] == blobs
    git(empty_repository, "fsck", "--strict", "--no-dangling")


def test_an_unfinished_pack_leaves_nothing(empty_repository: Path) -> None:
    folder = empty_repository / ".git" / "objects" / "pack"
    before = sorted(folder.iterdir())
    with PackWriter(folder.parent) as writer:
        writer.add(ObjectKind.BLOB, b"never seen")
    assert sorted(folder.iterdir()) == before


names = st.sampled_from([b"a", b"a.b", b"a-b", b"a0", b"b", b"\xff", b"A", b"a b"])
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)
edits = st.lists(
    st.tuples(paths, st.sampled_from([MODE_FILE, MODE_EXECUTABLE, None]), st.binary(max_size=3)),
    min_size=1, max_size=25,
)  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(edits)
def test_an_edited_tree_is_the_one_of_git(
    empty_repository: Path, edits: list[tuple[bytes, int | None, bytes]]
) -> None:
    opened = open_repository(empty_repository)
    files: dict[bytes, Entry] = {}
    with PackWriter(opened.objects) as pack, ObjectReader(opened.git) as reader:
        editor = TreeEditor(EMPTY_TREE, lambda identifier: reader.read(identifier)[1])
        for path, mode, data in edits:
            if mode is None:
                if path in files:
                    editor.remove(path)
                    del files[path]
                continue
            entry = Entry(mode, pack.add(ObjectKind.BLOB, data))
            above = any(path.startswith(known + b"/") for known in files)
            below = any(known.startswith(path + b"/") for known in files)
            if above or below:
                with pytest.raises(PathConflictError):
                    editor.put(path, entry)
                continue
            editor.put(path, entry)
            files[path] = entry
        written = editor.write(pack)
        assert dict(editor.walk()) == files
        assert {path: editor.get(path) for path in files} == files
        pack.finish()
    rows = b"".join(
        b"%06o %s\t%s\0" % (entry.mode, entry.id.encode(), path) for path, entry in files.items()
    )
    index = str(empty_repository / "case-index")
    Path(index).unlink(missing_ok=True)
    git(empty_repository, "update-index", "-z", "--index-info", stdin=rows, GIT_INDEX_FILE=index)
    assert git(empty_repository, "write-tree", GIT_INDEX_FILE=index) == written


def test_a_folder_inside_a_repository_is_not_that_repository(empty_repository: Path) -> None:
    from dsv4port.errors import BadInputError

    inner = empty_repository / "inner"
    inner.mkdir(exist_ok=True)
    with pytest.raises(BadInputError, match="not a git repository itself"):
        open_repository(inner)


def gitpython_package() -> ModuleType:
    """GitPython, an oracle of its own; without it this test fails instead of being skipped.

    A plain import finds the folder of these tests as a namespace package where it is missing.
    """
    package = importlib.import_module("git")
    assert package.__file__ is not None and "site-packages" in package.__file__, package
    assert package.__version__ == version("gitpython")
    return package


def test_gitpython_reads_what_was_written(empty_repository: Path) -> None:
    gitpython = gitpython_package()
    opened = open_repository(empty_repository)
    with PackWriter(opened.objects) as pack, ObjectReader(opened.git) as reader:
        editor = TreeEditor(EMPTY_TREE, lambda identifier: reader.read(identifier)[1])
        editor.put(b"d/x.py", Entry(MODE_EXECUTABLE, pack.add(ObjectKind.BLOB, b"x\r\n")))
        tree = editor.write(pack)
        pack.finish()
    repository = gitpython.Repo(empty_repository)
    found = gitpython.Tree(repository, bytes.fromhex(tree), 0o040000, "")["d/x.py"]
    assert (found.mode, found.data_stream.read()) == (MODE_EXECUTABLE, b"x\r\n")


def test_a_hostile_environment_reaches_no_git(
    empty_repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.autocrlf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    opened = open_repository(empty_repository)
    assert opened.git_dir == (empty_repository / ".git").resolve()
    assert opened.git.run("config", "--get", "core.autocrlf").text == "false"
    assert opened.git.run("config", "--get", "diff.noprefix").text == "false"
    plain = subprocess.run(["git", "config", "core.autocrlf"], capture_output=True, check=False)
    assert plain.stdout == b"true\n", "the environment of this test has to be a hostile one"
