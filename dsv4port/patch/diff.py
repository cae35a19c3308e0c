"""Parse the diff of a patch file, strictly: what is not understood is refused, never skipped.

Git's and GNU diff's own formats are read (``diff --git`` sections with extended headers, plain
``---``/``+++`` pairs, ``GIT binary patch``). Where ``git apply`` guesses or skips (wrong counts,
text after a hunk, names that disagree), this parser raises with file and line.

Time is linear in the size of the file. Limits: :data:`~dsv4port.patch.source.MAX_PATCH_BYTES`,
:data:`~dsv4port.patch.diff_hunks.MAX_HUNKS`, :data:`~dsv4port.patch.binary.MAX_INFLATED_BYTES`.
"""

from __future__ import annotations

from dsv4port.patch.diff_advice import FROM_GIT, mixed
from dsv4port.patch.diff_binary import BinaryParser
from dsv4port.patch.diff_checks import SeenPaths
from dsv4port.patch.diff_git import GitSection
from dsv4port.patch.diff_hunks import HunkParser
from dsv4port.patch.diff_plain import parse_plain_section, plain_header, starts_plain
from dsv4port.patch.diff_trailer import check_trailer
from dsv4port.patch.model import FilePatch
from dsv4port.patch.source import Source

_D = 0x64


def parse_diff(data: bytes, name: str) -> tuple[tuple[FilePatch, ...], bytes]:
    """Parse a diff that begins at the first byte.

    Parameters:
        data: the diff.
        name: how errors call it.

    Returns:
        Its file patches, and the trailer after the last of them.

    Raises:
        PatchFormatError: it is malformed, or does not begin with a file section.
        UnsafePathError: it would write outside the tree or into ``.git``.
    """
    source = Source(data, name)
    files, end = parse_diff_at(source, 0)
    return files, b"".join(source.lines[end:])


def starts_diff(source: Source, index: int) -> bool:
    """Whether a file section can begin at this line."""
    first = source.firsts[index]
    if first == _D:
        return source.lines[index].startswith(b"diff --git ")
    return first == 0x2D and starts_plain(source, index)


def parse_diff_at(source: Source, start: int) -> tuple[tuple[FilePatch, ...], int]:
    """Parse the diff that begins at line ``start`` and must go on to the end of the file.

    Returns:
        Its file patches, and the index of the first line of the trailer.

    Raises:
        PatchFormatError, UnsafePathError: as :func:`parse_diff`.
    """
    hunks, binaries, paths = HunkParser(source), BinaryParser(source), SeenPaths(source)
    files: list[FilePatch] = []
    git_style: bool | None = None
    at = start
    while at < len(source.lines):
        if source.firsts[at] == _D and source.lines[at].startswith(b"diff --git "):
            if git_style is False:
                raise mixed(source, at)
            git_style = True
            file, at = GitSection(source, hunks, binaries, at).parse()
        elif git_style is not True and (header := plain_header(source, at)) is not None:
            git_style = False
            file, at = parse_plain_section(source, hunks, at, header)
        else:
            break
        paths.add(file)
        files.append(file)
    if not files:
        raise source.error(at, "no diff starts here", fix=FROM_GIT)
    check_trailer(source, at, files[-1])
    return tuple(files), at
