"""What to do about a malformed diff, where several parsers give the same advice."""

from __future__ import annotations

from dsv4port.errors import PatchFormatError
from dsv4port.patch.source import Source

FROM_GIT = "regenerate the patch with 'git format-patch --full-index --binary'"
FIX_COUNTS = "regenerate the patch from git, or correct the hunk and its counts by hand"


def cut_off(source: Source, index: int) -> PatchFormatError:
    """The error for a last line without a line end."""
    return source.error(
        index,
        "the last line has no line end: the patch is cut off",
        fix="get the whole file, or add the missing line feed if it is complete",
    )


def combined(source: Source, index: int) -> PatchFormatError:
    """The error for what ``git diff`` shows of a merge."""
    return source.error(
        index,
        "combined diff of a merge",
        fix="a merge cannot be a patch; make one against a single parent",
    )


def mixed(source: Source, index: int) -> PatchFormatError:
    """The error for git sections and plain sections side by side."""
    return source.error(
        index, "git sections and plain sections in one patch", fix="split them into two patches"
    )
