"""What must hold of a section as a whole, and of several sections together."""

from __future__ import annotations

from dsv4port.errors import PatchFormatError
from dsv4port.patch.diff_advice import FROM_GIT
from dsv4port.patch.model import ChangeKind, FilePatch
from dsv4port.patch.quote import display_path
from dsv4port.patch.source import Source

_FILE_TYPE = 0o170000


def check_whole_file(source: Source, file: FilePatch, index: int) -> None:
    """An addition has no old lines, a deletion no new ones, and each one hunk at most."""
    if file.change is ChangeKind.ADD:
        wrong = any(hunk.old_count for hunk in file.hunks)
        what = "a new file has lines to remove or keep"
    elif file.change is ChangeKind.DELETE:
        wrong = any(hunk.new_count for hunk in file.hunks)
        what = "a deleted file has lines left"
    else:
        return
    if wrong:
        raise source.error(index, what, fix=FROM_GIT)
    if len(file.hunks) > 1:
        raise source.error(index, "a new or deleted file has more than one hunk", fix=FROM_GIT)


class SeenPaths:
    """The paths that the sections of one patch write and remove so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.removed: dict[bytes, FilePatch] = {}
        self.written: dict[bytes, FilePatch] = {}

    def add(self, file: FilePatch) -> None:
        """Refuse two sections that speak of one path, except where git itself writes two."""
        if file.change in (ChangeKind.DELETE, ChangeKind.RENAME) and file.old_path is not None:
            gone, other = file.old_path, self.written.get(file.old_path)
            if other is not None and (
                file.change is ChangeKind.DELETE or other.change is ChangeKind.MODIFY
            ):
                raise self._twice(file, gone, other)
            if gone in self.removed:
                raise self._twice(file, gone, self.removed[gone])
            self.removed[gone] = file
        if file.new_path is not None:
            other = self.written.get(file.new_path)
            if other is None:
                other = self.removed.get(file.new_path)
                if other is not None and _may_replace(other, file):
                    other = None
            if other is not None:
                raise self._twice(file, file.new_path, other)
            self.written[file.new_path] = file

    def _twice(self, file: FilePatch, path: bytes, other: FilePatch) -> PatchFormatError:
        return self.source.error(
            file.line_number - 1,
            f"{display_path(path)} is changed twice in one patch, first at line"
            f" {other.line_number}",
            fix="merge the two sections, or split the patch",
        )


def _may_replace(gone: FilePatch, new: FilePatch) -> bool:
    """Whether git itself writes ``new`` at a path that ``gone`` takes away."""
    if gone.change is ChangeKind.RENAME:
        return new.change is not ChangeKind.MODIFY
    # A file that becomes a symlink is written as a deletion and an addition.
    return (
        new.change is ChangeKind.ADD
        and gone.old_mode is not None
        and new.new_mode is not None
        and gone.old_mode & _FILE_TYPE != new.new_mode & _FILE_TYPE
    )
