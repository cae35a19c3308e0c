"""``patchsets/<name>/<pin>/series``: which patch files of the folder are applied, in order.

One file name a line. Blank lines and lines that start with ``#`` are kept when it is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.listing import SERIES_FILE, Listing, is_entry, parse_listing, read_listing
from dsv4port.manifest.patchset import Patchset
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_name,
    check_patch_file,
    check_unique,
    shown,
)
from dsv4port.quick_dataclass import dataclass

PATCH_SUFFIXES = (".patch", ".diff")


@dataclass(frozen=True, slots=True)
class Series:
    """The ordered patch files of one patchset for one pin.

    ``lines`` is the file split at its line feeds, comments and blank lines included, so that
    writing gives the file back byte for byte; ``entries`` is derived from it.
    """

    patchset: Name
    pin: Name
    folder: Path
    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name("patchset", self.patchset)
        check_name("pin", self.pin)
        for line in self.lines:
            if "\n" in line or "\r" in line:
                raise FieldError("lines", f"holds a line end: {shown(line)}")
        for entry in self.entries:
            check_patch_file("lines", entry)
        check_unique("lines", self.entries)
        if not self.entries:
            raise FieldError("lines", "must name at least one patch")

    @property
    def entries(self) -> tuple[str, ...]:
        """The patch file names, in the order of application."""
        return tuple(line.strip() for line in self.lines if is_entry(line))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The patch files, in the order of application."""
        return tuple(self.folder / entry for entry in self.entries)

    @property
    def file(self) -> Path:
        """The series file."""
        return self.folder / SERIES_FILE

    def encode(self) -> bytes:
        """The content of the series file."""
        return "\n".join(self.lines).encode()

    def with_entries(self, entries: Iterable[str]) -> Series:
        """The series with these patch files instead.

        Comments stay above the entry they stand above. Those of a removed entry are kept too,
        above the next one that stays, or at the end; a first block that a blank line sets off
        stays at the top.
        """
        entries = tuple(entries)
        if entries == self.entries:
            return self
        head, above, tail = self._comments(frozenset(entries))
        lines = list(head)
        for entry in entries:
            lines += above.get(entry, ())
            lines.append(entry)
        return Series(self.patchset, self.pin, self.folder, (*lines, *tail, ""))

    def _comments(
        self, staying: frozenset[str]
    ) -> tuple[list[str], dict[str, list[str]], list[str]]:
        lines = list(self.lines[:-1] if self.lines[-1:] == ("",) else self.lines)
        first = next(index for index, line in enumerate(lines) if is_entry(line))
        blanks = [index for index, line in enumerate(lines[:first]) if not line.strip()]
        top = blanks[-1] + 1 if blanks else 0
        above: dict[str, list[str]] = {}
        waiting: list[str] = []
        for line in lines[top:]:
            if not is_entry(line):
                waiting.append(line)
            elif line.strip() in staying:
                above[line.strip()] = waiting
                waiting = []
        return lines[:top], above, waiting


def new_series(patchset: Name, pin: Name, folder: Path, entries: Iterable[str]) -> Series:
    """A series without comments. Raises BadInputError when the entries make no series."""
    return Series(patchset, pin, folder, (*entries, ""))


def load_series(project: Project, patchset: Patchset, pin: str) -> Series:
    """Read and check the series of ``patchset`` for ``pin``.

    Raises:
        BadInputError: the patchset has no series for that pin.
        ManifestError: the file is missing or malformed, names a missing file, a file twice or a
            file outside its folder, or leaves out a patch file that lies in the folder.
    """
    name = next((known for known in patchset.series if known == pin), None)
    if name is None:
        raise BadInputError(
            f"patchset {patchset.name} has no series for {shown(pin)}",
            fix=f"it has {', '.join(patchset.series)}; port one of them with `dsv4port port`",
        )
    folder = project.patchset_folder(patchset.name) / patchset.series[name]
    label = project.label(folder / SERIES_FILE)
    return _checked(read_listing(folder, label), patchset.name, name, folder)


def parse_series(data: bytes, label: str, patchset: Name, pin: Name, folder: Path) -> Series:
    """Like :func:`load_series`, from the bytes of the file; ``label`` names it in messages."""
    return _checked(parse_listing(data, label, folder), patchset, pin, folder)


def _checked(listing: Listing, patchset: Name, pin: Name, folder: Path) -> Series:
    """What is stricter here than in a folder of patches that is not ours."""
    for entry in listing.numbers:
        try:
            check_patch_file("series", entry)
        except FieldError as error:
            raise listing.failed(
                entry, error.problem, fix="rename the file, or take the line away"
            ) from error
        path = folder / entry
        # A link could bring in a file from outside, which no review of this folder would show.
        if path.is_symlink() or not path.is_file():
            raise listing.failed(
                entry,
                f"{shown(entry)} is not a regular file",
                fix="restore the file, or take the line away",
            )
    for path in sorted(folder.iterdir()):
        if path.name.endswith(PATCH_SUFFIXES) and path.name not in listing.numbers:
            raise listing.failed(
                list(listing.numbers)[-1],
                f"{shown(path.name)} lies in the folder but is not named: a patch file nobody "
                "applies",
                fix="add it to the series, or take the file away",
            )
    return Series(patchset, pin, folder, listing.lines)


def write_series(series: Series) -> None:
    """Write the series file, atomically. Raises OSError when the folder cannot be written to."""
    write_atomically(series.file, series.encode())
