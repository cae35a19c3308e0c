"""Put a finished result into a checkout: whole, or not at all.

Everything that can be refused is refused before the first file changes. Then a journal says what
is about to happen; whoever opens the checkout after an interruption finishes it from there. So
every moment belongs to the old state (no journal) or the new one (journal, or done).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.journal import Journal, remove_journal
from dsv4port.apply.journal import interrupted as interrupted
from dsv4port.apply.receipt import Receipt, write_receipt
from dsv4port.apply.steps import Step, reached
from dsv4port.errors import DirtyCheckoutError, GitError, RefusedError
from dsv4port.git.checkout import (
    BRANCH,
    PIN,
    PUBLISHED,
    Change,
    ChangeState,
    Checkout,
    DiskState,
    disk_state,
    open_checkout,
)
from dsv4port.git.index_lock import lock_file, remove_dead_index_lock
from dsv4port.git.objects import MODE_SUBMODULE, Entry
from dsv4port.git.on_disk import files_at
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.git.repository import Comparison

_MOST_DETAILS = 50

_OPERATION_FILES = (
    "rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE",
    "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "BISECT_START",
)  # fmt: skip
"""What git keeps while an operation of the user's is under way."""

Changes = Mapping[bytes, tuple[Entry | None, Entry | None]]


@dataclass(frozen=True, slots=True)
class Recovered:
    """An interrupted publish that was finished. ``saved`` is the recovery reference, if any."""

    receipt: Receipt
    saved: str | None

    @property
    def sentence(self) -> str:
        """What happened, in one line."""
        what = self.receipt.stack or self.receipt.pin
        kept = f"; files changed since are under {self.saved}" if self.saved else ""
        return f"a publish of {what} had been interrupted and is finished now{kept}"


@dataclass(frozen=True, slots=True)
class Session:
    """A checkout held by this process, and what had to be finished when it was opened."""

    checkout: Checkout
    lock: int
    recovered: Recovered | None


OnRecovery = Callable[[Recovered], None]
"""Is told of an interrupted publish that was finished, before anything else is tried."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the maker of a commit knows of it, so that it need not be read again.

    ``difference`` is git at work on what the publish changes. ``content`` gives the content of a
    blob by its id, ``trees`` are ids of trees of the commit by folder (the root is empty).
    """

    difference: Comparison
    content: Callable[[str], bytes]
    trees: Mapping[bytes, str]


@contextmanager
def hold_checkout(path: Path, on_recovery: OnRecovery | None = None) -> Iterator[Session]:
    """Open a checkout for writing: locked, and with an interrupted publish finished.

    Raises:
        NotOurCheckoutError: `path` is something else.
        LockHeldError: another process writes to it.
    """
    checkout = open_checkout(path)
    with exclusive(checkout.state / "lock", f"the checkout {path}") as lock:
        remove_dead_index_lock(checkout.git_dir)
        recovered = recover(checkout, lock)
        if recovered is not None and on_recovery is not None:
            on_recovery(recovered)
        yield Session(checkout, lock, recovered)


def publish(
    session: Session,
    receipt: Receipt,
    *,
    force: bool,
    changes: list[Change] | None = None,
    made: Made | None = None,
) -> str | None:
    """Make the checkout hold ``receipt.commit``.

    Parameters:
        force: save and then overwrite what the user changed, instead of refusing.
        changes: what `Checkout.changes` said, when the caller has asked already.
        made: what the caller knows of the commit already.

    Returns:
        The recovery reference when something was saved.

    Raises:
        DirtyCheckoutError: the user's changes or commits are in the way, and not `force`.
    """
    checkout = session.checkout
    positions = checkout.positions()
    head = positions.get("HEAD")
    if head is None:
        raise RefusedError(
            "the checkout's HEAD names no commit",
            fix=f"run `git -C {checkout.path} checkout dsv4port`, or make a new checkout",
        )
    _require_no_git_at_work(checkout)
    if changes is None:
        changes = checkout.changes()
    if made is not None and made.difference.ends == (head, receipt.commit):
        touched = made.difference.changed_entries()
    else:
        touched = checkout.repository.changed_entries(head, receipt.commit)
    dirty = _dirty_paths(checkout, changes, touched)
    reasons = [*_user_positions(checkout, positions), *_shown(dirty)]
    saved = None
    if reasons:
        if not force:
            raise DirtyCheckoutError(
                "the checkout holds changes that a publish would overwrite or bury",
                fix="to keep them in a patchset, commit them in the checkout and run `dsv4port "
                "refresh PATCHSET`; to go on, add `--force`: it saves them under a recovery "
                "reference first",
                details=reasons,
            )
        saved = checkout.snapshot(dirty, "saved before a forced publish")
        _set_aside_operation(checkout, saved)
        reached(Step.CHANGES_SAVED)
    journal = Journal(head, receipt, tuple(sorted(dirty)), saved)
    if dirty or not checkout.on_our_branch():
        _begin(checkout, journal)
        _write_files(session, touched, dirty)
    else:
        saved = _switch(session, journal, touched, made) or saved
    _finish(checkout, receipt)
    return saved


def _begin(checkout: Checkout, journal: Journal) -> None:
    journal.write(checkout)
    reached(Step.JOURNAL_WRITTEN)


def _require_no_git_at_work(checkout: Checkout) -> None:
    lock = lock_file(checkout.git_dir)
    if lock.exists():
        raise RefusedError(
            f"another git is at work in the checkout: {lock} exists",
            fix="wait until it has ended; if none runs there, remove that file",
        )


def _switch(session: Session, journal: Journal, touched: Changes, made: Made | None) -> str | None:
    """Bring a clean checkout from one commit to another.

    Returns:
        The recovery reference, when git met changes at the last moment and they were saved.
    """
    # Not at the top: most commands only look whether there is something to do.
    from dsv4port.git.index import NotPlainIndexError
    from dsv4port.git.reader import ObjectReader
    from dsv4port.git.switch import Switch

    checkout = session.checkout
    try:
        switch = Switch(checkout.git_dir, checkout.path, touched)
    except NotPlainIndexError:
        _begin(checkout, journal)
        return _switch_by_git(session, journal, touched)
    with switch:
        _begin(checkout, journal)
        if made is not None:
            switch.run(made.content, made.trees)
        else:
            with ObjectReader(checkout.git) as reader:
                switch.run(lambda identifier: reader.read(identifier)[1], {})
    return None


def _switch_by_git(session: Session, journal: Journal, touched: Changes) -> str | None:
    checkout, inherit = session.checkout, (session.lock,)
    arguments = ("-m", "-u", journal.old, journal.receipt.commit)
    try:
        checkout.read_tree(*arguments, inherit=inherit)
    except GitError:
        # Files that were touched or copied: the content is right, but the index has other times.
        checkout.refresh_index()
        try:
            checkout.read_tree(*arguments, inherit=inherit)
        except GitError:
            _require_no_git_at_work(checkout)
            # The journal is written, so the publish will be finished, in the way that loses
            # nothing: what somebody changed since this publish looked is saved first.
            return _finish_files(session, journal, touched)
    return None


def recover(checkout: Checkout, lock: int) -> Recovered | None:
    """Finish an interrupted publish; the caller holds the checkout's lock.

    Files that hold neither the old nor the new content were changed since: they are saved under
    a recovery reference before anything is written.
    """
    journal = Journal.read(checkout)
    if journal is None:
        return None
    # We hold the lock, and so did the git that made these files: it is dead.
    for name in ("index", "HEAD", "packed-refs", BRANCH, PUBLISHED, PIN):
        (checkout.git_dir / f"{name}.lock").unlink(missing_ok=True)
    receipt = journal.receipt
    touched = checkout.repository.changed_entries(journal.old, receipt.commit)
    saved = _finish_files(Session(checkout, lock, None), journal, touched)
    _finish(checkout, receipt)
    return Recovered(receipt, saved or journal.saved)


def _finish_files(session: Session, journal: Journal, touched: Changes) -> str | None:
    """Bring the files to the new commit, whatever they hold; what is not ours is saved first.

    Returns:
        The recovery reference, when something was saved.
    """
    checkout = session.checkout
    foreign = [
        path
        for path, (old, new) in touched.items()
        if path not in journal.discarded and not _is_ours(checkout, path, old, new)
    ]
    saved = None
    if foreign:
        saved = checkout.snapshot(foreign, "saved before an interrupted publish was finished")
    _write_files(session, touched, set(journal.discarded), journal.receipt.commit)
    return saved


def _dirty_paths(checkout: Checkout, changes: list[Change], touched: Changes) -> set[bytes]:
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


def _user_positions(checkout: Checkout, positions: Mapping[str, str]) -> Iterator[str]:
    """What the user did to the repository that a publish would bury, in words."""
    operation = checkout.unfinished_operation()
    if operation is not None:
        yield f"{operation} is under way"
    published = positions.get(PUBLISHED)
    if positions.get("HEAD") != published:
        yield f"HEAD is at {positions['HEAD'][:12]}, not where the last publish left it"
    elif positions.get(BRANCH) != published:
        yield "the branch dsv4port was moved since the last publish"


def _shown(paths: set[bytes]) -> list[str]:
    names = [display_path(path) for path in sorted(paths)]
    if len(names) > _MOST_DETAILS:
        names[_MOST_DETAILS:] = [f"… and {len(names) - _MOST_DETAILS} more"]
    return names


def _set_aside_operation(checkout: Checkout, saved: str) -> None:
    """Move the files of an unfinished rebase, merge or the like out of git's way, all kept."""
    import shutil

    aside = checkout.state / "set-aside" / saved.rpartition("/")[2]
    for name in _OPERATION_FILES:
        source = checkout.git_dir / name
        if source.exists():
            aside.mkdir(parents=True, exist_ok=True)
            shutil.move(source, aside / name)


def _write_files(
    session: Session, touched: Changes, discarded: set[bytes], commit: str | None = None
) -> None:
    """Bring exactly the touched and discarded paths to what the new commit says.

    Every other file of the work tree is left alone, whatever it holds.
    """
    checkout, inherit = session.checkout, (session.lock,)
    if commit is None:
        journal = Journal.read(checkout)
        assert journal is not None
        commit = journal.receipt.commit
    listed = checkout.repository.list_tree(commit)
    # A whole new index: flags in the old one (assume-unchanged, skip-worktree) make git refuse.
    checkout.read_tree(commit, inherit=inherit)
    paths = set(touched) | discarded
    for path in sorted(paths, reverse=True):
        entry = listed.get(path)
        if entry is None or not _may_be_overwritten(checkout.disk_path(path)):
            _remove(checkout, path)
    kept = sorted(p for p in paths if p in listed and listed[p].mode != MODE_SUBMODULE)
    checkout.write_files(kept, inherit=inherit)
    checkout.refresh_index()


def _may_be_overwritten(disk: Path) -> bool:
    try:
        return stat.S_ISREG(disk.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True


def _remove(checkout: Checkout, path: bytes) -> None:
    """Remove a file and the folders that it leaves empty."""
    disk = checkout.disk_path(path)
    if disk.is_dir() and not disk.is_symlink():
        # A folder in the way of a file: its files were saved and removed one by one before.
        _remove_empty(disk)
        return
    try:
        disk.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    folder = disk.parent
    while folder != checkout.path:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _remove_empty(folder: Path) -> None:
    try:
        for inner, _, _ in os.walk(folder, topdown=False):
            Path(inner).rmdir()
    except OSError as error:
        raise RefusedError(
            f"the folder {folder} is in the way of a file and is not empty",
            fix="move it away, then run the command again",
        ) from error


def _is_ours(checkout: Checkout, path: bytes, old: Entry | None, new: Entry | None) -> bool:
    """Whether what is on disk can come from the interrupted publish (or from before it)."""
    disk = checkout.disk_path(path)
    states = [disk_state(disk, entry) for entry in (old, new) if entry is not None]
    if DiskState.SAME in states or DiskState.MISSING in states:
        return True
    if new is None or not disk.is_file() or disk.is_symlink():
        return False
    # git writes in place: a kill can leave the beginning of the new file.
    whole = checkout.git.run("cat-file", "blob", new.id).stdout
    return whole.startswith(disk.read_bytes())


def _finish(checkout: Checkout, receipt: Receipt) -> None:
    reached(Step.FILES_WRITTEN)
    checkout.repository.update_references(
        [(BRANCH, receipt.commit, None), (PUBLISHED, receipt.commit, None),
         (PIN, receipt.pin_commit, None)],
        f"publish {receipt.stack or receipt.pin}",
    )  # fmt: skip
    if not checkout.on_our_branch():
        checkout.git.run("symbolic-ref", "HEAD", BRANCH)
    reached(Step.REFERENCES_MOVED)
    write_receipt(checkout.state, receipt)
    reached(Step.RECEIPT_WRITTEN)
    remove_journal(checkout)


def now() -> str:
    """The present time in UTC, ISO 8601, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
