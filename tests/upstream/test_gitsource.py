"""Pins from git repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import BadInputError, HashMismatchError, NetworkError, UnsafePathError
from dsv4port.manifest.pins import GitSource, Pin
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.git_address import MIRROR_VARIABLE
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.records import read_record


def git(store: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "--git-dir", str(store), *arguments], check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def test_an_annotated_tag_is_peeled_and_noted(upstream: Any, cache: Cache) -> None:
    pin = upstream.pin(tag="v1.0")
    found = ensure_pin(pin, cache)
    assert found.commit == upstream.git("rev-parse", "v1.0^{commit}")
    assert found.tree == upstream.git("rev-parse", "v1.0^{tree}")
    assert (found.source, found.fetched, found.recorded, found.shallow) == (
        "git", True, False, True,
    )  # fmt: skip
    record = read_record(cache.record_file("v1.0", "git"))
    assert record is not None
    assert record.tag_object == upstream.git("rev-parse", "v1.0")
    assert git(cache.store, "rev-parse", "refs/pins/v1.0/git") == found.commit


def test_the_pack_is_whole_and_holds_nothing_else(
    upstream: Any, cache: Cache, tmp_path: Path
) -> None:
    found = ensure_pin(upstream.pin(tag="v1.0"), cache)
    assert git(cache.store, "log", "--format=%H", "refs/pins/v1.0/git") == found.commit
    git(cache.store, "fsck", "--strict")
    # Taken over alone it gives the whole tree.
    other = tmp_path / "other.git"
    subprocess.run(["git", "init", "-q", "--bare", str(other)], check=True)
    for file in (found.pack, found.index):
        os.link(file, other / "objects/pack" / file.name)
    (other / "shallow").write_text(f"{found.commit}\n")
    listed = git(other, "ls-tree", "-r", "--name-only", found.commit).split()
    assert listed == ["a.py", "sub/b.py"]
    assert git(other, "show", f"{found.commit}:a.py") == "a = 2"
    git(other, "fsck", "--strict", found.commit)
    assert len(git(other, "cat-file", "--batch-all-objects", "--batch-check").splitlines()) == 5


def test_a_root_commit_is_not_shallow(upstream: Any, cache: Cache) -> None:
    first = upstream.git("rev-list", "--max-parents=0", "HEAD")
    found = ensure_pin(upstream.pin(commit=first), cache)
    assert not found.shallow
    assert not (cache.store / "shallow").exists()
    git(cache.store, "fsck", "--strict")


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_commit_that_no_tag_names(upstream: Any, cache: Cache, scheme: str) -> None:
    commit = upstream.git("rev-parse", "HEAD~2")
    source = GitSource(url=f"{scheme}{upstream.folder}", commit=commit)
    assert ensure_pin(Pin(name="v1.0", git=source), cache).commit == commit  # type: ignore[arg-type]


def test_a_server_that_refuses_single_commits(
    upstream: Any, cache: Cache, progress: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 0 without allowReachableSHA1InWant."""
    home = Path(os.environ["HOME"])
    (home / ".gitconfig").write_text("[protocol]\n\tversion = 0\n")
    commit = upstream.git("rev-parse", "HEAD~1")
    found = ensure_pin(upstream.pin(commit=commit), cache, progress=progress)
    assert found.commit == commit
    assert any("history" in notice for notice in progress.notices)
    assert git(cache.store, "rev-list", "--count", commit) == "1"
    git(cache.store, "fsck", "--strict")


def test_a_commit_that_is_nowhere(upstream: Any, cache: Cache) -> None:
    with pytest.raises(NetworkError, match="1234" * 10):
        ensure_pin(upstream.pin(commit="1234" * 10), cache)
    assert cache.find("v1.0", "git") is None


def test_a_moved_tag_names_both(upstream: Any, cache: Cache) -> None:
    old = upstream.git("rev-parse", "v1.0^{commit}")
    upstream.git("tag", "-f", "-a", "-m", "again", "v1.0", "HEAD")
    new = upstream.git("rev-parse", "HEAD")
    with pytest.raises(HashMismatchError) as caught:
        ensure_pin(upstream.pin(tag="v1.0", commit=old), cache)
    assert old in caught.value.what
    assert new in caught.value.what
    with pytest.raises(HashMismatchError) as caught:
        ensure_pin(upstream.pin(tag="v1.0", commit_prefix=old[:9]), cache)
    assert old[:9] in caught.value.what
    assert new in caught.value.what
    assert cache.find("v1.0", "git") is None
    assert not list((cache.folder / "staging").iterdir())


def test_a_tag_that_is_gone_leaves_the_commit(upstream: Any, cache: Cache, progress: Any) -> None:
    commit = upstream.git("rev-parse", "v1.0^{commit}")
    upstream.git("tag", "-d", "v1.0")
    found = ensure_pin(upstream.pin(tag="v1.0", commit=commit), cache, progress=progress)
    assert found.commit == commit
    assert any("no tag v1.0" in notice for notice in progress.notices)
    with pytest.raises(NetworkError, match=r"v1\.1"):
        ensure_pin(upstream.pin(tag="v1.1"), cache)


def test_a_branch_of_that_name_is_no_tag(upstream: Any, cache: Cache) -> None:
    upstream.git("branch", "v2.0")
    with pytest.raises(NetworkError):
        ensure_pin(upstream.pin(tag="v2.0"), cache)


def test_a_tag_of_a_tree_is_refused(upstream: Any, cache: Cache) -> None:
    upstream.git("tag", "tree", "HEAD^{tree}")
    with pytest.raises(BadInputError, match="no commit"):
        ensure_pin(upstream.pin(tag="tree"), cache)


def test_a_recorded_tree_is_compared(upstream: Any, cache: Cache) -> None:
    tree = upstream.git("rev-parse", "v1.0^{tree}")
    with pytest.raises(HashMismatchError) as caught:
        ensure_pin(upstream.pin(tag="v1.0", tree="0" * 40), cache)
    assert tree in caught.value.what
    assert "0" * 40 in caught.value.what
    assert cache.find("v1.0", "git") is None
    assert ensure_pin(upstream.pin(tag="v1.0", tree=tree), cache).recorded


def test_mirrors_stand_in(
    upstream: Any, cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = GitSource(url="https://forge.invalid/p.git", tag="v1.0")
    pin = Pin(name="v1.0", git=source)  # type: ignore[arg-type]
    mirror = f"https://forge.invalid/p.git={upstream.folder}"
    found = ensure_pin(pin, cache, mirror=mirror)
    assert found.fetched
    assert not ensure_pin(pin, cache).fetched
    monkeypatch.setenv(MIRROR_VARIABLE, str(upstream.folder))
    assert ensure_pin(pin, Cache(tmp_path / "second")).commit == found.commit
    monkeypatch.delenv(MIRROR_VARIABLE)
    third = Cache(tmp_path / "third")
    assert ensure_pin(pin, third, from_path=upstream.folder).commit == found.commit


def test_the_users_insteadof_counts_but_runs_nothing(
    upstream: Any, cache: Cache, tmp_path: Path
) -> None:
    home = Path(os.environ["HOME"])
    pin = Pin(name="v1.0", git=GitSource(url="https://forge.invalid/p.git", tag="v1.0"))  # type: ignore[arg-type]
    (home / ".gitconfig").write_text(
        f'[url "{upstream.folder}"]\n\tinsteadOf = https://forge.invalid/p.git\n'
    )
    assert ensure_pin(pin, cache).fetched
    touched = tmp_path / "touched"
    (home / ".gitconfig").write_text(
        f'[url "ext::touch {touched} "]\n\tinsteadOf = https://forge.invalid/p.git\n'
        '[protocol "ext"]\n\tallow = always\n'
    )
    with pytest.raises(NetworkError):
        ensure_pin(pin, Cache(tmp_path / "second"))
    assert not touched.exists()


def test_an_unreachable_repository(cache: Cache, new_server: Any) -> None:
    gone = new_server()
    gone.close()
    url = f"http://user:secret@127.0.0.1:{gone.port}/p.git"
    with pytest.raises(NetworkError) as caught:
        ensure_pin(Pin(name="v1.0", git=GitSource(url=url, tag="v1.0")), cache)  # type: ignore[arg-type]
    assert caught.value.details
    assert caught.value.fix is not None
    assert "DSV4PORT_GIT_MIRROR" in caught.value.fix
    assert "secret" not in f"{caught.value} {caught.value.details}"


def test_progress_of_git_is_passed_on(upstream: Any, cache: Cache, progress: Any) -> None:
    ensure_pin(upstream.pin(tag="v1.0"), cache, progress=progress)
    assert any("objects" in label for label in progress.labels)
    assert progress.done == progress.totals
    assert not progress.open


@pytest.mark.parametrize("name", [".git", "..", ".GIT", "git~1"])
def test_a_tree_with_an_unsafe_path(upstream: Any, cache: Cache, name: str) -> None:
    blob = upstream.git("hash-object", "-w", "--stdin", stdin=b"x")
    raw = b"100644 " + name.encode() + b"\0" + bytes.fromhex(blob)
    tree = upstream.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)
    upstream.git("tag", "evil", upstream.git("commit-tree", "-m", "x", tree))
    with pytest.raises(UnsafePathError):
        ensure_pin(upstream.pin(tag="evil"), cache)
    assert cache.find("v1.0", "git") is None


def test_a_tree_that_writes_through_a_link(upstream: Any, cache: Cache) -> None:
    blob = bytes.fromhex(upstream.git("hash-object", "-w", "--stdin", stdin=b"/tmp"))
    inner = bytes.fromhex(
        upstream.git("mktree", stdin=b"100644 blob " + blob.hex().encode() + b"\tb\n")
    )
    raw = b"120000 a\0" + blob + b"40000 a\0" + inner
    tree = upstream.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw)
    upstream.git("tag", "evil", upstream.git("commit-tree", "-m", "x", tree))
    with pytest.raises(UnsafePathError, match="through"):
        ensure_pin(upstream.pin(tag="evil"), cache)


def test_links_and_modes_come_along(upstream: Any, cache: Cache) -> None:
    (upstream.folder / "link").symlink_to("a.py")
    (upstream.folder / "run.sh").write_text("#!/bin/sh\n")
    (upstream.folder / "run.sh").chmod(0o755)
    commit = upstream.commit({})
    found = ensure_pin(upstream.pin(commit=commit), cache)
    listed = git(cache.store, "ls-tree", found.tree)
    assert "120000 blob" in listed
    assert "100755 blob" in listed
