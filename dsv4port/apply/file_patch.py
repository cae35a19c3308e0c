"""One file of a patch onto one tree entry: content, mode and existence, all checked."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4port.apply.hunks import HunkResult, apply_hunks
from dsv4port.git.objects import MODE_EXECUTABLE, MODE_FILE, MODE_SUBMODULE, blob_id
from dsv4port.patch.binary import apply_half
from dsv4port.patch.model import ChangeKind, FilePatch

_PLAIN = (MODE_FILE, MODE_EXECUTABLE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its git mode and content (a symbolic link's content is its target)."""

    mode: int
    content: bytes


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What a file patch makes of an entry.

    ``refusal`` is one sentence, None when applied. When applied, ``entry`` is what stands at
    ``file.new_path`` afterwards (None: the path is deleted) and ``blob_id`` its git blob id.
    """

    file: FilePatch
    entry: Entry | None
    blob_id: str | None
    hunks: tuple[HunkResult, ...]
    refusal: str | None

    @property
    def applied(self) -> bool:
        """Whether the patch of this file applied."""
        return self.refusal is None


def apply_file_patch(
    file_patch: FilePatch,
    target: Entry | None,
    *,
    base: bytes | None,
    preimage_is_target: bool,
    occupant: Entry | None = None,
) -> FileOutcome:
    """Apply one file patch.

    Parameters:
        target: the entry at ``old_path`` (for ADD: at ``new_path``) of the tree, None if absent.
        base: content of the blob ``file_patch.old_id``, None if it is not available.
        preimage_is_target: the caller knows that the target's blob is the preimage blob.
        occupant: for RENAME and COPY, the entry already at ``new_path``.
    """
    refusal = _unfit(file_patch, target, occupant)
    if refusal is not None:
        return FileOutcome(file_patch, None, None, (), refusal)
    if file_patch.binary is not None:
        return _binary(file_patch, target, preimage_is_target=preimage_is_target)
    before = target.content if target is not None else b""
    result = apply_hunks(
        before,
        file_patch.hunks,
        path=file_patch.old_path or file_patch.path,
        base=base,
        preimage_is_target=preimage_is_target or target is None,
    )
    if result.content is None:
        refused = sum(not hunk.outcome.applied for hunk in result.hunks)
        reason = f"{refused} of {len(result.hunks)} hunks do not apply"
        return FileOutcome(file_patch, None, None, result.hunks, reason)
    return _finish(file_patch, target, result.content, result.hunks, preimage_is_target)


def _unfit(found: FilePatch, target: Entry | None, occupant: Entry | None) -> str | None:
    """Why the tree is not one the patch can apply to, before any content is looked at."""
    if MODE_SUBMODULE in (found.old_mode, found.new_mode, target.mode if target else None):
        return "the patch changes a submodule, which a series cannot carry"
    if found.change is ChangeKind.ADD:
        if target is None:
            return None
        added = b"".join(line for hunk in found.hunks for line in hunk.new_lines)
        same = found.binary is None and target.content == added
        return "the file is there already" + (", with identical content" if same else "")
    if target is None:
        return "the file is not there"
    if occupant is not None:
        return "the new path is taken by another file"
    if found.old_mode is not None and found.old_mode != target.mode:
        return (
            f"the file has mode {target.mode:06o}, the patch was written for {found.old_mode:06o}"
        )
    changes_type = found.new_mode is not None and not (
        found.new_mode == target.mode or (found.new_mode in _PLAIN and target.mode in _PLAIN)
    )
    return "the patch changes the type of the file in place" if changes_type else None


def _binary(found: FilePatch, target: Entry | None, *, preimage_is_target: bool) -> FileOutcome:
    assert found.binary is not None
    if target is not None and not preimage_is_target:
        reason = "a binary patch applies only to the very file it was written for"
        return FileOutcome(found, None, None, (), reason)
    content = apply_half(found.binary.forward, target.content if target is not None else b"")
    return _finish(found, target, content, (), preimage_is_target)


def _finish(
    found: FilePatch,
    target: Entry | None,
    content: bytes,
    hunks: tuple[HunkResult, ...],
    preimage_is_target: bool,
) -> FileOutcome:
    if found.change is ChangeKind.DELETE:
        if content:
            reason = "the file holds more than the patch removes"
            return FileOutcome(found, None, None, hunks, reason)
        return FileOutcome(found, None, None, hunks, None)
    identifier = blob_id(content)
    known = preimage_is_target or target is None
    if known and found.new_id is not None and not identifier.startswith(found.new_id):
        reason = (
            f"the recorded postimage is {found.new_id} but the hunks give {identifier}: the patch "
            "was edited by hand; delete its `index` line to say that the hunks are what counts"
        )
        return FileOutcome(found, None, None, hunks, reason)
    mode = found.new_mode
    if mode is None:
        mode = target.mode if target is not None else MODE_FILE
    return FileOutcome(found, Entry(mode, content), identifier, hunks, None)
