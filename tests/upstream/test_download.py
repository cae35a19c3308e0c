"""Downloads from servers that break, lie and change their mind."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import EnvironmentProblemError, HashMismatchError, NetworkError
from dsv4port.upstream.download import adopt, download
from dsv4port.upstream.http import Http, PassingProblemError
from dsv4port.upstream.index import ArchiveLocation
from dsv4port.upstream.pip_settings import PipSettings
from dsv4port.upstream.retry import Patience

DATA = random.Random(1).randbytes(400_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
NAME = "toy-1.0.tar.gz"
PATH = f"/f/{NAME}"


class Fetch:
    """Fetches the file of the server into a folder."""

    def __init__(self, server: Any, folder: Path, progress: Any) -> None:
        self.url = f"{server.url}{PATH}"
        self.file = folder / NAME
        self.part = folder / f"{NAME}.part"
        self.progress = progress

    def __call__(self, **options: Any) -> None:
        size = options.pop("size", None)
        retries = options.pop("retries", 3)
        location = ArchiveLocation(options.pop("url", self.url), NAME, size=size)
        with Http(PipSettings(timeout=0.5)) as http:
            download(
                location,
                self.file,
                options.pop("sha256", SHA256),
                http,
                patience=Patience(retries),
                progress=self.progress,
                **options,
            )

    def left(self) -> list[str]:
        return sorted(path.name for path in self.file.parent.iterdir())

    def begin(self, data: bytes, validator: str | None = None) -> None:
        """Leave what a killed run would have left."""
        self.part.parent.mkdir(exist_ok=True)
        self.part.write_bytes(data)
        if validator is not None:
            self.part.with_name(f"{self.part.name}.validator").write_text(validator)


@pytest.fixture
def fetch(server: Any, tmp_path: Path, progress: Any) -> Fetch:
    return Fetch(server, tmp_path / "downloads", progress)


def ranges(server: Any) -> list[str | None]:
    return [headers.get("range") for path, headers in server.requests if path == PATH]


def test_a_good_server(server: Any, fetch: Fetch, progress: Any) -> None:
    server.serve_file(PATH, DATA)
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert fetch.left() == [NAME]
    assert progress.totals == progress.done == [len(DATA)]
    assert not progress.open
    assert server.requests[0][1]["accept-encoding"] == "identity"


def test_a_broken_connection_is_resumed(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve_file(PATH, DATA)
    good = server.routes[PATH]
    broken = [True]

    def answer(request: Any) -> Any:
        answered = good(request)
        if broken:
            broken.pop()
            answered.cut = 150_000
            answered.length = len(DATA)
        return answered

    server.routes[PATH] = answer
    fetch()
    assert fetch.file.read_bytes() == DATA
    first, second = ranges(server)
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").rstrip("-")) <= 150_000
    assert server.requests[1][1]["if-range"] == '"one"'


def test_a_killed_run_is_resumed(server: Any, fetch: Fetch, progress: Any) -> None:
    server.serve_file(PATH, DATA)
    fetch.begin(DATA[:100_000], '"one"')
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert ranges(server) == ["bytes=100000-"]
    assert progress.done == [len(DATA)]
    assert fetch.left() == [NAME]


def test_a_complete_part_needs_no_request(server: Any, fetch: Fetch) -> None:
    fetch.begin(DATA)
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert not server.requests


def test_a_changed_file_is_fetched_anew(server: Any, fetch: Fetch, progress: Any) -> None:
    server.serve_file(PATH, DATA, etag='"two"')
    fetch.begin(b"x" * 1000, '"one"')
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert progress.done == [len(DATA)]


@pytest.mark.parametrize("start", [b"x" * 1000, b"x" * len(DATA), b"x" * (len(DATA) + 1)])
def test_a_part_of_another_file_without_a_note(server: Any, fetch: Fetch, start: bytes) -> None:
    server.serve_file(PATH, DATA, etag=None)
    fetch.begin(start)
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert ranges(server)[-1] is None


def test_a_server_without_ranges(server: Any, fetch: Fetch, reply: Any, progress: Any) -> None:
    server.serve(PATH, reply(DATA))
    fetch.begin(DATA[:1000])
    fetch()
    assert fetch.file.read_bytes() == DATA
    assert server.count(PATH) == 1
    assert progress.done == [len(DATA)]


@pytest.mark.parametrize(
    "content_range",
    ["bytes 0-399999/400000", "bytes 999-399999/400000", "rubbish", "", "bytes 1000-1999/*"],
)
def test_a_wrong_content_range(server: Any, fetch: Fetch, reply: Any, content_range: str) -> None:
    wrong = reply(DATA[:1000], 206, {"Content-Range": content_range} if content_range else {})
    server.serve(PATH, wrong, reply(DATA))
    fetch.begin(DATA[:1000])
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_a_part_that_nobody_asked_for(server: Any, fetch: Fetch, reply: Any) -> None:
    part = reply(DATA[:1000], 206, {"Content-Range": "bytes 0-999/400000"})
    server.serve(PATH, part, reply(DATA))
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_the_total_changes_between_two_parts(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(
        PATH,
        reply(DATA, cut=1000),
        reply(b"y" * 500, 206, {"Content-Range": "bytes 1000-1499/1500"}),
        reply(DATA),
    )
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_a_wrong_file_is_removed_and_named(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(b"something else", headers={"ETag": '"one"'}))
    with pytest.raises(HashMismatchError) as caught:
        fetch()
    got = hashlib.sha256(b"something else").hexdigest()
    for part in (SHA256, got, fetch.url):
        assert part in caught.value.what
    assert fetch.left() == []
    assert server.count(PATH) == 1


def test_a_file_that_is_always_too_short_keeps_its_part(
    server: Any, fetch: Fetch, reply: Any
) -> None:
    server.serve(PATH, reply(DATA, cut=100_000))
    with pytest.raises(NetworkError):
        fetch(retries=2)
    assert server.count(PATH) == 3
    assert fetch.part.exists()
    assert not fetch.file.exists()


def test_a_stalled_server_counts_as_broken(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA, cut=200_000, stall=True), reply(DATA))
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_a_server_that_stalls_for_ever(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA, cut=10, stall=True))
    with pytest.raises(NetworkError, match="no data within the time limit"):
        fetch(retries=1)


def test_more_than_the_limit_is_not_taken(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA))
    with pytest.raises(NetworkError, match="more than 1000"):
        fetch(limit=1000)
    server.serve(PATH, reply(DATA, length=None))
    with pytest.raises(NetworkError, match="more than 1000"):
        fetch(limit=1000)
    assert fetch.part.stat().st_size <= 1000


def test_more_than_the_index_says_is_not_taken(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA + b"more", length=None))
    with pytest.raises(NetworkError, match="more than 400000"):
        fetch(size=len(DATA))


def test_without_a_length_the_end_is_the_end(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA, length=None))
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_an_archive_called_a_content_encoding_stays_as_it_is(
    server: Any, fetch: Fetch, reply: Any
) -> None:
    server.serve(PATH, reply(DATA, headers={"Content-Encoding": "gzip"}))
    fetch()
    assert fetch.file.read_bytes() == DATA


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_refusal_is_not_asked_again(server: Any, fetch: Fetch, reply: Any, status: int) -> None:
    server.serve(PATH, reply(b"", status))
    with pytest.raises(NetworkError, match=str(status)):
        fetch()
    assert server.count(PATH) == 1


def test_trouble_is_asked_again(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(b"", 503), reply(b"", 500), reply(DATA))
    fetch()
    assert fetch.file.read_bytes() == DATA


def test_redirects_are_followed(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(b"", 302, {"Location": "/g/file?signature=secret"}))
    server.serve("/g/file?signature=secret", reply(DATA))
    fetch()
    assert fetch.file.read_bytes() == DATA
    fetch.file.unlink()
    server.serve("/g/file?signature=secret", reply(b"", 404))
    with pytest.raises(NetworkError) as caught:
        fetch()
    assert "secret" not in caught.value.what


def test_redirects_in_a_circle_end(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(b"", 302, {"Location": PATH}))
    with pytest.raises(NetworkError, match="redirects"):
        fetch()


def test_waits_grow_and_follow_the_server(progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    slept: list[float] = []
    patience = Patience(first_wait=1, longest_wait=10, sleep=slept.append)
    for failures in range(1, 6):
        patience.wait(failures, PassingProblemError("no answer"), progress)
    patience.wait(1, PassingProblemError("busy", wait=7), progress)
    patience.wait(1, PassingProblemError("busy", wait=7000), progress)
    assert slept == [1, 2, 4, 8, 10, 7, 10]
    assert progress.notices[0] == "no answer; trying again in 1 s"


def test_a_local_archive_is_copied_not_linked(tmp_path: Path, fetch: Fetch) -> None:
    file = tmp_path / "given.tar.gz"
    file.write_bytes(DATA)
    adopt(file, fetch.file, SHA256)
    assert fetch.file.read_bytes() == DATA
    assert not file.samefile(fetch.file)
    assert fetch.left() == [NAME]
    fetch.file.unlink()
    fetch(url=file.as_uri())
    assert fetch.file.read_bytes() == DATA


def test_a_wrong_local_archive_is_named(tmp_path: Path, fetch: Fetch) -> None:
    file = tmp_path / "given.tar.gz"
    file.write_bytes(DATA[:-1])
    with pytest.raises(HashMismatchError) as caught:
        adopt(file, fetch.file, SHA256)
    assert str(file) in caught.value.what
    assert SHA256 in caught.value.what
    assert fetch.left() == []
    assert file.exists()
    with pytest.raises(EnvironmentProblemError):
        adopt(tmp_path / "missing", fetch.file, SHA256)


def test_a_cache_that_cannot_be_written(server: Any, fetch: Fetch, reply: Any) -> None:
    server.serve(PATH, reply(DATA))
    fetch.file.parent.write_text("a file is in the way")
    with pytest.raises(EnvironmentProblemError) as caught:
        fetch()
    assert caught.value.fix is not None
    assert "DSV4PORT_CACHE" in caught.value.fix
