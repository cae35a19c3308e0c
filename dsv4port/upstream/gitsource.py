"""One commit of a git repository, as a pack of its own.

Only the commit is fetched, without its history, and never with blobs left out: what is imported
has to be whole. What arrives is compared with what the pin records; git itself has made sure that
the content fits the commit's id.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dsv4port.errors import BadInputError, HashMismatchError, NetworkError, UnsafePathError
from dsv4port.git.objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_SUBMODULE,
    MODE_SYMLINK,
)
from dsv4port.git.process import Git
from dsv4port.upstream.git_address import SCHEMES, check_address, mirrored
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.redact import redact
from dsv4port.upstream.safety import check_path, shown_path

if TYPE_CHECKING:
    from dsv4port.manifest.pins import GitSource

_TAG_REF = "refs/dsv4port/tag"
_COMMIT_REF = "refs/dsv4port/commit"
_MODES = (MODE_FILE, MODE_EXECUTABLE, MODE_SYMLINK, MODE_SUBMODULE)

_FETCH = (
    *("-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=60"),
    # Also for what `insteadOf` of the user's makes of an address.
    *("-c", "protocol.allow=never"),
    *(word for scheme in SCHEMES for word in ("-c", f"protocol.{scheme}.allow=always")),
    *("fetch", "--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
)

# Answers of servers that have the repository but do not give out one commit of it.
_NO_SINGLE_COMMIT = re.compile(
    r"not our ref|unadvertised object|remote ref [0-9a-f]{40}|does not support shallow"
    r"|no matching remote head",
    re.IGNORECASE,
)
_NO_SUCH_TAG = re.compile(r"couldn't find remote ref", re.IGNORECASE)
_PROGRESS = re.compile(r"(?:remote: )?([A-Z][A-Za-z ]+): +\d+% \((\d+)/(\d+)\)")
_FIX = (
    "check the address and your access to it, or name a mirror (`--mirror`, DSV4PORT_GIT_MIRROR) "
    "or a clone (`--from`)"
)


@dataclass(frozen=True, slots=True)
class FetchedCommit:
    """A commit, and the pack that holds all of it but its parents.

    Parameters:
        tag_object: id of the annotated tag that names the commit, where there is one.
        shallow: the commit has parents, which are not there.
    """

    commit: str
    tree: str
    tag_object: str | None
    shallow: bool
    pack: Path
    index: Path


def fetch_commit(
    source: GitSource,
    folder: Path,
    *,
    mirror: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> FetchedCommit:
    """Fetch the commit that `source` names into a pack below `folder`.

    Parameters:
        folder: an empty folder; the caller removes it with what is left in it.
        mirror: see `dsv4port.upstream.git_address.mirrored`.

    Raises:
        BadInputError: the address is not one to fetch from, or the tag names no commit.
        HashMismatchError: the tag names another commit than the pin records.
        UnsafePathError: the tree has a path that must not be written.
        NetworkError: the repository cannot be reached or does not have it.
    """
    url = check_address(mirrored(source.url, mirror))
    repository = folder / "fetch.git"
    Git().run(
        "init", "--quiet", "--bare", "--template=", "--object-format=sha1",
        "--initial-branch=none", str(repository),
    )  # fmt: skip
    git = Git(repository)
    commit, tag_object = _fetch(git, url, source, progress)
    if source.commit_prefix is not None and not commit.startswith(source.commit_prefix):
        raise HashMismatchError(
            f"{redact(url)}: the pin says that the commit starts with {source.commit_prefix}, "
            f"{_named(source)} is {commit}",
            fix="find out which is right before anything else: a tag that moved is not a pin",
        )
    tree = git.run("rev-parse", "--verify", f"{commit}^{{tree}}").text
    _check_tree(git, tree, redact(url))
    parents = git.run("cat-file", "commit", commit).stdout.partition(b"\n\n")[0]
    shallow = b"\nparent " in parents
    # Also where all of the history came: the pack is to hold this commit alone.
    if shallow:
        (repository / "shallow").write_text(f"{commit}\n", "ascii")
    else:
        (repository / "shallow").unlink(missing_ok=True)
    name = git.run(
        # Without deltas reading is several times faster.
        *("-c", "pack.compression=1", "pack-objects", "--quiet", "--revs", "--depth=0"),
        *("--window=0", "--no-reuse-delta", str(folder / "pack")),
        stdin=f"{commit}\n".encode(),
    ).text
    return FetchedCommit(
        commit, tree, tag_object, shallow, folder / f"pack-{name}.pack", folder / f"pack-{name}.idx"
    )


def _fetch(git: Git, url: str, source: GitSource, progress: Progress) -> tuple[str, str | None]:
    """Ids of the commit and of its annotated tag."""
    if source.tag is not None:
        problem = _try(git, url, ("--depth=1",), [f"+refs/tags/{source.tag}:{_TAG_REF}"], progress)
        if problem is not None and re.search("does not support shallow", problem.text):
            problem = _try(git, url, (), [f"+refs/tags/{source.tag}:{_TAG_REF}"], progress)
        if problem is None:
            return _peel(git, url, source)
        if source.commit is None or not _NO_SUCH_TAG.search(problem.text):
            raise problem.error(f"cannot fetch the tag {source.tag} from {redact(url)}")
        progress.notice(f"{redact(url)} has no tag {source.tag}; fetching the commit by its id")
    assert source.commit is not None
    problem = _try(git, url, ("--depth=1",), [f"+{source.commit}:{_COMMIT_REF}"], progress)
    if problem is None:
        return source.commit, None
    what = f"cannot fetch the commit {source.commit} from {redact(url)}"
    if not _NO_SINGLE_COMMIT.search(problem.text):
        raise problem.error(what)
    progress.notice(f"{redact(url)} does not give out single commits; fetching its history")
    everything = [f"+refs/{kind}/*:refs/dsv4port/{kind}/*" for kind in ("heads", "tags")]
    problem = _try(git, url, (), everything, progress)
    if problem is not None:
        raise problem.error(what)
    if git.run("cat-file", "-e", f"{source.commit}^{{commit}}", accept=(0, 1, 128)).code != 0:
        raise NetworkError(f"{what}: no branch or tag of it has the commit", fix=_FIX)
    return source.commit, None


def _peel(git: Git, url: str, source: GitSource) -> tuple[str, str | None]:
    peeled = git.run("rev-parse", "--verify", f"{_TAG_REF}^{{commit}}", accept=(0, 128))
    if peeled.code != 0:
        raise BadInputError(
            f"{redact(url)}: the tag {source.tag} names no commit",
            fix="correct the tag in manifests/pins.yaml",
        )
    commit = peeled.text
    if source.commit is not None and commit != source.commit:
        raise HashMismatchError(
            f"{redact(url)}: the pin says that the tag {source.tag} is the commit "
            f"{source.commit}, it is {commit}",
            fix="find out which is right before anything else: a tag that moved is not a pin",
        )
    named = git.run("rev-parse", "--verify", _TAG_REF).text
    return commit, named if named != commit else None


def _named(source: GitSource) -> str:
    return f"the tag {source.tag}" if source.tag is not None else "it"


def _check_tree(git: Git, tree: str, where: str) -> None:
    """Refuse paths that must not be written, as for an archive."""
    links: set[bytes] = set()
    paths: set[bytes] = set()
    for row in git.run("ls-tree", "-r", "-z", "--full-tree", tree).stdout.split(b"\0")[:-1]:
        head, _, path = row.partition(b"\t")
        mode = int(head.split(b" ", 1)[0], 8)
        check_path(path, where=where)
        if mode not in _MODES or path in paths:
            raise UnsafePathError(f"{where}: {shown_path(path)} comes twice or has mode {mode:o}")
        if mode == MODE_SYMLINK:
            links.add(path)
        paths.add(path)
    for link in links:
        if link.lower().endswith(b".gitmodules"):
            raise UnsafePathError(f"{where}: {shown_path(link)} is a symbolic link")
    # A tree that git wrote cannot have that; one made by hand can have a name twice.
    for path in paths if links else ():
        parent = path.rpartition(b"/")[0]
        while parent:
            if parent in links:
                raise UnsafePathError(
                    f"{where}: {shown_path(path)} would be written through a symbolic link"
                )
            parent = parent.rpartition(b"/")[0]


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a fetch failed: the lines that git wrote."""

    lines: Sequence[str]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def error(self, what: str) -> NetworkError:
        return NetworkError(what, fix=_FIX, details=[redact(line) for line in self.lines[-8:]])


def _try(
    git: Git, url: str, options: Sequence[str], refspecs: Sequence[str], progress: Progress
) -> _Problem | None:
    """Fetch; returns why it failed, None when it did not."""
    process = git.start(*_FETCH, *options, "--end-of-options", url, *refspecs, user_config=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    watcher = _Watcher(cast(BufferedReader, process.stderr), progress)
    watcher.start()
    try:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            _reap(process)
        # A connection that ssh keeps open for later holds the pipe, too.
        watcher.join(timeout=2)
        watcher.close()
        process.stdout.close()
    return None if code == 0 else _Problem(watcher.lines)


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Watcher(threading.Thread):
    """Reads what git says while it works: progress to the callback, the rest to `lines`."""

    def __init__(self, stream: BufferedReader, progress: Progress) -> None:
        super().__init__(name="git fetch", daemon=True)
        self._stream = stream
        self._progress = progress
        self._label: str | None = None
        self._done = 0
        self._closed = False
        self.lines: list[str] = []

    def run(self) -> None:
        """Read to the end."""
        rest = b""
        while block := self._stream.read1(4096):
            *whole, rest = re.split(rb"[\r\n]", rest + block)
            for line in whole:
                self._take(line)
        self._take(rest)

    def close(self) -> None:
        """End the progress report; later lines are not shown."""
        self._closed = True
        if self._label is not None:
            self._progress.finish()
            self._label = None

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "backslashreplace").rstrip()
        match = _PROGRESS.match(text)
        if match is None:
            if text and not re.match(r"(?:remote: )?[A-Z][a-z]+ing objects: ", text):
                self.lines.append(text)
            return
        if self._closed:
            return
        label, done, total = match.group(1), int(match.group(2)), int(match.group(3))
        if label != self._label:
            if self._label is not None:
                self._progress.finish()
            self._progress.start(label.lower(), total, "objects")
            self._label, self._done = label, 0
        self._progress.advance(done - self._done)
        self._done = done
