"""The trees that tests run on: checkouts of their own, which nobody works in."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.stack_apply import apply_stack, reset_checkout
from dsv4port.apply.verify import Finding, verify_checkout
from dsv4port.errors import BadInputError, InternalError, NotOurCheckoutError, RefusedError
from dsv4port.git.checkout import open_checkout
from dsv4port.manifest.lock import load_lock
from dsv4port.manifest.pins import load_pins
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.files import remove_tree
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.project import Project
    from dsv4port.upstream.cache import Cache


@dataclass(frozen=True, slots=True)
class TestedTree:
    """A checkout to run tests on, compared with its lock by content.

    Parameters:
        stack: None for a bare pin.
        tree: id of the tree that it holds.
        lock_sha256: of the stack's lock file; None for a bare pin.
        disposable: it is this room's own; one that the user named is not.
    """

    __test__ = False  # no test class, whatever pytest thinks of the name

    path: Path
    stack: str | None
    pin: str
    tree: str
    lock_sha256: str | None
    disposable: bool

    @property
    def label(self) -> str:
        """How people call it."""
        return self.stack or f"bare {self.pin}"

    def state(self) -> tuple[str, ...]:
        """Every path that differs from what was published, ignored files too."""
        changes = open_checkout(self.path).changes(ignored=True)
        return tuple(f"{one.state.value} {display_path(one.path)}" for one in changes)

    def discard(self) -> None:
        """Remove it, where that is ours to do: the next run makes it anew."""
        if self.disposable:
            remove_tree(self.path)


def patched_tree(
    project: Project, stack: str, *, cache: Cache, progress: Progress = NO_PROGRESS
) -> TestedTree:
    """A checkout of `stack` below the project's state folder; made or updated where needed.

    Raises:
        ConflictError, BadInputError, StaleLockError: as for `apply_stack`.
    """
    folder = _folder(project) / stack
    for last in (False, True):
        try:
            apply_stack(project, stack, folder, cache=cache, progress=progress)
            findings = verify_checkout(project, stack, folder).findings
        except RefusedError:
            # Only leftovers of an earlier run can be in the way here.
            if last:
                raise
            findings = None
        if findings == ():
            return _tested(project, stack, folder, disposable=True)
        remove_tree(folder)
    raise InternalError(f"a fresh checkout of {stack} does not verify", details=_lines(findings))


def given_tree(project: Project, stack: str, checkout: Path) -> TestedTree:
    """The user's own checkout of `stack`.

    Raises:
        BadInputError: it is not what the lock says.
        NotOurCheckoutError: the folder is something else.
    """
    findings = verify_checkout(project, stack, checkout).findings
    if findings:
        raise BadInputError(
            f"{checkout} is not {stack} as locked",
            fix=f"run `dsv4port apply {stack}` there, or leave out --checkout",
            details=_lines(findings),
        )
    return _tested(project, stack, checkout, disposable=False)


def bare_tree(
    project: Project, pin: str, source: str, *, cache: Cache, progress: Progress = NO_PROGRESS
) -> TestedTree:
    """A checkout of the pin without patches, below the project's state folder."""
    folder = _folder(project) / f"{pin}-{source}"
    imported = ensure_pin(
        load_pins(project).pin(pin), cache, source="git" if source == "git" else "sdist",
        progress=progress,
    )  # fmt: skip
    try:
        report = reset_checkout(project, folder, imported)
    except RefusedError:
        remove_tree(folder)
        report = reset_checkout(project, folder, imported)
    return TestedTree(folder, None, pin, report.receipt.tree, None, disposable=True)


def lock_source(project: Project, stack: str) -> str:
    """Which source of the pin a stack is locked on."""
    return load_lock(project, stack).source.value


def _tested(project: Project, stack: str, folder: Path, *, disposable: bool) -> TestedTree:
    lock = load_lock(project, stack)
    digest = hashlib.sha256(project.lock_file(stack).read_bytes()).hexdigest()
    if not (folder / "vllm" / "__init__.py").is_file():
        raise NotOurCheckoutError(
            f"{folder} has no vllm/__init__.py: it is no vLLM tree",
            fix="name the folder of a vLLM release, or of a checkout",
        )
    return TestedTree(folder, stack, lock.pin, lock.tree, digest, disposable)


def _folder(project: Project) -> Path:
    return project.state_folder / "test" / "trees"


def _lines(findings: tuple[Finding, ...] | None) -> list[str]:
    return [f"{one.kind.value} {one.subject}: {one.reason}" for one in findings or ()]
