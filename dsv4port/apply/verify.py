"""Does the checkout hold exactly what the lock says? One finding for every way it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.inputs import read_patch_files
from dsv4port.apply.locking import compare_patch_files, compare_result, locked_files
from dsv4port.apply.publish import OnRecovery, Recovered, hold_checkout, interrupted
from dsv4port.apply.receipt import read_receipt
from dsv4port.errors import BadInputError, GitError
from dsv4port.git.checkout import (
    BRANCH,
    PIN,
    Change,
    ChangeState,
    Checkout,
    DiskState,
    open_checkout,
)
from dsv4port.git.hidden import excluded_paths
from dsv4port.git.objects import Entry
from dsv4port.git.on_disk import has_file
from dsv4port.git.repository import Comparison, FirstParents
from dsv4port.manifest.project import Project
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.manifest.lock import Lock
    from dsv4port.manifest.pins import Pin
    from dsv4port.manifest.stack import ResolvedStack


class Mismatch(Enum):
    """What a finding is about."""

    PATCH_FILE = "patch-file"
    """A patch file is not the one that was locked, is missing, extra, or out of order."""
    PIN = "pin"
    """The checkout or the lock stands on another pin than the manifests say."""
    HISTORY = "history"
    """The checkout's commits are not pin + series."""
    REBUILT = "rebuilt"
    """Applying the patch files anew gives something else than the lock says."""
    CONTENT = "content"
    """A file's content differs."""
    MODE = "mode"
    """A file's executable bit differs."""
    TYPE = "type"
    """Something of another type is where a file should be."""
    MISSING = "missing"
    """A file is not there."""
    EXTRA = "extra"
    """A file is there that should not be."""
    OPERATION = "operation"
    """The checkout is in the middle of a rebase, merge or the like."""
    LOCK = "lock"
    """The lock's rows of files are not what its own trees and patches say."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One mismatch: what it is about, which file or patch, and the reason in words.

    ``patches`` are the keys of the patches that the file belongs to.
    """

    kind: Mismatch
    subject: str
    reason: str
    patches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome of a verify: it holds when there are no findings.

    ``patches_checked`` and ``files_checked`` say how much was compared by content; ``ignored``
    counts untracked files that the tree's own ignore rules cover (only counted by a deep verify).
    """

    stack: str
    pin: str
    tree: str
    findings: tuple[Finding, ...]
    patches_checked: int
    files_checked: int
    ignored: int
    deep: bool
    recovered: Recovered | None = None

    @property
    def holds(self) -> bool:
        """Whether everything is as locked."""
        return not self.findings


def verify_checkout(
    project: Project,
    stack_name: str | None,
    checkout_path: Path,
    *,
    deep: bool = False,
    on_recovery: OnRecovery | None = None,
) -> VerifyReport:
    """Compare patch files, history and every file of the checkout with the stack's lock.

    Files that the stack touches are compared by content; all others by git's stat cache, or by
    content too with `deep`, which also applies the series anew in memory.

    Parameters:
        stack_name: None means the stack of the checkout's receipt.
        on_recovery: is told when an interrupted publish was finished first.

    Raises:
        BadInputError: no such stack or lock, or a manifest is malformed.
        NotOurCheckoutError: the folder is no checkout of ours.
    """
    checkout = open_checkout(checkout_path)
    recovered = None
    if interrupted(checkout):
        with hold_checkout(checkout_path, on_recovery) as session:
            recovered = session.recovered
    if stack_name is None:
        stack_name = _stack_of_receipt(checkout)
    with checkout.look(ignored=True) as looking, _History(checkout) as history:
        # git is at work; what is imported and read here takes as long as it does.
        from dsv4port.manifest.lock import load_lock
        from dsv4port.manifest.stack import resolve_stack

        stack = resolve_stack(project, stack_name)
        lock = load_lock(project, stack_name)
        with checkout.repository.compare(lock.base_tree, lock.tree) as difference:
            findings = [
                *_check_pin(lock, stack.pin),
                *_check_patch_files(lock, stack),
                *_check_history(lock, checkout, history),
            ]
            if deep:
                findings += _rebuild(project, lock, stack, checkout)
            findings += _check_rows(lock, difference)
        changes = looking.changes()
    expected = _expected(lock, checkout, deep=deep)
    findings += _check_files(checkout, expected, changes, lock)
    findings += _check_hidden(checkout, changes)
    return VerifyReport(
        stack=stack_name,
        pin=lock.pin,
        tree=lock.tree,
        findings=tuple(findings),
        patches_checked=len(lock.patches),
        files_checked=len(expected),
        ignored=sum(change.state is ChangeState.IGNORED for change in changes) if deep else 0,
        deep=deep,
        recovered=recovered,
    )


def _stack_of_receipt(checkout: Checkout) -> str:
    receipt = read_receipt(checkout.state)
    if receipt is None or receipt.stack is None:
        raise BadInputError(
            "no stack is applied to the checkout, so there is nothing to hold it against",
            fix="name the stack: `dsv4port verify STACK`",
        )
    return receipt.stack


def _check_pin(lock: Lock, pin: Pin) -> Iterator[Finding]:
    if lock.pin != pin.name:
        yield Finding(Mismatch.PIN, lock.stack, f"locked on {lock.pin}, the stack is on {pin.name}")
    source = pin.sdist if lock.source.value == "sdist" else pin.git
    recorded = source.tree if source is not None else None
    if recorded is not None and recorded != lock.base_tree:
        yield Finding(
            Mismatch.PIN, pin.name, f"locked on tree {lock.base_tree}, recorded is {recorded}"
        )


def _check_patch_files(lock: Lock, stack: ResolvedStack) -> Iterator[Finding]:
    for found in compare_patch_files(lock, read_patch_files(stack)):
        reason = f"{found.what}: locked {found.expected}, found {found.found}"
        yield Finding(Mismatch.PATCH_FILE, found.subject, reason, (found.subject,))


class _History:
    """Where the checkout stands, and git already listing the commits from there to the pin."""

    def __init__(self, checkout: Checkout) -> None:
        self.positions = checkout.positions()
        self._repository = checkout.repository
        self._ends = (self.positions.get("HEAD"), self.positions.get(PIN))
        head, pin = self._ends
        self._listing: FirstParents | None = None
        if head is not None and pin is not None:
            self._listing = self._repository.list_first_parents(head, pin)

    def __enter__(self) -> _History:
        return self

    def __exit__(self, *_: object) -> None:
        if self._listing is not None:
            self._listing.abandon()

    def commits(self, tip: str, base: str) -> list[tuple[str, str]] | None:
        """What `Repository.first_parents` says."""
        if self._listing is not None and self._ends == (tip, base):
            return self._listing.commits()
        return self._repository.first_parents(tip, base)


def _check_history(lock: Lock, checkout: Checkout, history: _History) -> Iterator[Finding]:
    operation = checkout.unfinished_operation()
    if operation is not None:
        yield Finding(Mismatch.OPERATION, str(checkout.path), f"{operation} is under way")
    positions = history.positions
    if positions.get(PIN) != lock.base_commit:
        found = positions.get(PIN, "nothing")
        yield Finding(Mismatch.PIN, lock.pin, f"locked on commit {lock.base_commit}, is on {found}")
    head = positions.get("HEAD")
    if head == lock.commit == positions.get(BRANCH) and _chain_is_locked(lock, history):
        return
    if head is None:
        yield Finding(Mismatch.HISTORY, "HEAD", "names no commit")
        return
    if not checkout.on_our_branch():
        yield Finding(Mismatch.HISTORY, "HEAD", "is not on the branch dsv4port")
    commits = history.commits(head, lock.base_commit)
    if commits is None:
        yield Finding(Mismatch.HISTORY, head, "does not come from the pin by plain commits")
        return
    for patch, (commit, tree) in zip(lock.patches, commits, strict=False):
        if tree != patch.tree:
            reason = f"tree after the patch: locked {patch.tree}, found {tree}"
            yield Finding(Mismatch.HISTORY, patch.key, reason, (patch.key,))
        elif commit != patch.commit:
            reason = f"commit of the patch: locked {patch.commit}, found {commit}"
            yield Finding(Mismatch.HISTORY, patch.key, reason, (patch.key,))
    for patch in lock.patches[len(commits) :]:
        yield Finding(Mismatch.HISTORY, patch.key, "has no commit in the checkout", (patch.key,))
    for commit, _ in commits[len(lock.patches) :]:
        yield Finding(Mismatch.HISTORY, commit, "is a commit that no patch of the stack made")


def _chain_is_locked(lock: Lock, history: _History) -> bool:
    commits = history.commits(lock.commit, lock.base_commit)
    return commits == [(patch.commit, patch.tree) for patch in lock.patches]


def _rebuild(
    project: Project, lock: Lock, stack: ResolvedStack, checkout: Checkout
) -> Iterator[Finding]:
    """Apply the patch files once more, in memory, and compare every step with the lock."""
    from dsv4port.apply.engine import Engine, SeriesConflictError
    from dsv4port.git.pack import Rehearsal
    from dsv4port.git.reader import ObjectReader
    from dsv4port.patch.patch_id import patch_id

    with ObjectReader(checkout.git) as reader:
        if reader.find(lock.base_commit) is None:
            return
        engine = Engine(reader, Rehearsal(), lock.base_commit)
        identities = []
        for file in read_patch_files(stack):
            item = file.item(project)
            if not engine.apply(item).outcome.applied:
                reason = "; ".join(SeriesConflictError(engine.report()).details)
                yield Finding(Mismatch.REBUILT, file.place.key, reason, (file.place.key,))
                return
            identities.append(patch_id(item.patch.files))
        report = engine.report()
        rebuilt = {file.path: file for file in locked_files(engine, report)}
    if len(report.patches) != len(lock.patches):
        return  # reported as patch files that are missing or extra
    differences = list(compare_result(lock, report))
    for found in differences:
        reason = f"{found.what}: locked {found.expected}, found {found.found}"
        yield Finding(Mismatch.REBUILT, found.subject, reason, (found.subject,))
    if differences:
        return  # What the lock says of another result is no further news.
    for patch, identity in zip(lock.patches, identities, strict=True):
        if patch.patch_id != identity:
            reason = f"patch id: locked {patch.patch_id}, found {identity}"
            yield Finding(Mismatch.REBUILT, patch.key, reason, (patch.key,))
    for row in lock.files:
        again = rebuilt.get(row.path)
        # Other differences of a row are found without applying anything.
        if again is not None and (again.sha256, again.patches) != (row.sha256, row.patches):
            reason = "sha256 or patches of its row in the lock are not what the series gives"
            yield Finding(Mismatch.LOCK, display_path(row.path), reason, row.patches)


def _check_rows(lock: Lock, difference: Comparison) -> Iterator[Finding]:
    """Hold the lock's rows of files against the two trees that it names."""
    try:
        changed = difference.changed_entries()
    except GitError:
        return  # A tree is not in the checkout, which the history says already.
    for file in lock.files:
        before, after = changed.pop(file.path, (None, None))
        locked = (_entry(file.mode_before, file.before), _entry(file.mode, file.after))
        # A file that was changed and changed back is in no difference.
        if locked != (before, after) and not (before is after and locked[0] == locked[1]):
            yield Finding(
                Mismatch.LOCK, display_path(file.path),
                "its row in the lock is not what the locked trees hold", file.patches,
            )  # fmt: skip
    for path in changed:
        yield Finding(Mismatch.LOCK, display_path(path), "has no row in the lock")


def _entry(mode: int | None, identifier: str | None) -> Entry | None:
    return None if mode is None or identifier is None else Entry(mode, identifier)


def _check_hidden(checkout: Checkout, changes: Iterable[Change]) -> Iterator[Finding]:
    """Name what keeps untracked files out of git's sight without being part of the tree."""
    for path in excluded_paths(checkout.git):
        yield Finding(
            Mismatch.EXTRA, display_path(path), "is hidden by .git/info/exclude, not by the tree"
        )
    for change in changes:
        if change.state is ChangeState.IGNORED and change.path.rpartition(b"/")[2] == b".gitignore":
            yield Finding(
                Mismatch.EXTRA, display_path(change.path),
                "is not part of the tree, and hides itself and what it names",
            )  # fmt: skip


def _expected(lock: Lock, checkout: Checkout, *, deep: bool) -> dict[bytes, Entry | None]:
    """What must be on disk, by path: the touched files, or with `deep` every file."""
    expected: dict[bytes, Entry | None] = {}
    if deep:
        found = checkout.git.run("cat-file", "-t", lock.tree, accept=(0, 128))
        if found.text == "tree":
            expected.update(checkout.repository.list_tree(lock.tree))
    for file in lock.files:
        expected[file.path] = _entry(file.mode, file.after)
    return expected


_OF_DISK = {
    DiskState.MISSING: (Mismatch.MISSING, "is not there"),
    DiskState.CONTENT: (Mismatch.CONTENT, "has other content"),
    DiskState.MODE: (Mismatch.MODE, "has another executable bit"),
    DiskState.TYPE: (Mismatch.TYPE, "is of another type"),
}

_OF_CHANGE = {
    ChangeState.MODIFIED: (Mismatch.CONTENT, "was modified"),
    ChangeState.DELETED: (Mismatch.MISSING, "is not there"),
    ChangeState.STAGED: (Mismatch.CONTENT, "is staged differently from the branch"),
    ChangeState.UNTRACKED: (Mismatch.EXTRA, "is not part of the tree"),
    ChangeState.UNMERGED: (Mismatch.CONTENT, "has an unresolved conflict"),
}


def _check_files(
    checkout: Checkout,
    expected: dict[bytes, Entry | None],
    changes: Iterable[Change],
    lock: Lock,
) -> Iterator[Finding]:
    owners = {file.path: file.patches for file in lock.files}
    reported = set()
    for path, entry in sorted(expected.items()):
        if entry is not None:
            state = checkout.disk_state(path, entry)
            if state is DiskState.SAME:
                continue
            kind, reason = _OF_DISK[state]
        elif has_file(checkout.path, path):
            kind, reason = Mismatch.EXTRA, "is there, although the stack removes it"
        else:
            continue
        reported.add(path)
        yield Finding(kind, display_path(path), reason, owners.get(path, ()))
    for change in changes:
        if change.state is ChangeState.IGNORED or change.path in reported:
            continue
        kind, reason = _OF_CHANGE[change.state]
        yield Finding(kind, display_path(change.path), reason, owners.get(change.path, ()))
