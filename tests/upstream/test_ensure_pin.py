"""From a pin to its commit: once, by everybody at once, after a kill, and never wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import (
    BadInputError,
    EnvironmentProblemError,
    HashMismatchError,
    NetworkError,
)
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin, ensure_pin


@pytest.fixture
def index(server: Any, reply: Any, sample: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package index with the sample; the environment points to it."""
    body = f'<a href="/f/{sample.filename}#sha256={sample.sha256}">x</a>'.encode()
    server.serve("/simple/toy/", reply(body, headers={"Content-Type": "text/html"}))
    server.serve_file(f"/f/{sample.filename}", sample.data)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    return server


@pytest.fixture
def archive(tmp_path: Path, sample: Any) -> Path:
    file = tmp_path / "given" / sample.filename
    file.parent.mkdir()
    file.write_bytes(sample.data)
    return file


def test_from_the_index_then_from_the_store(index: Any, sample: Any, cache: Cache) -> None:
    first = ensure_pin(sample.pin, cache)
    assert (first.name, first.source, first.tree) == ("v1.0", "sdist", sample.tree)
    assert (first.fetched, first.recorded, first.shallow) == (True, True, False)
    assert first.pack.is_file()
    assert first.index.is_file()
    asked = len(index.requests)
    assert ensure_pin(sample.pin, cache) == replace(first, fetched=False)
    assert len(index.requests) == asked


def test_the_commit_is_the_same_everywhere(
    index: Any, sample: Any, tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure_pin(sample.pin, Cache(tmp_path / "one"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    second = ensure_pin(sample.pin, Cache(tmp_path / "two"), from_path=archive)
    assert first.commit == second.commit
    subprocess.run(["tar", "xzf", archive, "--no-same-owner"], cwd=tmp_path, check=True)
    third = ensure_pin(sample.pin, Cache(tmp_path / "three"), from_path=tmp_path / "toy-1.0")
    assert first.commit == third.commit
    # The value itself is an interface: locks of other machines name it.
    assert first.commit == subprocess.run(
        ["git", "hash-object", "-t", "commit", "--stdin"],
        input=(
            f"tree {sample.tree}\n"
            "author dsv4port <dsv4port@dsv4port.invalid> 0 +0000\n"
            "committer dsv4port <dsv4port@dsv4port.invalid> 0 +0000\n\n"
            f"toy 1.0 (sdist)\n\nsha256: {sample.sha256}\n"
        ).encode(),
        check=True,
        capture_output=True,
    ).stdout.decode().strip()  # fmt: skip


def test_a_wrong_tree_registers_nothing(sample: Any, cache: Cache, archive: Path) -> None:
    assert sample.pin.sdist is not None
    wrong = replace(sample.pin, sdist=replace(sample.pin.sdist, tree="0" * 40))
    with pytest.raises(HashMismatchError) as caught:
        ensure_pin(wrong, cache, from_path=archive)
    assert sample.tree in caught.value.what
    assert "0" * 40 in caught.value.what
    assert not (cache.folder / "pins").exists()
    assert not cache.store.exists()
    assert not list((cache.folder / "staging").iterdir())
    # The same for a pin that was imported when nothing was recorded.
    unrecorded = replace(sample.pin, sdist=replace(sample.pin.sdist, tree=None))
    assert not ensure_pin(unrecorded, cache, from_path=archive).recorded
    with pytest.raises(HashMismatchError):
        ensure_pin(wrong, cache)
    assert ensure_pin(sample.pin, cache).recorded


def test_a_wrong_archive_is_not_looked_into(
    sample: Any, cache: Cache, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write_bytes(sample.data + b"\0")

    def look(*_: object, **__: object) -> None:
        raise AssertionError("looked into an archive with a wrong hash")

    monkeypatch.setattr("dsv4port.upstream.sdist.import_archive", look)
    with pytest.raises(HashMismatchError, match=sample.sha256):
        ensure_pin(sample.pin, cache, from_path=archive)


def test_a_wrong_given_archive_is_named_although_not_needed(
    sample: Any, cache: Cache, archive: Path, tmp_path: Path
) -> None:
    ensure_pin(sample.pin, cache, from_path=archive)
    assert not ensure_pin(sample.pin, cache, from_path=archive).fetched
    archive.write_bytes(b"something else")
    with pytest.raises(HashMismatchError):
        ensure_pin(sample.pin, cache, from_path=archive)
    with pytest.raises(EnvironmentProblemError):
        ensure_pin(sample.pin, cache, from_path=tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    with pytest.raises(HashMismatchError):
        ensure_pin(sample.pin, cache, from_path=tmp_path / "folder")


def test_a_changed_folder_is_refused(sample: Any, cache: Cache, archive: Path) -> None:
    subprocess.run(["tar", "xzf", archive, "--no-same-owner"], cwd=archive.parent, check=True)
    folder = archive.parent / "toy-1.0"
    assert sample.pin.sdist is not None
    unrecorded = replace(sample.pin, sdist=replace(sample.pin.sdist, tree=None))
    with pytest.raises(BadInputError, match="records no tree"):
        ensure_pin(unrecorded, cache, from_path=folder)
    (folder / "toy.py").write_text("changed")
    with pytest.raises(HashMismatchError):
        ensure_pin(sample.pin, cache, from_path=folder)


def test_the_source_that_is_asked_for(
    sample: Any, upstream: Any, cache: Cache, archive: Path
) -> None:
    both = replace(sample.pin, git=upstream.pin(tag="v1.0").git)
    assert ensure_pin(both, cache, from_path=archive).source == "sdist"
    assert ensure_pin(both, cache, source="git").source == "git"
    # What happens to be there does not decide.
    assert ensure_pin(both, cache).source == "sdist"
    assert ensure_pin(both, cache, from_path=upstream.folder).source == "git"
    with pytest.raises(BadInputError, match="no git source"):
        ensure_pin(sample.pin, cache, source="git")
    with pytest.raises(BadInputError, match="no sdist source"):
        ensure_pin(upstream.pin(tag="v1.0"), cache, source="sdist")


def test_a_changed_pin_is_imported_anew(upstream: Any, cache: Cache) -> None:
    first = ensure_pin(upstream.pin(tag="v1.0"), cache)
    head = upstream.git("rev-parse", "HEAD")
    second = ensure_pin(upstream.pin(commit=head), cache)
    assert second.fetched
    assert second.commit == head != first.commit


@pytest.mark.parametrize("what", ["pack", "index"])
def test_deep_finds_damage_and_mends_it(
    sample: Any, cache: Cache, archive: Path, progress: Any, what: str
) -> None:
    first = ensure_pin(sample.pin, cache, from_path=archive)
    file = getattr(first, what)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert not ensure_pin(sample.pin, cache).fetched
    mended = ensure_pin(sample.pin, cache, deep=True, progress=progress)
    assert mended.fetched
    assert any("damaged" in notice for notice in progress.notices)
    assert not ensure_pin(sample.pin, cache, deep=True).fetched


def test_deep_notices_a_moved_reference(sample: Any, cache: Cache, archive: Path) -> None:
    ensure_pin(sample.pin, cache, from_path=archive)
    (cache.store / "refs/pins/v1.0/sdist").unlink()
    assert ensure_pin(sample.pin, cache, deep=True).fetched


def test_a_missing_pack_is_made_again(sample: Any, cache: Cache, archive: Path) -> None:
    first = ensure_pin(sample.pin, cache, from_path=archive)
    first.pack.unlink()
    assert ensure_pin(sample.pin, cache).fetched
    assert first.pack.is_file()


def test_a_damaged_download_is_fetched_again(
    index: Any, sample: Any, cache: Cache, progress: Any
) -> None:
    folder = cache.download_folder(sample.sha256)
    folder.mkdir(parents=True)
    (folder / sample.filename).write_bytes(b"damaged")
    assert ensure_pin(sample.pin, cache, progress=progress).tree == sample.tree
    assert any("damaged" in notice for notice in progress.notices)


def test_a_read_only_cache_serves_what_it_has(sample: Any, cache: Cache, archive: Path) -> None:
    ensure_pin(sample.pin, cache, from_path=archive)
    before = {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*")}
    ensure_pin(sample.pin, cache)
    assert before == {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*")}


def test_without_any_network(sample: Any, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(NetworkError) as caught:
        ensure_pin(sample.pin, cache)
    assert caught.value.fix is not None
    assert "--from" in caught.value.fix
    assert any("refused" in detail for detail in caught.value.details)


PROGRAM = """
import sys
from pathlib import Path
from dsv4port.manifest.pins import Pin, SdistSource
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin

sha256, tree, folder, where = sys.argv[1:5]
if where == "stop-in-import":
    import dsv4port.upstream.tree as module
    real = module.TreeBuilder.add_file
    def slow(self, path, mode, data):
        real(self, path, mode, data)
        if path.endswith(b"toy.py"):
            print("here", flush=True)
            sys.stdin.read()
    module.TreeBuilder.add_file = slow
elif where == "stop-before-reference":
    from dsv4port.git.repository import Repository
    def stop(*_):
        print("here", flush=True)
        sys.stdin.read()
    Repository.update_references = stop
elif where == "stop-before-record":
    import dsv4port.upstream.cache as module
    def stop(*_):
        print("here", flush=True)
        sys.stdin.read()
    module.write_atomically = stop
pin = Pin(name="v1.0", sdist=SdistSource(name="toy", version="1.0", sha256=sha256, tree=tree))
found = ensure_pin(pin, Cache(Path(folder)))
print(found.commit, found.fetched, flush=True)
"""


def start(sample: Any, cache: Cache, where: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, sample.sha256, sample.tree, str(cache.folder), where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=30)
    return out


@pytest.mark.parametrize("where", ["stop-in-import", "stop-before-reference", "stop-before-record"])
def test_a_kill_during_the_import_leaves_no_harm(
    index: Any, sample: Any, cache: Cache, where: str
) -> None:
    process = start(sample, cache, where)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    os.kill(process.pid, signal.SIGKILL)
    end(process)
    assert cache.find("v1.0", "sdist") is None
    found = ensure_pin(sample.pin, cache)
    assert found.fetched
    assert not ensure_pin(sample.pin, cache, deep=True).fetched
    assert not list((cache.folder / "staging").iterdir())
    assert index.count(f"/f/{sample.filename}") == 1
    assert sorted(path.suffix for path in (cache.store / "objects/pack").iterdir()) == [
        ".idx",
        ".pack",
    ]
    subprocess.run(["git", "--git-dir", str(cache.store), "fsck", "--strict"], check=True)


def test_processes_at_once_do_the_work_once(index: Any, sample: Any, cache: Cache) -> None:
    processes = [start(sample, cache) for _ in range(4)]
    answers = [end(process).split() for process in processes]
    assert len({commit for commit, _ in answers}) == 1
    assert sorted(fetched for _, fetched in answers) == ["False", "False", "False", "True"]
    assert index.count(f"/f/{sample.filename}") == 1


def test_one_that_waits_takes_over_from_one_that_dies(
    index: Any, sample: Any, cache: Cache
) -> None:
    first = start(sample, cache, "stop-in-import")
    assert first.stdout is not None
    assert first.stdout.readline() == "here\n"
    second = start(sample, cache)
    time.sleep(0.3)
    assert second.poll() is None
    first.kill()
    end(first)
    assert end(second).split()[1] == "True"


def test_the_result_says_where(sample: Any, cache: Cache, archive: Path) -> None:
    found: ImportedPin = ensure_pin(sample.pin, cache, from_path=archive)
    assert found.store == cache.store
    shown = subprocess.run(
        ["git", "--git-dir", str(found.store), "rev-parse", "refs/pins/v1.0/sdist"],
        check=True,
        capture_output=True,
    )
    assert shown.stdout.decode().strip() == found.commit


def test_start_up_is_cheap() -> None:
    """Whoever only asks whether a pin is there must not pay for what fetches it."""
    program = (
        "import sys, dsv4port.upstream.pins, dsv4port.upstream.cache\n"
        "print(*{'requests', 'tarfile', 'html', 'subprocess', 'configparser', 'yaml', 'json'}"
        " & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == ""
