"""What the user changed in a work tree, as git sees it; asked for early, answered when needed."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from enum import Enum
from types import TracebackType

from dsv4port.git.disk import DiskState, disk_state
from dsv4port.git.hidden import hidden_paths, staged_entries
from dsv4port.git.on_disk import link_above
from dsv4port.git.process import Git, Running
from dsv4port.quick_dataclass import dataclass


class ChangeState(Enum):
    """What git says of one path of the work tree against the branch."""

    MODIFIED = "modified"
    """A tracked file differs."""
    DELETED = "deleted"
    """A tracked file is gone."""
    STAGED = "staged"
    """The index holds something the branch does not."""
    UNTRACKED = "untracked"
    """A file nobody tracks."""
    IGNORED = "ignored"
    """An untracked file that the tree's ignore rules cover (build outputs)."""
    UNMERGED = "unmerged"
    """The index holds an unresolved conflict."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs from what the branch says."""

    path: bytes
    state: ChangeState


class Looking:
    """`git status` at work, while this process does something else.

    A context manager: git does not outlive it.

    Parameters:
        git: bound to the repository and its work tree.
        ignored: list ignored files too.
    """

    def __init__(self, git: Git, *, ignored: bool = False) -> None:
        self._git = git
        mode = "matching" if ignored else "no"
        self._running: Running = git.begin(
            "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
            "--ignore-submodules=none", f"--ignored={mode}",
        )  # fmt: skip
        self._changes: list[Change] | None = None

    def __enter__(self) -> Looking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.abandon()

    def changes(self) -> list[Change]:
        """Paths that differ from HEAD, found with git's stat cache. Sorted by path.

        Files that the index tells git not to look at are compared by content.

        Raises:
            GitError: git failed.
        """
        if self._changes is None:
            hidden = hidden_paths(self._git)
            rows = self._running.finish().stdout.split(b"\0")[:-1]
            found = {change.path: change for change in map(_change, rows)}
            if hidden:
                found.update(self._changed_unseen(hidden, found))
            self._changes = [found[path] for path in sorted(found)]
        return self._changes

    def _changed_unseen(
        self, hidden: list[bytes], seen: Container[bytes]
    ) -> Iterator[tuple[bytes, Change]]:
        """Changes of files that the index tells git not to look at, found by content."""
        root = self._git.work_tree
        assert root is not None
        for path, entry in staged_entries(self._git, hidden).items():
            if path in seen:
                continue
            if link_above(root, path) is not None:
                state = DiskState.MISSING
            else:
                state = disk_state(root / os.fsdecode(path), entry)
            if state is DiskState.MISSING:
                yield path, Change(path, ChangeState.DELETED)
            elif state is not DiskState.SAME:
                yield path, Change(path, ChangeState.MODIFIED)


def _change(row: bytes) -> Change:
    index, tree, path = row[0:1], row[1:2], row[3:]
    code = index + tree
    if code == b"??":
        return Change(path, ChangeState.UNTRACKED)
    if code == b"!!":
        return Change(path, ChangeState.IGNORED)
    if b"U" in code or code in (b"AA", b"DD"):
        return Change(path, ChangeState.UNMERGED)
    if tree == b"D":
        return Change(path, ChangeState.DELETED)
    if tree != b" ":
        return Change(path, ChangeState.MODIFIED)
    return Change(path, ChangeState.STAGED)
