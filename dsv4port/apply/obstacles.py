"""What a publish would overwrite or bury: the user's files, commits, and gits at work."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping

from dsv4port.errors import RefusedError
from dsv4port.git.checkout import BRANCH, PUBLISHED, Change, ChangeState, Checkout, DiskState
from dsv4port.git.index_lock import lock_file
from dsv4port.git.objects import Entry
from dsv4port.git.on_disk import files_at, link_above
from dsv4port.patch.quote import display_path

_MOST_DETAILS = 50

Changes = Mapping[bytes, tuple[Entry | None, Entry | None]]
"""By path the entry before and after."""


def dirty_paths(checkout: Checkout, changes: list[Change], touched: Changes) -> set[bytes]:
    """Paths with content of the user's that must not be lost.

    git's word is taken for files the publish does not write. For those it does, the content on
    disk decides: the index can be told to look away (assume-unchanged, skip-worktree).
    """
    dirty = {
        change.path
        for change in changes
        # git names an untracked repository by its folder; publishing never enters one.
        if change.state is not ChangeState.IGNORED and not change.path.endswith(b"/")
    }
    # A link in a folder's place may be ignored, and is overwritten with what is missing behind it.
    links = (link_above(checkout.path, path) for path in tuple(dirty))
    dirty.update(link for link in links if link is not None)
    for path, (old, new) in touched.items():
        if path in dirty:
            continue
        if old is not None:
            if checkout.disk_state(path, old) is not DiskState.SAME:
                dirty.add(path)
        elif new is not None:
            dirty.update(
                found
                for found in files_at(checkout.path, path)
                if found == path or found not in touched
            )
    return dirty


def require_saveable(checkout: Checkout, paths: set[bytes]) -> None:
    """Raise RefusedError where a path is something that no commit can hold: a device, a pipe."""
    special = set()
    for path in paths:
        try:
            mode = checkout.disk_path(path).lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            special.add(path)
    if special:
        raise RefusedError(
            "what is neither file, link nor folder cannot be saved",
            fix="move it away, then run the command again",
            details=shown_paths(special),
        )


def user_positions(checkout: Checkout, positions: Mapping[str, str]) -> Iterator[str]:
    """What the user did to the repository that a publish would bury, in words."""
    operation = checkout.unfinished_operation()
    if operation is not None:
        yield f"{operation} is under way"
    published = positions.get(PUBLISHED)
    if positions.get("HEAD") != published:
        yield f"HEAD is at {positions['HEAD'][:12]}, not where the last publish left it"
    elif positions.get(BRANCH) != published:
        yield "the branch dsv4port was moved since the last publish"


def shown_paths(paths: set[bytes]) -> list[str]:
    """The first of many paths, for the details of an error."""
    names = [display_path(path) for path in sorted(paths)]
    if len(names) > _MOST_DETAILS:
        names[_MOST_DETAILS:] = [f"… and {len(names) - _MOST_DETAILS} more"]
    return names


def require_no_git_at_work(checkout: Checkout) -> None:
    """Raise RefusedError where a git of the user's holds the index."""
    lock = lock_file(checkout.git_dir)
    if lock.exists():
        raise RefusedError(
            f"another git is at work in the checkout: {lock} exists",
            fix="wait until it has ended; if none runs there, remove that file",
        )
