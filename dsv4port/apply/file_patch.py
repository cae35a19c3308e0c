"""One file of a patch onto one tree entry: content, mode and existence, all checked."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4port.apply.hunks import HunkResult
from dsv4port.patch.model import FilePatch


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


def blob_id(content: bytes) -> str:
    """The id git gives ``content``: sha1 over ``blob <length>\\0`` and the bytes, in hex."""
    raise NotImplementedError


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
    raise NotImplementedError
