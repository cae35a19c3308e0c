"""Apply a stack to a checkout: from the names in the manifests to the receipt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port import __version__
from dsv4port.apply.digests import input_digests, inputs_hold
from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.publish import (
    Made,
    OnRecovery,
    Recovered,
    Session,
    hold_checkout,
    now,
    publish,
)
from dsv4port.apply.receipt import AppliedPatch, Receipt, readable_receipt
from dsv4port.apply.steps import Step, reached
from dsv4port.errors import StaleLockError
from dsv4port.git.checkout import BRANCH, PUBLISHED, Checkout, add_pack, create_checkout
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.apply.engine import SeriesReport
    from dsv4port.apply.inputs import PatchFile
    from dsv4port.apply.locking import LockDifference
    from dsv4port.manifest.stack import MissingCompanion
    from dsv4port.upstream.pins import ImportedPin

_COMPRESSION = 0
"""zlib level of the new objects: compressing them would cost a fifth of the whole run, and they
are few beside the pin's."""


class ApplyOutcome(Enum):
    """What an apply did to the checkout."""

    PUBLISHED = "published"
    """The checkout holds the result now."""
    UNCHANGED = "unchanged"
    """It held it already, made from the very same files; nothing was written."""


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What an apply did.

    ``series`` is None when nothing had to be computed. ``saved`` is the recovery reference of a
    forced apply. ``companions`` are patchsets that the stack should have and has not.
    """

    outcome: ApplyOutcome
    checkout: Path
    receipt: Receipt
    series: SeriesReport | None
    saved: str | None
    recovered: Recovered | None
    companions: tuple[MissingCompanion, ...] = ()


@dataclass(frozen=True, slots=True)
class ResetReport:
    """What a reset did; ``changed`` is False when the checkout was at the pin already."""

    checkout: Path
    receipt: Receipt
    changed: bool
    saved: str | None
    recovered: Recovered | None


def apply_stack(
    project: Project,
    stack_name: str,
    checkout_path: Path,
    *,
    cache: Cache,
    force: bool = False,
    unlocked: bool = False,
    progress: Progress = NO_PROGRESS,
    on_recovery: OnRecovery | None = None,
) -> ApplyReport:
    """Make the checkout hold the pin of the stack with all its patches.

    Parameters:
        force: save what the user changed in the checkout under a recovery reference, then
            overwrite it.
        unlocked: do not ask for a lock, and do not compare with it.
        on_recovery: is told when an interrupted publish was finished first, also when the apply
            itself is refused afterwards.

    Raises:
        ConflictError: a patch does not apply; the checkout is as it was.
        StaleLockError: there is no lock, or files or result are not what it says.
        RefusedError: the checkout holds changes, is not ours, or is being written to.
        BadInputError: a manifest or patch is malformed, or a download is not what is recorded.
    """
    # A misspelled name is a better answer than anything below.
    project.stack_file(stack_name)
    with _writing(project, checkout_path, on_recovery) as held:
        session = held.session(checkout_path)
        if session is not None and not force:
            receipt = _unchanged(project, session.checkout, stack_name, unlocked)
            if receipt is not None:
                return ApplyReport(
                    ApplyOutcome.UNCHANGED, checkout_path, receipt, None, None, session.recovered
                )
        # Not at the top: an apply with nothing to do must not pay for what it does not use.
        from dsv4port.apply.engine import Engine, SeriesConflictError
        from dsv4port.apply.inputs import read_patch_files
        from dsv4port.apply.locking import compare_patch_files, compare_result
        from dsv4port.apply.preconditions import check_preconditions
        from dsv4port.git.pack import PackWriter
        from dsv4port.git.reader import ObjectReader
        from dsv4port.manifest.lock import load_lock
        from dsv4port.manifest.stack import resolve_stack
        from dsv4port.upstream.pins import ensure_pin

        stack = resolve_stack(project, stack_name)
        files = read_patch_files(stack)
        lock = None if unlocked else load_lock(project, stack_name)
        if lock is not None:
            _require_equal(stack_name, list(compare_patch_files(lock, files)))
        items = [file.item(project) for file in files]
        pin = ensure_pin(
            stack.pin, cache, source=lock.source.value if lock else None, progress=progress
        )
        if session is None:
            session = held.create(checkout_path, pin)
        checkout = session.checkout
        _provide(checkout, pin)
        # What changes after this look is still seen where it matters: publish compares every file
        # that it is about to write with what it must be.
        with checkout.look() as looking, ObjectReader(checkout.git) as reader:
            with PackWriter(checkout.repository.objects, compression=_COMPRESSION) as pack:
                check_preconditions(stack, reader, pin.commit)
                engine = Engine(reader, pack, pin.commit)
                engine.expect(items)
                progress.start(f"applying {stack_name}", len(items), "patches")
                for item in items:
                    if not engine.apply(item).outcome.applied:
                        progress.finish()
                        raise SeriesConflictError(engine.report())
                    progress.advance(1)
                progress.finish()
                series = engine.report()
                if lock is not None:
                    _require_equal(stack_name, list(compare_result(lock, series)))
                pack.finish()
            reached(Step.OBJECTS_WRITTEN)
            with checkout.repository.compare(pin.commit, series.commit) as difference:
                receipt = Receipt(
                    tool=__version__,
                    time=now(),
                    pin=stack.pin.name,
                    source=pin.source,
                    pin_commit=pin.commit,
                    stack=stack.stack.name,
                    commit=series.commit,
                    tree=series.tree,
                    locked=lock is not None,
                    patches=_applied_patches(files, series),
                    inputs=input_digests(project, stack, files),
                )
                made = Made(difference, engine.content, engine.folders())
                saved = publish(session, receipt, force=force, changes=looking.changes(), made=made)
        return ApplyReport(
            ApplyOutcome.PUBLISHED, checkout_path, receipt, series, saved, session.recovered,
            stack.missing_companions,
        )  # fmt: skip


def _applied_patches(files: Iterable[PatchFile], series: SeriesReport) -> tuple[AppliedPatch, ...]:
    return tuple(
        AppliedPatch(
            file.place.patchset,
            file.place.file,
            file.sha256,
            found.outcome.value,
            found.commit or "",
            found.tree or "",
        )
        for file, found in zip(files, series.patches, strict=True)
    )


def reset_checkout(
    project: Project,
    checkout_path: Path,
    pin: ImportedPin,
    *,
    force: bool = False,
    on_recovery: OnRecovery | None = None,
) -> ResetReport:
    """Make the checkout hold a bare pin (and make the checkout, where there is none).

    Parameters:
        on_recovery: as for `apply_stack`.

    Raises:
        RefusedError: the checkout holds changes, is not ours, or is being written to.
    """
    with _writing(project, checkout_path, on_recovery) as held:
        session = held.session(checkout_path)
        created = session is None
        if session is None:
            session = held.create(checkout_path, pin)
        checkout = session.checkout
        _provide(checkout, pin)
        receipt = Receipt(
            tool=__version__,
            time=now(),
            pin=pin.name,
            source=pin.source,
            pin_commit=pin.commit,
            stack=None,
            commit=pin.commit,
            tree=pin.tree,
            locked=False,
        )
        before = readable_receipt(checkout.state)
        at_pin = before is not None and before.commit == pin.commit and not checkout.changes()
        saved = publish(session, receipt, force=force)
        return ResetReport(checkout_path, receipt, created or not at_pin, saved, session.recovered)


@dataclass(slots=True)
class _Held:
    """Locks that stay held until the command ends."""

    locks: ExitStack
    on_recovery: OnRecovery | None

    def session(self, path: Path) -> Session | None:
        """The checkout at `path`, held; None when there is nothing there yet."""
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return None
        return self.locks.enter_context(hold_checkout(path, self.on_recovery))

    def create(self, path: Path, pin: ImportedPin) -> Session:
        """Make a checkout of the pin, and hold it."""
        create_checkout(path, pin.pack, pin.index, pin.commit, shallow=pin.shallow)
        return self.locks.enter_context(hold_checkout(path, self.on_recovery))


@contextmanager
def _writing(
    project: Project, checkout_path: Path, on_recovery: OnRecovery | None
) -> Iterator[_Held]:
    """One writer per project, and one that may create this checkout."""
    with ExitStack() as locks:
        locks.enter_context(exclusive(project.state_folder / "lock", f"the project {project.root}"))
        if not checkout_path.exists():
            beside = checkout_path.parent / f".{checkout_path.name}.dsv4port-lock"
            locks.enter_context(exclusive(beside, f"the checkout {checkout_path}"))
        yield _Held(locks, on_recovery)


def _unchanged(
    project: Project, checkout: Checkout, stack_name: str, unlocked: bool
) -> Receipt | None:
    """The receipt, when it and the checkout already are what an apply would make."""
    receipt = readable_receipt(checkout.state)
    if receipt is None or receipt.stack != stack_name or not (receipt.locked or unlocked):
        return None
    with checkout.look() as looking:
        positions = checkout.positions()
        in_place = {positions.get(name) for name in ("HEAD", BRANCH, PUBLISHED)} == {receipt.commit}
        if not in_place or not inputs_hold(project, receipt.inputs):
            return None
        return None if looking.changes() else receipt


def _provide(checkout: Checkout, pin: ImportedPin) -> None:
    add_pack(checkout, pin.pack, pin.index, shallow=pin.commit if pin.shallow else None)


def _require_equal(stack_name: str, differences: list[LockDifference]) -> None:
    if differences:
        raise StaleLockError(
            f"stack {stack_name} is not what its lock says",
            fix=f"review the change, then write the lock anew with `dsv4port lock {stack_name}`",
            details=[
                f"{found.subject}: {found.what}: locked {found.expected}, found {found.found}"
                for found in differences
            ],
        )
