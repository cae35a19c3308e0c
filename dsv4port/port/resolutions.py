"""Use of kept resolutions: only where every part of the key is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsv4port.apply.file_patch import Entry as File
from dsv4port.apply.file_patch import apply_file_patch
from dsv4port.errors import HashMismatchError
from dsv4port.git.objects import blob_id
from dsv4port.manifest.resolution import Resolution, ResolvedPath
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.model import ChangeKind, FilePatch
from dsv4port.patch.patch_id import patch_id
from dsv4port.patch.quote import display_path

Before = Callable[[bytes], tuple[File | None, File | None]]
"""A file in the base and in the target, as the next patch finds it."""


@dataclass(frozen=True, slots=True)
class StaleResolution:
    """A resolution of the very patch that cannot be used, and why."""

    resolution: Resolution
    why: str


def entry_text(file: File | None) -> str | None:
    """``<mode> <blob>`` of a file, None for none."""
    return None if file is None else f"{file.mode:06o} {blob_id(file.content)}"


def patch_paths(files: Iterable[FilePatch]) -> set[bytes]:
    """Every path that file patches name."""
    return {
        path
        for found in files
        for path in (found.old_path, found.new_path)
        if path is not None
    }  # fmt: skip


def choose(
    known: Sequence[Resolution], files: Sequence[FilePatch], before: Before
) -> tuple[Resolution | None, list[StaleResolution]]:
    """The resolution that is for exactly this patch on exactly this content.

    Returns:
        It, and those for the same patch on other content.
    """
    identity = patch_id(files)
    stale: list[StaleResolution] = []
    for one in known:
        if one.patch_id != identity:
            continue
        why = _mismatch(one, files, before)
        if not why:
            return one, []
        stale.append(StaleResolution(one, why))
    return None, stale


def _mismatch(one: Resolution, files: Sequence[FilePatch], before: Before) -> str:
    missing = patch_paths(files) - {path.path for path in one.paths}
    if missing:
        return f"it does not speak of {display_path(min(missing))}"
    for path in one.paths:
        base, ours = map(entry_text, before(path.path))
        if base != path.base:
            return f"{display_path(path.path)} is another file in the base now"
        if ours != path.ours:
            return f"{display_path(path.path)} is another file in the target now"
    return ""


def result_of(one: Resolution, before: Before) -> dict[bytes, File | None]:
    """What a resolution that fits makes of the target.

    Raises:
        HashMismatchError: its diff does not lead to the blobs that it names.
    """
    files, _ = parse_diff(one.diff, one.diff_name) if one.diff else ((), b"")
    changes = apply_strictly(files, lambda path: before(path)[1])
    for path in one.paths:
        result = changes[path.path] if path.path in changes else before(path.path)[1]
        if entry_text(result) != path.result:
            raise HashMismatchError(
                f"the resolution {one.key} does not lead to what it says for "
                f"{display_path(path.path)}",
                fix="restore its files, or remove them and resolve the patch again",
            )
    extra = changes.keys() - {path.path for path in one.paths}
    if extra:
        raise HashMismatchError(
            f"the resolution {one.key} changes {display_path(min(extra))}, which it does not name",
            fix="restore its files, or remove them and resolve the patch again",
        )
    return changes


def apply_strictly(
    files: Sequence[FilePatch], target: Callable[[bytes], File | None]
) -> dict[bytes, File | None]:
    """File patches onto the very blobs that they name.

    Raises:
        HashMismatchError: one does not apply there.
    """
    changes: dict[bytes, File | None] = {}
    vacated = {found.old_path for found in files if found.change is ChangeKind.DELETE}
    vacated |= {found.old_path for found in files if found.change is ChangeKind.RENAME}
    for found in files:
        source = found.old_path if found.old_path is not None else found.path
        here = None if found.change is ChangeKind.ADD and source in vacated else target(source)
        exact = (
            here is not None
            and found.old_id is not None
            and blob_id(here.content).startswith(found.old_id)
        )
        occupant = None
        if found.change in (ChangeKind.RENAME, ChangeKind.COPY) and found.path not in vacated:
            occupant = target(found.path)
        outcome = apply_file_patch(
            found, here, base=None, preimage_is_target=exact, occupant=occupant
        )
        if not outcome.applied:
            reasons = [hunk.reason for hunk in outcome.hunks if not hunk.outcome.applied]
            raise HashMismatchError(
                f"{display_path(found.path)}: {outcome.refusal or '; '.join(reasons)}",
                fix="make the change anew for the present content",
            )
        if found.change in (ChangeKind.DELETE, ChangeKind.RENAME):
            assert found.old_path is not None
            changes[found.old_path] = None
        if found.new_path is not None:
            changes[found.new_path] = outcome.entry
    return changes


def resolved_paths(
    files: Sequence[FilePatch], changes: Mapping[bytes, File | None], before: Before
) -> tuple[ResolvedPath, ...]:
    """The key and the result of a resolution: every path that the patch or the answer names."""
    rows = []
    for path in sorted(patch_paths(files) | changes.keys()):
        base, ours = before(path)
        result = changes.get(path, ours)
        rows.append(ResolvedPath(path, entry_text(base), entry_text(ours), entry_text(result)))
    return tuple(rows)
