"""Where a checkout stands: read, never probed."""

from __future__ import annotations

import hashlib
from enum import Enum
from pathlib import Path

from dsv4port.apply.publish import OnRecovery, Recovered, hold_checkout, interrupted
from dsv4port.apply.receipt import Receipt, read_receipt
from dsv4port.git.checkout import BRANCH, PUBLISHED, RECOVERY, Change, Checkout, open_checkout
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass


class LockAgreement(Enum):
    """Whether the tree that was published is the one in the stack's lock."""

    SAME = "same"
    """It is."""
    DIFFERENT = "different"
    """It is not: the lock was written anew since, or the apply was unlocked."""
    NO_LOCK = "no-lock"
    """The stack has no lock."""
    NO_STACK = "no-stack"
    """A bare pin was published."""


@dataclass(frozen=True, slots=True)
class RecoveryReference:
    """Something that a forced command saved."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Where the checkout stands.

    ``receipt`` is None when there is no checkout yet, or nothing was published to it.
    ``head`` is the commit that is checked out, ``at_published`` whether that is the published
    one. ``operation`` names a git operation under way. ``lock`` is None without a receipt.
    """

    checkout: Path
    exists: bool
    receipt: Receipt | None = None
    head: str | None = None
    at_published: bool = False
    operation: str | None = None
    changes: tuple[Change, ...] = ()
    lock: LockAgreement | None = None
    recovery: tuple[RecoveryReference, ...] = ()
    recovered: Recovered | None = None

    @property
    def clean(self) -> bool:
        """Whether the checkout holds just what was published."""
        return self.at_published and not self.changes and self.operation is None


def checkout_status(
    project: Project, checkout_path: Path, *, on_recovery: OnRecovery | None = None
) -> StatusReport:
    """Read where a checkout stands; finishes an interrupted publish first, and tells of it.

    Raises:
        NotOurCheckoutError: something else is at that place.
    """
    if not checkout_path.exists():
        return StatusReport(checkout_path, exists=False)
    checkout = open_checkout(checkout_path)
    recovered = None
    if interrupted(checkout):
        with hold_checkout(checkout_path, on_recovery) as session:
            recovered = session.recovered
    with checkout.look() as looking:
        receipt = read_receipt(checkout.state)
        positions = checkout.positions()
        head, branch = positions.get("HEAD"), positions.get(BRANCH)
        return StatusReport(
            checkout=checkout_path,
            exists=True,
            receipt=receipt,
            head=head,
            at_published=head is not None and head == positions.get(PUBLISHED) == branch,
            operation=checkout.unfinished_operation(),
            lock=_agreement(project, receipt),
            recovery=_recovery(checkout),
            recovered=recovered,
            changes=tuple(looking.changes()),
        )


def _agreement(project: Project, receipt: Receipt | None) -> LockAgreement | None:
    if receipt is None:
        return None
    if receipt.stack is None:
        return LockAgreement.NO_STACK
    file = project.lock_file(receipt.stack)
    if not file.is_file():
        return LockAgreement.NO_LOCK
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if receipt.locked and (project.label(file), digest) in receipt.inputs:
        # Compared when it was applied, and the lock has not changed since: no need to read it.
        return LockAgreement.SAME
    from dsv4port.manifest.lock import load_lock

    same = load_lock(project, receipt.stack).tree == receipt.tree
    return LockAgreement.SAME if same else LockAgreement.DIFFERENT


def _recovery(checkout: Checkout) -> tuple[RecoveryReference, ...]:
    found = checkout.repository.references(RECOVERY)
    return tuple(RecoveryReference(name, commit) for name, commit in found.items())
