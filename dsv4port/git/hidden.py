"""What `git status` does not look at, because the index or ``info/exclude`` tells it not to.

An entry of the index can say that its file is to be taken as unchanged (assume-unchanged) or as
not there (skip-worktree). ``info/exclude`` hides untracked files, and nobody sees it in a review.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dsv4port.git.objects import Entry
from dsv4port.git.process import Git

_FLAGS_AT = 60
_PATH_AT = 62
_ASSUME_UNCHANGED = 0x80
_LONG = 0x0FFF


def hidden_paths(git: Git) -> list[bytes]:
    """Tracked paths whose files git was told not to look at."""
    assert git.git_dir is not None
    try:
        data = (git.git_dir / "index").read_bytes()
    except OSError:
        return []
    try:
        plain = _has_no_flags(data)
    except IndexError:
        plain = False
    if plain:
        return []
    rows = git.run("ls-files", "-v", "-z").stdout.split(b"\0")[:-1]
    # A letter in lower case: assume-unchanged. S: skip-worktree.
    return [row[2:] for row in rows if row[:1].islower() or row[:1] == b"S"]


def _has_no_flags(data: bytes) -> bool:
    """Whether an index surely has no flag; starting git to ask takes longer than to look."""
    if data[:8] != b"DIRC\0\0\0\2":  # skip-worktree needs version 3
        return False
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        flags = data[at + _FLAGS_AT]
        if flags & _ASSUME_UNCHANGED:
            return False
        length = (flags << 8 | data[at + _FLAGS_AT + 1]) & _LONG
        if length == _LONG:
            length = data.index(b"\0", at + _PATH_AT) - at - _PATH_AT
        at += _PATH_AT + length + 8 & ~7
    return data[at : at + 4] in (b"TREE", data[-20:-16])  # no part of the index lies elsewhere


def staged_entries(git: Git, paths: Iterable[bytes]) -> dict[bytes, Entry]:
    """What the index holds at these paths."""
    wanted = set(paths)
    entries: dict[bytes, Entry] = {}
    for row in git.run("ls-files", "--stage", "-z").stdout.split(b"\0")[:-1]:
        head, _, path = row.partition(b"\t")
        if path in wanted:
            mode, identifier, _ = head.split(b" ")
            entries[path] = Entry(int(mode, 8), identifier.decode())
    return entries


def excluded_paths(git: Git) -> Iterator[bytes]:
    """Untracked paths that ``info/exclude`` hides and the tree's own rules do not."""
    assert git.git_dir is not None
    if not _has_rules(git.git_dir / "info" / "exclude"):
        return
    arguments = ("ls-files", "--others", "-z", "--exclude-per-directory=.gitignore")
    seen = git.run(*arguments, "--exclude-from=.git/info/exclude").stdout.split(b"\0")
    everything = git.run(*arguments).stdout.split(b"\0")
    yield from sorted(set(everything) - set(seen))


def _has_rules(file: Path) -> bool:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.startswith(b"#") for line in lines)
