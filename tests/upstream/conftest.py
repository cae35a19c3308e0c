"""A misbehaving web server, small archives, and an environment without the user's settings."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dsv4port.manifest.pins import GitSource, Pin, SdistSource
from dsv4port.upstream.cache import Cache


@pytest.fixture(autouse=True)
def _no_user_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes what the user has configured."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "GIT_", "XDG_", "DSV4PORT_")) or name.lower().endswith(
            ("_proxy", "_ca_bundle")
        ):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    # No waits between tries: what is waited for is tested where the waiting is a value.
    monkeypatch.setattr("dsv4port.upstream.retry.Patience.wait", lambda *_: None)


@dataclass
class RecordedProgress:
    """Progress that remembers what it was told."""

    labels: list[str] = field(default_factory=list)
    totals: list[int | None] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    open: bool = False

    def start(self, label: str, total: int | None, unit: str = "bytes") -> None:
        assert not self.open, "started twice"
        self.open = True
        self.labels.append(label)
        self.totals.append(total)
        self.done.append(0)

    def advance(self, amount: int) -> None:
        assert self.open, "advanced without start"
        self.done[-1] += amount

    def finish(self) -> None:
        assert self.open, "finished without start"
        self.open = False

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def progress() -> RecordedProgress:
    return RecordedProgress()


@dataclass
class Reply:
    """One answer: what is said, and what is done instead of it."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = -1
    """Content-Length: -1 the true one, None none at all."""
    cut: int | None = None
    """Close the connection after so many bytes of the body."""
    stall: bool = False
    """Send nothing more, and leave the connection open."""


Request = BaseHTTPRequestHandler
Answerer = Callable[[Request], Reply]


class Server:
    """Serves what the test says, and keeps the requests."""

    def __init__(self) -> None:
        self.routes: dict[str, Answerer] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def http(self) -> ThreadingHTTPServer:
        return self._http

    def close(self) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: Request) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path, headers))
        route = self.routes.get(request.path)
        reply = route(request) if route else Reply(b"no such page", 404)
        request.send_response(reply.status)
        for name, value in reply.headers.items():
            request.send_header(name, value)
        if reply.length is not None:
            length = len(reply.body) if reply.length == -1 else reply.length
            request.send_header("Content-Length", str(length))
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        body = reply.body if reply.cut is None else reply.body[: reply.cut]
        try:
            request.wfile.write(body)
            request.wfile.flush()
            if reply.stall:
                self.release.wait(20)
        except OSError:
            pass

    def serve(self, path: str, *replies: Reply) -> None:
        """Answer with each reply once, then with the last for ever."""
        queue = list(replies)
        self.routes[path] = lambda _: queue.pop(0) if len(queue) > 1 else queue[0]

    def serve_file(self, path: str, data: bytes, *, etag: str | None = '"one"') -> None:
        """A well-behaved server of one file, with ranges."""

        def answer(request: Request) -> Reply:
            headers = {"ETag": etag} if etag else {}
            wanted = request.headers.get("Range", "")
            valid = request.headers.get("If-Range") in (None, etag)
            if not wanted.startswith("bytes=") or not valid:
                return Reply(data, headers=headers)
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                return Reply(b"", 416, {"Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return Reply(data[start:], 206, headers)

        self.routes[path] = answer

    def count(self, path: str) -> int:
        return sum(asked == path for asked, _ in self.requests)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def new_server() -> Iterator[Callable[[], Server]]:
    """Makes further servers."""
    running: list[Server] = []

    def make() -> Server:
        running.append(Server())
        return running[-1]

    yield make
    for one in running:
        one.close()


@pytest.fixture
def reply() -> type[Reply]:
    return Reply


def member(
    name: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, target
    return info, data


def archive_of(
    *members: tuple[tarfile.TarInfo, bytes], tar_format: int = tarfile.PAX_FORMAT
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return gzip.compress(buffer.getvalue(), 1, mtime=0)


@pytest.fixture
def tar_member() -> Callable[..., tuple[tarfile.TarInfo, bytes]]:
    return member


@pytest.fixture
def tar_archive() -> Callable[..., bytes]:
    return archive_of


@dataclass(frozen=True)
class Sample:
    """A small sdist with everything a tree can hold, and its pin."""

    data: bytes = field(repr=False)
    sha256: str
    pin: Pin
    tree: str

    @property
    def filename(self) -> str:
        assert self.pin.sdist is not None
        return self.pin.sdist.archive


def _sample_files() -> list[tuple[tarfile.TarInfo, bytes]]:
    return [
        member("toy-1.0/", kind=tarfile.DIRTYPE, mode=0o755),
        member("toy-1.0/PKG-INFO", b"Name: toy\n"),
        member("toy-1.0/run.sh", b"#!/bin/sh\n", mode=0o755),
        member("toy-1.0/.gitignore", b"*.pyc\n*.egg-info\n"),
        member("toy-1.0/toy.egg-info/PKG-INFO", b"Name: toy\n"),
        member("toy-1.0/toy/__init__.py", b"x = 1\r\ny = 2"),
        member("toy-1.0/toy.py", b"sorts between toy and toy/\n"),
        member("toy-1.0/toy-more/a", b"\xff\x00binary"),
        member("toy-1.0/empty/", kind=tarfile.DIRTYPE, mode=0o755),
        member("toy-1.0/link", kind=tarfile.SYMTYPE, target="toy/__init__.py"),
        member("toy-1.0/big.bin", bytes(range(256)) * 4096),
    ]


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """The sample, with the tree id that git itself gives to its files."""
    data = archive_of(*_sample_files())
    sha256 = hashlib.sha256(data).hexdigest()
    folder = tmp_path_factory.mktemp("sample")
    for info, content in _sample_files():
        path = folder / info.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if info.isdir():
            path.mkdir(exist_ok=True)
        elif info.issym():
            path.symlink_to(info.linkname)
        else:
            path.write_bytes(content)
            path.chmod(info.mode)
    top = folder / "toy-1.0"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    for arguments in (["init", "-q"], ["add", "-A", "-f"]):
        subprocess.run(["git", *arguments], cwd=top, check=True, env=environment)
    tree = subprocess.run(
        ["git", "write-tree"], cwd=top, check=True, env=environment, capture_output=True
    ).stdout.decode()
    source = SdistSource(name="toy", version="1.0", sha256=sha256, tree=tree.strip())
    return Sample(data, sha256, Pin(name="v1.0", sdist=source), tree.strip())  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


class Upstream:
    """A git repository to fetch from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": "A" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "a@example.invalid" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_DATE": "1700000000 +0000" for who in ("AUTHOR", "COMMITTER")},
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            check=True,
            env=environment,
            input=stdin,
            capture_output=True,
        )
        return done.stdout.decode().strip()

    def commit(self, files: dict[str, str], message: str = "work") -> str:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        self.git("add", "-A", "-f")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def pin(self, **source: str | None) -> Pin:
        return Pin(name="v1.0", git=GitSource(url=str(self.folder), **source))  # type: ignore[arg-type]


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    """Three commits; the second has the annotated tag v1.0."""
    repository = Upstream(tmp_path / "upstream")
    repository.commit({"a.py": "a = 1\n", "sub/b.py": "b = 1\n"}, "first")
    repository.commit({"a.py": "a = 2\n"}, "second")
    repository.git("tag", "-a", "-m", "release", "v1.0")
    repository.commit({"a.py": "a = 3\n"}, "third")
    return repository
