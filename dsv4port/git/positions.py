"""Where references stand, read from the files git keeps them in.

Starting git to ask for four references takes longer than all the rest of a check that finds
nothing to do. The files are a documented format (gitrepository-layout); whatever in them is not
the plain case is left to git.
"""

from __future__ import annotations

import re
from pathlib import Path

from dsv4port.git.process import Git

_ID = re.compile(rb"([0-9a-f]{40})\n?")
_SYMBOLIC = re.compile(rb"ref:[ \t]*(refs/[^\s]+)\n?")


class _NotPlainError(Exception):
    """The files hold something that only git should read."""


def positions(git_dir: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Ids of HEAD and of the references `names`, as far as they exist."""
    try:
        return _from_files(git_dir, names)
    except (_NotPlainError, OSError):
        return _from_git(git_dir, names)


def _from_files(git_dir: Path, names: tuple[str, ...]) -> dict[str, str]:
    if (git_dir / "reftable").exists():
        raise _NotPlainError
    files = _References(git_dir)
    found = {name: files.read(name) for name in names}
    head = (git_dir / "HEAD").read_bytes()
    symbolic = _SYMBOLIC.fullmatch(head)
    if symbolic is not None:
        target = symbolic[1].decode("utf-8", "surrogateescape")
        if target not in found and ".." in target:
            raise _NotPlainError
        found["HEAD"] = found[target] if target in found else files.read(target)
    else:
        found["HEAD"] = _plain_id(head)
    return {name: identifier for name, identifier in found.items() if identifier is not None}


class _References:
    """The reference files of one repository; the packed ones are read when first needed."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._packed: dict[bytes, bytes] | None = None

    def read(self, name: str) -> str | None:
        # A loose file wins over what is packed. git writes the packed file before it removes the
        # loose one, so reading in this order misses nothing.
        try:
            return _plain_id((self._git_dir / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        if self._packed is None:
            self._packed = self._read_packed()
        found = self._packed.get(name.encode("utf-8", "surrogateescape"))
        return None if found is None else _plain_id(found)

    def _read_packed(self) -> dict[bytes, bytes]:
        try:
            data = (self._git_dir / "packed-refs").read_bytes()
        except FileNotFoundError:
            return {}
        rows = (line.split(b" ", 1) for line in data.split(b"\n") if line[:1] not in b"#^")
        return {row[1]: row[0] for row in rows if len(row) == 2}


def _plain_id(data: bytes) -> str:
    matched = _ID.fullmatch(data)
    if matched is None:
        raise _NotPlainError
    return matched[1].decode()


def _from_git(git_dir: Path, names: tuple[str, ...]) -> dict[str, str]:
    git = Git(git_dir)
    listed = git.run("for-each-ref", "--format=%(refname) %(objectname)", *names).text
    found = dict(line.split(" ", 1) for line in listed.splitlines())
    resolved = git.run("rev-parse", "--verify", "--quiet", "HEAD", accept=(0, 1, 128))
    if resolved.code == 0:
        found["HEAD"] = resolved.text
    return found
