"""One file of a patch onto one tree entry: content, mode and existence, all checked.

Nothing is overwritten, and nothing is taken as applied because it looks so: an added file must be
absent even if it is there with the same content, since only a receipt knows who put it there.
"""

from __future__ import annotations

from dsv4port.apply.hunk_result import HunkResult
from dsv4port.apply.hunks import apply_hunks
from dsv4port.errors import PatchFormatError
from dsv4port.git.objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_SUBMODULE,
    MODE_SYMLINK,
    blob_id,
)
from dsv4port.patch.model import BinaryMethod, ChangeKind, FilePatch
from dsv4port.quick_dataclass import dataclass

_MODES = frozenset({MODE_FILE, MODE_EXECUTABLE, MODE_SYMLINK, MODE_SUBMODULE})
_FULL_ID = 40
_SHOWN_ID = 12
_KINDS = {
    MODE_FILE: "a file",
    MODE_EXECUTABLE: "an executable file",
    MODE_SYMLINK: "a symbolic link",
    MODE_SUBMODULE: "a submodule",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a tree: its git mode and content (a symbolic link's content is its target)."""

    mode: int
    content: bytes

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"mode {self.mode:o} is no mode of a tree entry")


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


class _RefusedError(Exception):
    """Carries the reason, and the hunks as far as they were tried, to the one place of return."""

    def __init__(self, reason: str, hunks: tuple[HunkResult, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hunks = hunks


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
    try:
        if MODE_SUBMODULE in (file_patch.old_mode, file_patch.new_mode):
            raise _RefusedError("the patch changes a submodule, which is not supported")
        if file_patch.change is ChangeKind.ADD:
            return _add(file_patch, target)
        if target is None:
            raise _RefusedError("the file does not exist")
        _check_mode(file_patch, target)
        if file_patch.change is ChangeKind.DELETE:
            return _delete(file_patch, target, base, preimage_is_target)
        if occupant is not None:
            raise _RefusedError(
                f"the new path is taken by {_KINDS[occupant.mode]}"
                + (" with identical content" if occupant == target else "")
            )
        return _modify(file_patch, target, base, preimage_is_target)
    except _RefusedError as refused:
        return FileOutcome(file_patch, None, None, refused.hunks, refused.reason)


def _check_mode(patch: FilePatch, target: Entry) -> None:
    if target.mode == MODE_SUBMODULE:
        raise _RefusedError("the path is a submodule")
    if patch.old_mode is not None and patch.old_mode != target.mode:
        raise _RefusedError(
            f"the patch is for {_KINDS[patch.old_mode]} (mode {patch.old_mode:o}), but the path is "
            f"{_KINDS[target.mode]} (mode {target.mode:o})"
        )


def _add(patch: FilePatch, target: Entry | None) -> FileOutcome:
    if patch.binary is not None:
        content = _binary_content(patch, b"")
    elif any(hunk.old_lines for hunk in patch.hunks) or len(patch.hunks) > 1:
        raise _RefusedError("a patch that adds a file must have one hunk of added lines")
    else:
        content = b"".join(line for hunk in patch.hunks for line in hunk.new_lines)
    entry = Entry(MODE_FILE if patch.new_mode is None else patch.new_mode, content)
    if target is not None:
        same = target == entry
        raise _RefusedError(
            "the patch adds the file, but it is already there with "
            + ("identical content" if same else "other content or mode")
        )
    identifier = blob_id(content)
    _check_postimage(patch, identifier)
    hunks = apply_hunks(b"", patch.hunks, path=patch.path, base=b"").hunks
    return FileOutcome(patch, entry, identifier, hunks, None)


def _delete(
    patch: FilePatch, target: Entry, base: bytes | None, preimage_is_target: bool
) -> FileOutcome:
    hunks: tuple[HunkResult, ...] = ()
    if patch.binary is not None:
        _check_binary_preimage(patch, target)
        if _binary_content(patch, target.content):
            raise _RefusedError("the patch deletes the file, but its binary data leaves content")
    else:
        if any(hunk.new_lines for hunk in patch.hunks):
            raise _RefusedError("the patch deletes the file, but its hunks leave or add lines")
        stated = b"".join(line for hunk in patch.hunks for line in hunk.old_lines)
        if stated != target.content:
            # The hunks themselves say best where the file differs.
            found = apply_hunks(
                target.content,
                patch.hunks,
                path=patch.path,
                base=base,
                preimage_is_target=preimage_is_target,
            )
            raise _RefusedError(
                "the patch deletes the file, but the file is not what the patch removes",
                found.hunks,
            )
        hunks = apply_hunks(target.content, patch.hunks, path=patch.path, base=target.content).hunks
    return FileOutcome(patch, None, None, hunks, None)


def _modify(
    patch: FilePatch, target: Entry, base: bytes | None, preimage_is_target: bool
) -> FileOutcome:
    mode = target.mode if patch.new_mode is None else patch.new_mode
    if patch.binary is not None:
        _check_binary_preimage(patch, target)
        content = _binary_content(patch, target.content)
        identifier = blob_id(content)
        _check_postimage(patch, identifier)
        return FileOutcome(patch, Entry(mode, content), identifier, (), None)
    if not patch.hunks:
        return FileOutcome(patch, Entry(mode, target.content), blob_id(target.content), (), None)
    result = apply_hunks(
        target.content,
        patch.hunks,
        path=patch.path,
        base=base,
        preimage_is_target=preimage_is_target,
    )
    if result.content is None:
        refused = [hunk for hunk in result.hunks if not hunk.outcome.applied]
        count = (
            "the hunk" if len(result.hunks) == 1 else f"{len(refused)} of {len(result.hunks)} hunks"
        )
        raise _RefusedError(f"{count} cannot be placed: {refused[0].reason}", result.hunks)
    identifier = blob_id(result.content)
    if preimage_is_target:
        _check_postimage(patch, identifier, result.hunks)
    return FileOutcome(patch, Entry(mode, result.content), identifier, result.hunks, None)


def _check_postimage(patch: FilePatch, identifier: str, hunks: tuple[HunkResult, ...] = ()) -> None:
    """The content made must be the one whose id the patch records, where it records one."""
    if patch.new_id is None or identifier.startswith(patch.new_id):
        return
    what = "hunks give" if patch.binary is None else "binary data gives"
    shown = max(len(patch.new_id[:_SHOWN_ID]), 7)
    raise _RefusedError(
        f"the recorded postimage is {patch.new_id[:_SHOWN_ID]} but the {what} "
        f"{identifier[:shown]}: the patch was edited by hand; delete its `index` line to say that "
        "the content is what counts, or refresh the patch",
        hunks,
    )


def _check_binary_preimage(patch: FilePatch, target: Entry) -> None:
    """Binary content cannot be placed: the target must be exactly what the patch was made for."""
    if patch.old_id is None or len(patch.old_id) < _FULL_ID:
        raise _RefusedError(
            "the binary patch does not name its preimage by a full id; make it with "
            "`git format-patch --binary --full-index`"
        )
    identifier = blob_id(target.content)
    if identifier != patch.old_id:
        raise _RefusedError(
            f"the binary patch is for {patch.old_id[:_SHOWN_ID]}, but the file is "
            f"{identifier[:_SHOWN_ID]}; binary changes are never merged"
        )


def _binary_content(patch: FilePatch, base: bytes) -> bytes:
    from dsv4port.patch.binary import apply_half

    assert patch.binary is not None
    half = patch.binary.forward
    if half.method is BinaryMethod.LITERAL and len(half.data) != half.size:
        raise _RefusedError("the binary data is not as long as it says")
    try:
        return apply_half(half, base)
    except PatchFormatError as error:
        raise _RefusedError(error.what) from error
