"""``patchsets/<name>/<pin>/series``: which patch files of the folder are applied, in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsv4port.manifest.patchset import Patchset
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import Name

SERIES_FILE = "series"
PATCH_SUFFIXES = (".patch", ".diff")

_ENTRY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*\.(?:patch|diff)")


@dataclass(frozen=True, slots=True)
class Series:
    """The ordered patch files of one patchset for one pin.

    ``lines`` is the file split at line ends, comments and blank lines included, so that writing
    gives the file back byte for byte; ``entries`` is derived from it.
    """

    patchset: Name
    pin: Name
    folder: Path
    lines: tuple[str, ...]

    @property
    def entries(self) -> tuple[str, ...]:
        """The patch file names, in the order of application."""
        raise NotImplementedError

    @property
    def paths(self) -> tuple[Path, ...]:
        """The patch files, in the order of application."""
        return tuple(self.folder / entry for entry in self.entries)

    def with_entries(self, entries: Iterable[str]) -> Series:
        """The series with these patch files; comments stay with the entries they stand above."""
        raise NotImplementedError


def load_series(project: Project, patchset: Patchset, pin: str) -> Series:
    """Read and check the series of ``patchset`` for ``pin``.

    Raises:
        BadInputError: the patchset has no series for that pin.
        ManifestError: the file is missing or malformed, names a missing file, a file twice or a
            file outside its folder, or leaves out a patch file that lies in the folder.
    """
    raise NotImplementedError


def write_series(series: Series) -> None:
    """Write the series file, atomically."""
    raise NotImplementedError
