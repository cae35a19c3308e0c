"""Put a finished result into a checkout: whole, or not at all.

Everything that can be refused is refused before the first file changes. Then a journal says what
is about to happen; whoever opens the checkout after an interruption finishes it from there. So
every moment belongs to the old state (no journal) or the new one (journal, or done).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.journal import Journal, remove_journal
from dsv4port.apply.journal import interrupted as interrupted
from dsv4port.apply.obstacles import (
    Changes,
    dirty_paths,
    require_no_git_at_work,
    require_saveable,
    shown_paths,
    user_positions,
)
from dsv4port.apply.receipt import Receipt, write_receipt
from dsv4port.apply.steps import Step, reached
from dsv4port.apply.work_files import is_ours, replace_files
from dsv4port.errors import DirtyCheckoutError, GitError, RefusedError
from dsv4port.git.checkout import (
    BRANCH,
    PIN,
    PUBLISHED,
    Change,
    Checkout,
    open_checkout,
)
from dsv4port.git.index_lock import remove_dead_index_lock
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.git.repository import Comparison

_OPERATION_FILES = (
    "rebase-merge", "rebase-apply", "sequencer", "MERGE_HEAD", "MERGE_MSG", "MERGE_MODE",
    "MERGE_AUTOSTASH", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_LOG",
    "BISECT_START",
)  # fmt: skip
"""What git keeps while an operation of the user's is under way."""


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
    require_no_git_at_work(checkout)
    if changes is None:
        changes = checkout.changes()
    if made is not None and made.difference.ends == (head, receipt.commit):
        touched = made.difference.changed_entries()
    else:
        touched = checkout.repository.changed_entries(head, receipt.commit)
    dirty = dirty_paths(checkout, changes, touched)
    reasons = [*user_positions(checkout, positions), *shown_paths(dirty)]
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
        require_saveable(checkout, dirty)
        saved = _save(checkout, dirty, "saved before a forced publish", _repositories(changes))
        _set_aside_operation(checkout, saved)
        reached(Step.CHANGES_SAVED)
    journal = Journal(head, receipt, tuple(sorted(dirty)), saved)
    if dirty or not checkout.on_our_branch():
        _begin(checkout, journal)
        replace_files(checkout, session.lock, {*touched, *dirty}, receipt.commit)
    else:
        saved = _switch(session, journal, touched, made) or saved
    _finish(checkout, receipt)
    return saved


def _begin(checkout: Checkout, journal: Journal) -> None:
    _remove_leftovers(checkout)
    journal.write(checkout)
    reached(Step.JOURNAL_WRITTEN)


def _remove_leftovers(checkout: Checkout) -> None:
    """Remove what killed processes left half-written; the checkout's lock is held."""
    for name in os.listdir(checkout.state):  # noqa: PTH208
        if name.startswith(".") and name.endswith(".tmp"):
            (checkout.state / name).unlink(missing_ok=True)
        elif name.startswith("snapshot-"):
            import shutil

            shutil.rmtree(checkout.state / name, ignore_errors=True)


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
            require_no_git_at_work(checkout)
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
        if path not in journal.discarded and not is_ours(checkout, path, old, new)
    ]
    saved = None
    if foreign or _has_new_commits(checkout, journal):
        require_saveable(checkout, set(foreign))
        why = "saved before an interrupted publish was finished"
        saved = _save(checkout, foreign, why, _repositories(checkout.changes()))
    paths = {*touched, *journal.discarded}
    replace_files(checkout, session.lock, paths, journal.receipt.commit)
    return saved


def _has_new_commits(checkout: Checkout, journal: Journal) -> bool:
    """Whether HEAD or the branch hold commits that neither the publish nor its user's saved work
    knows: made after the interruption, they would be buried."""
    positions = checkout.positions()
    known = [journal.old, journal.receipt.commit, *([journal.saved] if journal.saved else [])]
    tips = {positions[name] for name in ("HEAD", BRANCH) if name in positions} - set(known)
    if not tips:
        return False
    newer = checkout.git.run("rev-list", "--max-count=1", *tips, "--not", *known, "--")
    return newer.text != ""


def _save(
    checkout: Checkout, paths: Iterable[bytes], why: str, repositories: Collection[bytes]
) -> str:
    # Not at the top: hardly any publish has something to save.
    from dsv4port.git.snapshot import snapshot

    return snapshot(checkout, paths, why, left_out=repositories)


def _repositories(changes: Iterable[Change]) -> list[bytes]:
    """Untracked repositories: git names them by their folders. Nothing here enters one."""
    return [change.path for change in changes if change.path.endswith(b"/")]


def _set_aside_operation(checkout: Checkout, saved: str) -> None:
    """Move the files of an unfinished rebase, merge or the like out of git's way, all kept."""
    import shutil

    aside = checkout.state / "set-aside" / saved.rpartition("/")[2]
    for name in _OPERATION_FILES:
        source = checkout.git_dir / name
        if source.exists():
            aside.mkdir(parents=True, exist_ok=True)
            shutil.move(source, aside / name)


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
