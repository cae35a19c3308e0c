"""The shared folder: where it is, who may write, what prune takes away."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import EnvironmentProblemError
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.files import unwritable
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.records import Record, read_record

RECORD = Record("v1.0", "sdist", "a" * 40, "b" * 40, "c" * 40, sha256="d" * 64)


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = Path(os.environ["HOME"])
    assert Cache.locate().folder == home / ".cache" / "dsv4port"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert Cache.locate().folder == home / ".cache" / "dsv4port"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache.locate().folder == tmp_path / "xdg" / "dsv4port"
    monkeypatch.setenv("DSV4PORT_CACHE", "~/mine")
    assert Cache.locate().folder == home / "mine"
    assert not list(home.iterdir()), "looking must create nothing"


def test_the_store_is_a_plain_bare_repository(cache: Cache) -> None:
    Path(os.environ["HOME"], ".gitconfig").write_text(
        "[init]\n\tdefaultObjectFormat = sha256\n\tdefaultRefFormat = reftable\n"
    )
    cache.create_store()
    cache.create_store()
    settings = (cache.store / "config").read_text()
    assert "bare = true" in settings
    assert "sha256" not in settings
    assert not (cache.store / "hooks").exists()
    assert not (cache.folder / "staging" / "store.git").exists()


def test_a_half_made_store_is_made_again(cache: Cache) -> None:
    (cache.folder / "staging" / "store.git" / "refs").mkdir(parents=True)
    cache.store.mkdir(parents=True)
    cache.create_store()
    assert (cache.store / "HEAD").is_file()


def test_a_cache_that_cannot_be_written(tmp_path: Path, sample: Any) -> None:
    (tmp_path / "file").write_text("")
    archive = tmp_path / sample.filename
    archive.write_bytes(sample.data)
    with pytest.raises(EnvironmentProblemError) as caught:
        ensure_pin(sample.pin, Cache(tmp_path / "file" / "cache"), from_path=archive)
    assert caught.value.fix is not None
    assert "DSV4PORT_CACHE" in caught.value.fix


def test_a_full_disk_says_so() -> None:
    error = unwritable(Path("/x"), OSError(errno.ENOSPC, "No space left on device"))
    assert error.fix is not None
    assert "space" in error.fix


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"format": None}, {"extra": "x"}, {"commit": 5}, {"shallow": "no"},
        {"pin": None}, {"sha256": 1}, {"pack": "../../x"}, {"commit": "--all"},
    ],
)  # fmt: skip
def test_records_of_another_kind_are_not_used(tmp_path: Path, change: dict[str, object]) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(RECORD.encode())
    assert read_record(file) == RECORD
    file.write_text(json.dumps({**json.loads(RECORD.encode()), **change}))
    assert read_record(file) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"{}", b'{"format": 1}'])
def test_damaged_records_are_not_used(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(content)
    assert read_record(file) is None
    assert read_record(tmp_path / "missing.json") is None


def test_a_lock_is_waited_for_and_said_so(cache: Cache, progress: Any) -> None:
    order: list[str] = []
    held = threading.Event()

    def first() -> None:
        with cache.lock("key", what="working"):
            held.set()
            time.sleep(0.1)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with cache.lock("key", what="working", progress=progress):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert progress.notices == ["waiting for another dsv4port that is working"]


DAY = 86400


def set_age(path: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


@pytest.fixture
def filled(cache: Cache, sample: Any, upstream: Any, tmp_path: Path) -> Cache:
    """A cache with an sdist import, a git import, a download and leftovers."""
    archive = tmp_path / sample.filename
    archive.write_bytes(sample.data)
    ensure_pin(sample.pin, cache, from_path=archive)
    ensure_pin(upstream.pin(tag="v1.0"), cache, source="git")
    (cache.folder / "staging" / "v9-sdist").mkdir()
    (cache.folder / "staging" / "v9-sdist" / "tmp_pack").write_bytes(b"x" * 1000)
    given_up = cache.folder / "downloads" / ("e" * 64)
    given_up.mkdir()
    (given_up / "a.tar.gz.part").write_bytes(b"x" * 500)
    set_age(given_up / "a.tar.gz.part", 8)
    return cache


def leftovers(sample: Any) -> set[str]:
    return {"staging/v9-sdist", f"downloads/{'e' * 64}", f"downloads/{sample.sha256}"}


def test_prune_alone_keeps_every_import(filled: Cache, sample: Any) -> None:
    """Another project that shares the cache may have a pin that this one has not."""
    for file in (filled.folder / "pins").iterdir():
        set_age(file, 1000)
    both = filled.find("v1.0", "git"), filled.find("v1.0", "sdist")
    assert None not in both
    pruned = filled.prune([sample.pin])
    assert set(pruned.removed) == leftovers(sample)
    assert pruned.freed == len(sample.data) + 1500
    assert (pruned.busy, pruned.unused) == ((), ("pins/v1.0-git",))
    assert (filled.find("v1.0", "git"), filled.find("v1.0", "sdist")) == both
    assert not ensure_pin(sample.pin, filled, deep=True).fetched
    subprocess.run(["git", "--git-dir", str(filled.store), "fsck", "--strict"], check=True)
    assert filled.prune([sample.pin]).removed == ()


def test_unused_imports_go_after_so_many_days(filled: Cache, sample: Any) -> None:
    sdist = filled.find("v1.0", "sdist")
    for file in (filled.folder / "pins").iterdir():
        set_age(file, 29)
    assert set(filled.prune([sample.pin], unused_days=30).removed) == leftovers(sample)
    pruned = filled.prune([sample.pin], unused_days=28)
    assert (pruned.removed, pruned.unused) == (("pins/v1.0-git",), ())
    assert filled.find("v1.0", "sdist") == sdist
    assert filled.find("v1.0", "git") is None
    assert not (filled.store / "shallow").exists()
    packs = sorted(path.suffix for path in (filled.store / "objects/pack").iterdir())
    assert packs == [".idx", ".pack"]
    subprocess.run(["git", "--git-dir", str(filled.store), "fsck", "--strict"], check=True)


def test_use_keeps_an_import(filled: Cache, upstream: Any) -> None:
    pin = upstream.pin(tag="v1.0")
    set_age(filled.record_file("v1.0", "git"), 100)
    assert not ensure_pin(pin, filled, source="git").fetched
    assert "pins/v1.0-git" in filled.prune([], unused_days=1).unused
    assert filled.find("v1.0", "git") is not None


def test_use_of_a_cache_that_cannot_be_written(
    filled: Cache, sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_age(filled.record_file("v1.0", "sdist"), 100)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", read_only)
    assert not ensure_pin(sample.pin, filled).fetched


def test_prune_of_everything(filled: Cache) -> None:
    filled.prune([], unused_days=0)
    assert not list((filled.folder / "pins").iterdir())
    assert not list((filled.store / "objects/pack").iterdir())
    listed = subprocess.run(
        ["git", "--git-dir", str(filled.store), "for-each-ref"], check=True, capture_output=True
    )
    assert listed.stdout == b""


@pytest.mark.parametrize("suffix", [".part", ""])
def test_a_download_that_may_go_on_stays_for_a_week(suffix: str, cache: Cache, sample: Any) -> None:
    folder = cache.download_folder(sample.sha256)
    folder.mkdir(parents=True)
    file = folder / f"{sample.filename}{suffix}"
    file.write_bytes(sample.data[:100])
    set_age(file, 6.9)
    assert cache.prune([]).removed == ()
    set_age(file, 7.1)
    assert cache.prune([sample.pin]).removed == (f"downloads/{sample.sha256}",)
    assert not folder.exists()


def test_a_damaged_record_goes(filled: Cache, sample: Any) -> None:
    filled.record_file("v1.0", "git").write_text("{")
    assert "pins/v1.0-git" in filled.prune([sample.pin]).removed
    assert filled.find("v1.0", "sdist") is not None


def test_what_a_newer_version_wrote_stays(filled: Cache, sample: Any) -> None:
    """It may name packs in a way that this version does not know."""
    record = filled.record_file("v1.0", "git")
    record.write_text('{"format": 2, "packs": ["x"]}')
    set_age(record, 1000)
    packs = sorted((filled.store / "objects/pack").iterdir())
    pruned = filled.prune([], unused_days=0)
    assert "pins/v1.0-sdist" in pruned.removed
    assert "pins/v1.0-git" not in pruned.removed
    assert record.exists()
    assert sorted((filled.store / "objects/pack").iterdir()) == packs


def test_prune_leaves_what_is_in_use(filled: Cache, sample: Any) -> None:
    with filled.lock(filled.import_key("v9", "sdist"), what="importing"):
        pruned = filled.prune([sample.pin])
    assert pruned.busy == ("staging/v9-sdist",)
    assert (filled.folder / "staging/v9-sdist").is_dir()


def test_prune_removes_packs_that_no_record_names(filled: Cache, sample: Any) -> None:
    """As after a kill between the pack and the record."""
    filled.record_file("v1.0", "git").unlink()
    before = len(list((filled.store / "objects/pack").iterdir()))
    filled.prune([sample.pin])
    assert len(list((filled.store / "objects/pack").iterdir())) == before - 2
    assert filled.find("v1.0", "sdist") is not None


def test_links_of_checkouts_outlive_prune(filled: Cache, tmp_path: Path, sample: Any) -> None:
    found = ensure_pin(sample.pin, filled)
    for file in (found.pack, found.index):
        os.link(file, tmp_path / file.name)
    size = found.pack.stat().st_size
    # What a link still holds is not freed.
    assert filled.prune([], unused_days=0).freed < size + len(sample.data) + 3000
    assert (tmp_path / found.pack.name).stat().st_size == size


def test_pins_with_one_archive_share_the_pack(filled: Cache, sample: Any, tmp_path: Path) -> None:
    from dataclasses import replace

    twin = replace(sample.pin, name="v1.0-twin")
    archive = tmp_path / sample.filename
    first = ensure_pin(sample.pin, filled)
    second = ensure_pin(twin, filled, from_path=archive)
    assert (second.commit, second.pack) == (first.commit, first.pack)
    filled.prune([twin], unused_days=0)
    assert filled.find("v1.0", "sdist") is None
    assert not ensure_pin(twin, filled, deep=True).fetched


def test_prune_of_nothing(cache: Cache) -> None:
    assert cache.prune([]).removed == ()
    assert not cache.folder.exists()
