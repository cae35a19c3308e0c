"""A copy of a tree to build in: the checkout stays as it is, whatever a build writes into its own.

An editable install puts extensions beside the sources. Built in the checkout, a build that is
interrupted would leave some of them new and some old; built in a copy, it leaves nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.git.checkout import Checkout, open_checkout
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.progress import NO_PROGRESS, Progress

_BUILT = frozenset((".git", ".deps", "build", "dist", "__pycache__", ".venv"))


@dataclass(frozen=True, slots=True)
class SourceState:
    """What was copied.

    Parameters:
        commit, tree: of the checkout; None for a plain folder.
        changed: files that differ from the commit, as git quotes them.
        files: how many files were copied.
    """

    commit: str | None
    tree: str | None
    changed: tuple[str, ...]
    files: int


def copy_tree(source: Path, target: Path, *, progress: Progress = NO_PROGRESS) -> SourceState:
    """Copy the files of a checkout (ignored ones left out) or of a plain folder into `target`.

    Raises:
        BadInputError: there is no setup.py.
        NotOurCheckoutError: the folder has a .git that dsv4port did not make.
        OSError: no space, no permission.
    """
    if not (source / "setup.py").is_file():
        raise BadInputError(
            f"there is nothing to build in {source}: it has no setup.py",
            fix="make the checkout with `dsv4port apply STACK`, or name another with --checkout",
        )
    checkout = open_checkout(source) if (source / ".git").exists() else None
    paths = sorted(_checked_out(checkout) if checkout is not None else _plain(source))
    progress.start("copying the tree", len(paths), "files")
    try:
        for path in paths:
            _copy(source, target, path)
            progress.advance(1)
    finally:
        progress.finish()
    if checkout is None:
        return SourceState(None, None, (), len(paths))
    commit = checkout.positions()["HEAD"]
    changed = tuple(display_path(change.path) for change in checkout.changes())
    return SourceState(commit, checkout.repository.tree_id(commit), changed, len(paths))


def _checked_out(checkout: Checkout) -> Iterator[bytes]:
    listed = checkout.git.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    yield from set(filter(None, listed.stdout.split(b"\0")))


def _plain(source: Path) -> Iterator[bytes]:
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if name not in _BUILT]
        here = Path(folder)
        for name in (*files, *(one for one in names if (here / one).is_symlink())):
            yield os.fsencode((here / name).relative_to(source))


def _copy(source: Path, target: Path, path: bytes) -> None:
    name = os.fsdecode(path)
    original = source / name
    if not original.is_symlink() and not original.is_file():
        # Tracked and deleted: what is built is what lies there.
        return
    copy = target / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(original, copy, follow_symlinks=False)
