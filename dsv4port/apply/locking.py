"""Make a stack's lock, and hold a result against one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dsv4port import __version__
from dsv4port.apply.inputs import PatchFile, read_patch_files
from dsv4port.git.objects import MODE_SUBMODULE, Entry
from dsv4port.manifest.lock import Lock, LockedFile, LockedPatch, SourceKind
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.apply.engine import Engine, SeriesReport
    from dsv4port.manifest.project import Project
    from dsv4port.manifest.stack import ResolvedStack
    from dsv4port.upstream.pins import ImportedPin


@dataclass(frozen=True, slots=True)
class LockDifference:
    """One thing that is not as the lock says. ``subject`` is a patch key, or ``result``."""

    subject: str
    what: str
    expected: str
    found: str


def make_lock(project: Project, stack: ResolvedStack, pin: ImportedPin) -> Lock:
    """What the stack comes out as on the pin, computed in memory.

    Raises:
        SeriesConflictError: a patch does not apply.
        PreconditionError: a patchset does not belong on the pin.
    """
    # Not at the top: a verify compares with a lock and must not pay for what makes one.
    from dsv4port.apply.engine import Engine, SeriesConflictError
    from dsv4port.apply.preconditions import check_preconditions
    from dsv4port.git.pack import Rehearsal
    from dsv4port.git.process import Git
    from dsv4port.git.reader import ObjectReader
    from dsv4port.patch.patch_id import patch_id

    files = read_patch_files(stack)
    parsed = [file.parse(project) for file in files]
    with ObjectReader(Git(pin.store)) as reader:
        check_preconditions(stack, reader, pin.commit)
        engine = Engine(reader, Rehearsal(), pin.commit)
        for file in files:
            if not engine.apply(file.item(project)).outcome.applied:
                raise SeriesConflictError(engine.report())
        report = engine.report()
        touched = tuple(locked_files(engine, report))
    patches = []
    for file, patch, applied in zip(files, parsed, report.patches, strict=True):
        assert applied.commit is not None and applied.tree is not None
        patches.append(
            LockedPatch(
                file.place.patchset,
                file.place.file,
                file.sha256,
                patch_id(patch.files),
                applied.commit,
                applied.tree,
            )
        )
    return Lock(
        tool=__version__,
        stack=stack.stack.name,
        pin=stack.pin.name,
        source=SourceKind(pin.source),
        base_tree=pin.tree,
        base_commit=pin.commit,
        tree=report.tree,
        commit=report.commit,
        patches=tuple(patches),
        files=touched,
    )


def locked_files(engine: Engine, report: SeriesReport) -> Iterator[LockedFile]:
    """The rows of a lock for the files that a series touched, sorted by path."""
    for path, change in report.touched.items():
        before, after = change.before, change.after
        yield LockedFile(
            path=path,
            mode_before=before.mode if before else None,
            before=before.id if before else None,
            mode=after.mode if after else None,
            after=after.id if after else None,
            sha256=_content_digest(engine, after),
            patches=change.patches,
        )


def _content_digest(engine: Engine, entry: Entry | None) -> str | None:
    if entry is None or entry.mode == MODE_SUBMODULE:
        return None
    return hashlib.sha256(engine.content(entry.id)).hexdigest()


def compare_patch_files(lock: Lock, files: Sequence[PatchFile]) -> Iterator[LockDifference]:
    """Differences between the stack's patch files and the lock, before anything is applied."""
    locked = {patch.key: patch for patch in lock.patches}
    present = {file.place.key: file for file in files}
    for key in locked.keys() - present.keys():
        yield LockDifference(key, "patch file", "in the stack", "not in the stack")
    for key in present.keys() - locked.keys():
        yield LockDifference(key, "patch file", "not in the lock", "in the stack")
    for key, file in present.items():
        if key in locked and locked[key].sha256 != file.sha256:
            yield LockDifference(key, "sha256 of the patch file", locked[key].sha256, file.sha256)
    order = [key for key in locked if key in present]
    found = [key for key in present if key in locked]
    if order != found:
        moved = next(a for a, b in zip(found, order, strict=True) if a != b)
        yield LockDifference(moved, "order of the patches", ", ".join(order), ", ".join(found))


def compare_result(lock: Lock, report: SeriesReport) -> Iterator[LockDifference]:
    """Differences between what a series came out as and the lock."""
    if lock.base_tree != report.base_tree:
        yield LockDifference("pin", "tree", lock.base_tree, report.base_tree)
    for locked, found in zip(lock.patches, report.patches, strict=True):
        if locked.tree != found.tree:
            yield LockDifference(locked.key, "tree after the patch", locked.tree, found.tree or "-")
        elif locked.commit != found.commit:
            yield LockDifference(
                locked.key, "commit of the patch", locked.commit, found.commit or "-"
            )
    if lock.tree != report.tree:
        yield LockDifference("result", "tree", lock.tree, report.tree)
