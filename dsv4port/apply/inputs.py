"""The files of a project that decide what a stack comes out as, and what they held."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.apply.messages import FILE_TRAILER, PATCHSET_TRAILER
from dsv4port.errors import BadInputError
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    from dsv4port.apply.engine import SeriesItem
    from dsv4port.manifest.project import Project
    from dsv4port.manifest.stack import ResolvedStack, StackPatch
    from dsv4port.patch.model import Patch

_PATCH_LIMIT = 256 << 20
"""Largest patch file that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A patch file of a stack, read. ``sha256`` is of its bytes."""

    place: StackPatch
    data: bytes
    sha256: str

    def parse(self, project: Project) -> Patch:
        """The patch in the file. Raises PatchFormatError."""
        from dsv4port.patch.mailbox import parse_patch

        return parse_patch(self.data, project.label(self.place.path))

    def item(self, project: Project) -> SeriesItem:
        """The patch as the engine takes it, with the trailers that say where it is from."""
        from dsv4port.apply.engine import SeriesItem

        trailers = ((PATCHSET_TRAILER, self.place.patchset), (FILE_TRAILER, self.place.file))
        return SeriesItem(self.place.key, self.parse(project), trailers)


def read_patch_files(stack: ResolvedStack) -> tuple[PatchFile, ...]:
    """Read every patch file of the stack, in order."""
    return tuple(_read(place) for place in stack.patches)


def _read(place: StackPatch) -> PatchFile:
    data = read_patch_bytes(place.path)
    return PatchFile(place, data, hashlib.sha256(data).hexdigest())


def read_patch_bytes(path: Path) -> bytes:
    """The bytes of a patch file.

    Raises:
        BadInputError: it cannot be read, or is larger than a patch can sensibly be.
    """
    try:
        # A series has hundreds of files; a buffered reader costs more than the reading.
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_size > _PATCH_LIMIT:
                raise BadInputError(
                    f"{path}: larger than {_PATCH_LIMIT >> 20} MiB",
                    fix="split the patch into smaller ones",
                )
            return file.readall()
    except OSError as error:
        raise BadInputError(
            f"{path}: cannot be read: {error.strerror}", fix="make it a file that can be read"
        ) from error
