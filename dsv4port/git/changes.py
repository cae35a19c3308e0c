"""What the user changed in a work tree, as git sees it; asked for early, answered when needed."""

from __future__ import annotations

from enum import Enum
from types import TracebackType

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

        Raises:
            GitError: git failed.
        """
        if self._changes is None:
            rows = self._running.finish().stdout.split(b"\0")[:-1]
            self._changes = sorted(map(_change, rows), key=lambda change: change.path)
        return self._changes


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
