"""The lines of a ``series`` file, ours or any other folder's: one patch file name a line.

Blank lines and lines that start with ``#`` say nothing. Options behind a name, as quilt knows
them, are refused: a strip level that is not obeyed would put a patch elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from dsv4port.errors import ManifestError
from dsv4port.manifest.values import shown
from dsv4port.quick_dataclass import dataclass

SERIES_FILE = "series"


@dataclass(frozen=True, slots=True)
class Listing:
    """A series file.

    Parameters:
        label: how messages name the file.
        lines: its text split at line feeds, comments and blank lines included.
        numbers: the patch file names in order, each with its line, from 1.
    """

    label: str
    lines: tuple[str, ...]
    numbers: dict[str, int]

    def failed(self, entry: str, problem: str, *, fix: str | None = None) -> ManifestError:
        """The error that says ``problem`` about the line of an entry."""
        return ManifestError(f"{self.label}:{self.numbers[entry]}: {problem}", fix=fix)


def is_entry(line: str) -> bool:
    """Whether a line of a series file names a patch."""
    text = line.strip()
    return bool(text) and not text.startswith("#")


def read_listing(folder: Path, label: str) -> Listing:
    """Read the series file of a folder; ``label`` names it in messages.

    Raises:
        ManifestError: as for :func:`parse_listing`, or the file cannot be read.
    """
    try:
        data = (folder / SERIES_FILE).read_bytes()
    except OSError as error:
        raise ManifestError(
            f"{label}:1: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    return parse_listing(data, label, folder)


def parse_listing(data: bytes, label: str, folder: Path) -> Listing:
    """Like :func:`read_listing`, from the bytes of the file.

    Raises:
        ManifestError: it is not UTF-8, has carriage returns, names nothing, or names a file twice,
            one outside of the folder, or one that is not there.
    """
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(
            f"{label}:{number}: is not UTF-8", fix="save the file as UTF-8"
        ) from error
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        where = f"{label}:{number}: "
        if "\r" in line:
            raise ManifestError(
                where + "has a carriage return", fix="save the file with Unix line ends"
            )
        if is_entry(line):
            _check(line.strip(), where, numbers, folder)
            numbers[line.strip()] = number
    if not numbers:
        raise ManifestError(f"{label}:1: names no patch", fix="name one patch file a line")
    return Listing(label, tuple(lines), numbers)


def _check(entry: str, where: str, numbers: dict[str, int], folder: Path) -> None:
    if "/" in entry or entry.startswith(".") or "\0" in entry:
        raise ManifestError(
            f"{where}{shown(entry)} is no name of a file in this folder",
            fix="put the patch file beside the series file, and name it alone",
        )
    if entry in numbers:
        raise ManifestError(
            f"{where}names {shown(entry)} again, after line {numbers[entry]}",
            fix="take one of the two lines away",
        )
    if (folder / entry).exists() or (folder / entry).is_symlink():
        return
    name, *rest = entry.split(None, 1)
    if rest and (folder / name).is_file():
        raise ManifestError(
            f"{where}has {shown(rest[0])} after the file name",
            fix="write the name alone; comments go on lines of their own, paths have a/ and b/",
        )
    raise ManifestError(
        f"{where}{shown(entry)} does not exist", fix="restore the file, or take the line away"
    )
