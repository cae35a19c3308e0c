"""Write a patchset's files anew from the commits of the checkout.

The user edits commits in the checkout (amend, rebase, new ones on top). A commit's trailers say
which patch file it is. A file whose commit is untouched, or still says the same, keeps its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.messages import FILE_TRAILER, PATCHSET_TRAILER, without_trailers
from dsv4port.apply.publish import OnRecovery, hold_checkout
from dsv4port.apply.receipt import AppliedPatch, Receipt, read_receipt
from dsv4port.errors import RefusedError, UsageError
from dsv4port.git.checkout import Checkout
from dsv4port.git.objects import Commit, parse_commit
from dsv4port.git.reader import ObjectReader
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.project import Project
from dsv4port.manifest.series import Series, load_series, write_series
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import Identity, Patch
from dsv4port.patch.patch_id import patch_id
from dsv4port.patch.write import format_mailbox
from dsv4port.quick_dataclass import dataclass

_AUTHOR = re.compile(rb"(.*) <([^<>]*)> (-?\d+) ([+-]\d{4})\Z", re.DOTALL)
_SLUG_LIMIT = 52


class RefreshOutcome(Enum):
    """What a refresh makes of one patch file."""

    KEPT = "kept"
    """The commit still says what the file says; the bytes stay."""
    REWRITTEN = "rewritten"
    """The commit says something else; the file follows it."""
    ADDED = "added"
    """A commit without trailers; it becomes a new patch of the patchset."""
    DROPPED = "dropped"
    """Its commit is gone, and the caller asked for it to be dropped."""
    NOT_APPLIED = "not-applied"
    """The last apply did not have it, so nothing is known of it; it stays as it is."""


@dataclass(frozen=True, slots=True)
class RefreshedPatch:
    """One patch file and what became of it."""

    file: str
    outcome: RefreshOutcome


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh did, or with a dry run would do. ``lock_is_stale`` when files changed."""

    patchset: str
    pin: str
    patches: tuple[RefreshedPatch, ...]
    written: bool

    @property
    def lock_is_stale(self) -> bool:
        """Whether the stack's lock has to be written anew."""
        unchanged = (RefreshOutcome.KEPT, RefreshOutcome.NOT_APPLIED)
        return any(patch.outcome not in unchanged for patch in self.patches)


@dataclass(frozen=True, slots=True)
class _Found:
    """A commit of the checkout that belongs to the patchset; ``file`` is None for a new one."""

    commit: str
    parsed: Commit
    message: bytes
    file: str | None


def refresh_patchset(
    project: Project,
    patchset_name: str,
    checkout_path: Path,
    *,
    drop: Sequence[str] = (),
    dry_run: bool = False,
    on_recovery: OnRecovery | None = None,
) -> RefreshReport:
    """Write the patch files of `patchset_name` anew for the pin of the checkout.

    Parameters:
        drop: patch files whose commits are gone on purpose: their files and entries go too.
        dry_run: write nothing.
        on_recovery: is told when an interrupted publish was finished first.

    Raises:
        RefusedError: uncommitted changes, a git operation under way, merges, a history that does
            not come from the pin, or a commit that is gone without being named in `drop`.
        UsageError: the checkout holds no stack with this patchset, or `drop` names a patch that
            still has its commit, that the checkout never had, or without which none is left.
    """
    with (
        exclusive(project.state_folder / "lock", f"the project {project.root}"),
        hold_checkout(checkout_path, on_recovery) as session,
    ):
        checkout = session.checkout
        receipt = _receipt(checkout, patchset_name)
        _require_settled(checkout)
        found = list(_commits(checkout, receipt, patchset_name))
        series = load_series(project, load_patchset(project, patchset_name), receipt.pin)
        plan = _Plan(project, series, receipt, checkout, found, tuple(drop))
        return plan.run(dry_run=dry_run)


def _receipt(checkout: Checkout, patchset: str) -> Receipt:
    receipt = read_receipt(checkout.state)
    known = {patch.patchset for patch in receipt.patches} if receipt is not None else set()
    if receipt is None or patchset not in known:
        raise UsageError(
            f"the checkout holds no stack with the patchset {patchset}",
            fix="apply a stack that contains it first",
        )
    return receipt


def _require_settled(checkout: Checkout) -> None:
    operation = checkout.unfinished_operation()
    if operation is not None:
        raise RefusedError(f"{operation} is under way in the checkout", fix="finish or abort it")
    changes = checkout.changes()
    if changes:
        from dsv4port.patch.quote import display_path

        raise RefusedError(
            "the checkout holds changes that are in no commit",
            fix="commit or amend them first: patch files are made from commits",
            details=[display_path(change.path) for change in changes[:50]],
        )


def _commits(checkout: Checkout, receipt: Receipt, patchset: str) -> Iterator[_Found]:
    head = checkout.positions()["HEAD"]
    commits = checkout.repository.first_parents(head, receipt.pin_commit)
    if commits is None:
        raise RefusedError(
            "the checkout's history is not the pin and plain commits on top",
            fix="rebase the commits onto the pin; merges cannot become patches",
        )
    before = None
    with ObjectReader(checkout.git) as reader:
        for commit, _ in commits:
            parsed = parse_commit(reader.read(commit)[1])
            message, origin = without_trailers(parsed.message)
            owner = origin[0] if origin is not None else before
            if owner is None:
                owner = patchset
            before = owner
            if owner == patchset:
                yield _Found(commit, parsed, message, origin[1] if origin is not None else None)


class _Plan:
    """Decides and writes what the series becomes."""

    def __init__(
        self,
        project: Project,
        series: Series,
        receipt: Receipt,
        checkout: Checkout,
        found: list[_Found],
        drop: tuple[str, ...],
    ) -> None:
        self._project = project
        self._series = series
        self._checkout = checkout
        self._found = found
        self._drop = drop
        self._applied: dict[str, AppliedPatch] = {
            patch.file: patch for patch in receipt.patches if patch.patchset == series.patchset
        }
        self._contents: dict[str, bytes] = {}
        self._pin = receipt.pin

    def run(self, *, dry_run: bool) -> RefreshReport:
        self._check_names()
        rows = [self._decide(commit) for commit in self._found]
        order = [row.file for row in rows]
        seen = set(order)
        for position, entry in enumerate(self._series.entries):
            if entry in seen:
                continue
            if entry in self._applied:
                rows.append(RefreshedPatch(entry, RefreshOutcome.DROPPED))
            else:
                rows.append(RefreshedPatch(entry, RefreshOutcome.NOT_APPLIED))
                order.insert(self._behind(order, position), entry)
        if not order:
            raise self._emptied()
        report = RefreshReport(
            self._series.patchset, self._pin, tuple(rows), _writes(rows, dry_run)
        )
        if report.written:
            self._write(order, rows)
        return report

    def _check_names(self) -> None:
        names = [commit.file for commit in self._found if commit.file is not None]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise RefusedError(
                f"several commits say they are {sorted(twice)[0]}",
                fix="squash them, or remove the trailers from all but one",
            )
        self._check_drop(set(names))
        gone = [
            entry
            for entry in self._series.entries
            if entry in self._applied and entry not in names and entry not in self._drop
        ]
        if gone:
            raise RefusedError(
                f"{gone[0]} was applied, and no commit says it is that patch any more",
                fix="name it with --drop to remove it from the series, or restore its commit",
                details=gone,
            )

    def _check_drop(self, present: set[str]) -> None:
        """Only what was applied and has lost its commit can be dropped."""
        for name in self._drop:
            if name in present:
                raise UsageError(
                    f"cannot drop {name}: it still has its commit",
                    fix="take the commit out of the checkout first, for example with a rebase",
                )
            if name not in self._series.entries:
                raise UsageError(
                    f"cannot drop {name}: it is not in the series",
                    fix=f"the series has {', '.join(self._series.entries)}",
                )
            if name not in self._applied:
                lost = [entry for entry in self._applied if entry not in present]
                raise UsageError(
                    f"cannot drop {name}: the stack in the checkout was applied without it",
                    fix="leave --drop out for it, and take its file and its line in the series "
                    "away by hand",
                    details=[f"can be dropped: {entry}" for entry in lost],
                )

    def _emptied(self) -> UsageError:
        patchset, pin = self._series.patchset, self._pin
        return UsageError(
            f"{patchset} would have no patch left on {pin}; nothing was written",
            fix="keep one commit of it; or take the patchset out of the stacks that name it, and "
            f"then its series for {pin} out of its patchset.yaml",
            details=[f"without {entry}" for entry in self._series.entries],
        )

    def _decide(self, found: _Found) -> RefreshedPatch:
        if found.file is None:
            return self._decide_new(found)
        applied = self._applied.get(found.file)
        if applied is not None and applied.commit == found.commit:
            return RefreshedPatch(found.file, RefreshOutcome.KEPT)
        path = self._series.folder / found.file
        rendered = self._render(found)
        if path.exists() and _equivalent(path.read_bytes(), rendered, found.file):
            return RefreshedPatch(found.file, RefreshOutcome.KEPT)
        self._contents[found.file] = rendered
        return RefreshedPatch(found.file, RefreshOutcome.REWRITTEN)

    def _decide_new(self, found: _Found) -> RefreshedPatch:
        """What becomes of a commit that says of no patch file that it is that one."""
        rendered = self._render(found)
        named = {commit.file for commit in self._found}
        subject = _subject(found.message)
        for entry in self._series.entries:
            if entry in self._applied or entry in named:
                continue
            # An earlier refresh may have added it, and the stack was not applied since.
            content = (self._series.folder / entry).read_bytes()
            if _equivalent(content, rendered, entry):
                return RefreshedPatch(entry, RefreshOutcome.KEPT)
            if _subject(parse_patch(content, entry).message) == subject:
                raise RefusedError(
                    f"the commit {found.commit[:12]} has the subject of {entry}, which was not "
                    "applied: is it that patch, or another one?",
                    fix=f"for a new version of {entry}, add the trailers `{PATCHSET_TRAILER}: "
                    f"{self._series.patchset}` and `{FILE_TRAILER}: {entry}` to the commit's "
                    "message; for another patch, give it another subject",
                )
        file = self._new_name(found.message)
        self._contents[file] = rendered
        return RefreshedPatch(file, RefreshOutcome.ADDED)

    def _render(self, found: _Found) -> bytes:
        diff = self._checkout.git.run(
            "diff-tree", "-p", "--full-index", "--binary", "-M", "--no-ext-diff", "--no-textconv",
            "--no-color", found.parsed.parents[0], found.commit, "--",
        ).stdout  # fmt: skip
        if not diff:
            raise RefusedError(
                f"the commit {found.commit[:12]} changes nothing", fix="drop it with a rebase"
            )
        matched = _AUTHOR.match(found.parsed.author)
        if matched is None:
            raise RefusedError(
                f"the commit {found.commit[:12]} has no readable author",
                fix="make it anew with `git commit --amend --reset-author`",
            )
        name, email, timestamp, zone = matched.groups()
        author = Identity(name, email, int(timestamp), zone)
        return format_mailbox(author=author, message=found.message, diff=diff)

    def _new_name(self, message: bytes) -> str:
        subject = re.sub(r"^(\s*\[[^\]]*\])+", "", _subject(message).decode("utf-8", "replace"))
        slug = re.sub(r"[^a-z0-9]+", "-", subject.lower())[:_SLUG_LIMIT].strip("-") or "patch"
        taken = (*self._series.entries, *self._contents)
        numbers = [int(name[:4]) for name in taken if name[:4].isdigit()]
        return f"{max(numbers, default=0) + 1:04d}-{slug}.patch"

    def _behind(self, order: list[str], position: int) -> int:
        """Where an entry that nobody saw goes: behind the one it stands behind now."""
        for earlier in reversed(self._series.entries[:position]):
            if earlier in order:
                return order.index(earlier) + 1
        return 0

    def _write(self, order: list[str], rows: list[RefreshedPatch]) -> None:
        for leftover in self._series.folder.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)  # of a refresh that was killed
        for file, content in self._contents.items():
            write_atomically(self._series.folder / file, content)
        # The series is the switch: before it the new files are unused, after it the old ones.
        if tuple(order) != self._series.entries:
            write_series(self._series.with_entries(order))
        for row in rows:
            if row.outcome is RefreshOutcome.DROPPED:
                (self._series.folder / row.file).unlink(missing_ok=True)


def _subject(message: bytes | None) -> bytes:
    return (message or b"").partition(b"\n")[0].strip()


def _writes(rows: Sequence[RefreshedPatch], dry_run: bool) -> bool:
    """Whether a refresh with these rows writes anything."""
    unchanged = (RefreshOutcome.KEPT, RefreshOutcome.NOT_APPLIED)
    return not dry_run and any(row.outcome not in unchanged for row in rows)


def _equivalent(old: bytes, new: bytes, name: str) -> bool:
    """Whether two patch files say the same: author, message and diff; not the mail around it."""
    first, second = parse_patch(old, name), parse_patch(new, name)
    return (first.author, first.message) == (second.author, second.message) and _same_diff(
        first, second
    )


def _same_diff(first: Patch, second: Patch) -> bool:
    if patch_id(first.files) != patch_id(second.files):
        return False
    rows = [
        [
            (found.change, found.old_path, found.new_path, found.old_id, found.new_id,
             found.new_mode, [hunk.body for hunk in found.hunks])
            for found in patch.files
        ]
        for patch in (first, second)
    ]  # fmt: skip
    return rows[0] == rows[1]
