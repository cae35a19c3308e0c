"""Open a patch in conflict: a work tree with markers, and an index that git mergetool can read."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from dsv4port.apply.file_patch import Entry as File
from dsv4port.apply.steps import reached
from dsv4port.errors import UsageError
from dsv4port.git.checkout import BRANCH, Checkout, add_pack, create_checkout
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_SYMLINK, NULL_ID, ObjectKind
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.patch.quote import display_path
from dsv4port.port.explain import labels_of
from dsv4port.port.markers import marked, settled_file
from dsv4port.port.resolve_state import ResolveRoom, ResolveState
from dsv4port.port.series_input import find_input
from dsv4port.port.series_port import PortOptions, port_to_pin
from dsv4port.port.series_results import ConflictFile, Fate, PortedPatch, SeriesPort
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ensure_pin
from dsv4port.upstream.progress import NO_PROGRESS, Progress


class ResolveStep(Enum):
    """A point in a resolution; what has been done when it is reached."""

    WORKTREE_MADE = "resolve-worktree-made"
    """The work tree is there; nothing says so yet."""
    OPENED = "resolve-opened"
    """The state says what is open."""
    RESOLUTION_WRITTEN = "resolve-resolution-written"
    """The resolution's files are in the patchset; the series does not have it yet."""
    SERIES_WRITTEN = "resolve-series-written"
    """The series has it; the resolution is still open."""


def open_patch(
    project: Project,
    name: str,
    patch: str,
    old_pin: str | None,
    new_pin: str,
    cache: Cache,
    *,
    options: PortOptions,
    again: bool,
    progress: Progress = NO_PROGRESS,
) -> ResolveState:
    """Make the work tree for a patch. The caller holds the project's lock; nothing is open.

    Parameters:
        patch: ``<file>`` or ``<patchset>/<file>``.
        again: open it although it is not in conflict, or was decided before.

    Raises:
        UsageError: no such patch, or it needs no decision.
    """
    room = ResolveRoom(project)
    if room.worktree.exists():
        # Without a state nobody was told of it.
        shutil.rmtree(room.worktree)
    pins = load_pins(project)
    source = find_input(project, name, old_pin, new_pin, pins)
    keys = [one.key for member in source.members for one in member.patches]
    key = _the_patch(keys, patch, name)
    old = ensure_pin(pins.pin(source.old_pin), cache, progress=progress)
    new = ensure_pin(pins.pin(new_pin), cache, progress=progress)
    checkout = create_checkout(room.worktree, new.pack, new.index, new.commit, shallow=new.shallow)
    # The base of the first patch is the old pin itself.
    add_pack(checkout, old.pack, old.index, shallow=old.commit if old.shallow else None)
    if again:
        options = replace(options, without_resolutions=frozenset({key}))
    report = port_to_pin(
        project, pins, source, old, new,
        options=replace(options, range_diff=False, keep_in=checkout), progress=progress,
    )  # fmt: skip
    found, ours = _find(report, key)
    if found.fate is not Fate.CONFLICT and not again:
        room.close()
        raise UsageError(
            f"{key} is not in conflict on {new_pin}: {found.fate.value}",
            fix="add --again to decide it all the same",
        )
    unmerged = _prepare(checkout, report, found, ours)
    reached(ResolveStep.WORKTREE_MADE)
    state = ResolveState(
        name, source.old_pin, new_pin, found.source.patchset, found.source.file, ours,
        found.old_commit, unmerged,
        {rung.value: decision.value for rung, decision in options.policy.decisions.items()},
    )  # fmt: skip
    room.save(state)
    reached(ResolveStep.OPENED)
    return state


def _the_patch(keys: Sequence[str], patch: str, name: str) -> str:
    found = [key for key in keys if key == patch or key.partition("/")[2] == patch]
    if len(found) != 1:
        what = "several patches of that name" if found else "no such patch"
        raise UsageError(
            f"{name} has {what}: {patch}",
            fix=f"it has {', '.join(found or keys)}",
        )
    return found[0]


def _find(report: SeriesPort, key: str) -> tuple[PortedPatch, str]:
    """The patch, and the commit of the new series that it stands on."""
    ours = report.new.commit
    for member in report.members:
        for patch in member.patches:
            if patch.source.key == key:
                return patch, ours
            if patch.commit is not None:
                ours = patch.commit
    raise UsageError(
        f"{key} comes along from its own series for {report.new.name}",
        fix="resolve it with its own patchset",
    )


def _prepare(
    checkout: Checkout, report: SeriesPort, found: PortedPatch, ours: str
) -> dict[str, str | None]:
    """The work tree and index of a patch; returns what is unmerged."""
    checkout.read_tree("--reset", "-u", ours)
    checkout.repository.update_references([(BRANCH, ours, None)], "the series so far")
    # git mergetool's backups would be files that nobody asked for.
    checkout.git.run("config", "mergetool.keepBackup", "false")
    checkout.git.run("config", "merge.conflictStyle", "zdiff3")
    if found.fate is not Fate.CONFLICT:
        if found.commit is not None:
            checkout.read_tree("-m", "-u", ours, found.commit)
        return {}
    assert found.port is not None
    unmerged: dict[str, str | None] = {}
    labels = labels_of(report, found)
    for one in found.conflict:
        hunks = [hunk for hunk in found.port.hunks if hunk.path == one.patch.path]
        settled = None
        if all(hunk.outcome.done for hunk in hunks):
            settled = settled_file(one, hunks)
        if settled is not None:
            _write(checkout, one.path, settled[0])
            _stage(checkout, one.path, settled[0])
            continue
        text = marked(one, hunks, labels)
        shown = text if text is not None else (one.ours or one.theirs)
        _write(checkout, one.path, shown)
        _unmerge(checkout, one)
        digest = None if shown is None else hashlib.sha256(shown.content).hexdigest()
        unmerged[display_path(one.path)] = digest
    checkout.refresh_index()
    return unmerged


def _write(checkout: Checkout, path: bytes, file: File | None) -> None:
    target = checkout.disk_path(path)
    if file is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if file.mode == MODE_SYMLINK:
        target.symlink_to(os.fsdecode(file.content))
        return
    target.write_bytes(file.content)
    target.chmod(0o755 if file.mode == MODE_EXECUTABLE else 0o644)


def _stage(checkout: Checkout, path: bytes, file: File | None) -> None:
    _index(checkout, [index_row(checkout, path, file, 0)])


def _unmerge(checkout: Checkout, one: ConflictFile) -> None:
    rows = [b"0 %s\t%s\0" % (NULL_ID.encode(), one.path)]
    for stage, file in ((1, one.base), (2, one.ours), (3, one.theirs)):
        if file is not None:
            rows.append(index_row(checkout, one.path, file, stage))
    _index(checkout, rows)


def index_row(checkout: Checkout, path: bytes, file: File | None, stage: int) -> bytes:
    """A line for ``git update-index -z --index-info``; the content is written."""
    if file is None:
        return b"0 %s\t%s\0" % (NULL_ID.encode(), path)
    blob = checkout.repository.write_object(ObjectKind.BLOB, file.content)
    return b"%o %s %d\t%s\0" % (file.mode, blob.encode(), stage, path)


def _index(checkout: Checkout, rows: Sequence[bytes]) -> None:
    checkout.git.run("update-index", "-z", "--index-info", stdin=b"".join(rows))
