"""Write patches: what was parsed byte for byte, and new mails in one canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsv4port.errors import BadInputError, InternalError, PatchFormatError
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.mail_render import Extras, render
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import FilePatch, Identity, Patch

_NAME = "new patch"


def file_to_bytes(file: FilePatch) -> bytes:
    """The section of one file, as it was parsed."""
    parts = [*file.header]
    if file.binary is not None:
        parts += file.binary.body
    for hunk in file.hunks:
        parts.append(hunk.header)
        parts += hunk.body
    return b"".join(parts)


def diff_to_bytes(files: Iterable[FilePatch]) -> bytes:
    """The diff that the files are parts of."""
    return b"".join(map(file_to_bytes, files))


def patch_to_bytes(patch: Patch) -> bytes:
    """The bytes that ``patch`` was parsed from."""
    if patch.raw is not None:
        return patch.raw
    return patch.preamble + diff_to_bytes(patch.files) + patch.trailer


def format_mailbox(*, author: Identity, message: bytes, diff: bytes) -> bytes:
    """One commit as a mail that reads back as the same author, message and diff.

    The form is that of ``git format-patch --zero-commit --no-stat --no-signature`` with a
    separator, so that ``git am --keep-cr --keep-non-patch`` makes the same commit wherever git
    can. Where the plain form would read back differently (a message that git would tidy or cut,
    a name that a header cannot hold), ``X-Dsv4port-...`` fields carry what is exact.

    Parameters:
        author: the author of the commit.
        message: the commit message.
        diff: a diff as git writes it, without anything before or after it.

    Raises:
        PatchFormatError: ``diff`` is empty or malformed, or the author holds a line feed or NUL.
        UnsafePathError: ``diff`` names a path that must not be written.
    """
    _, trailer = parse_diff(diff, _NAME)
    if trailer:
        raise PatchFormatError(f"{_NAME}: text after the diff", fix="pass the diff alone")
    if any(code in part for part in (author.name, author.email, author.zone) for code in b"\n\0"):
        raise PatchFormatError(
            f"{_NAME}: author holds a line feed or NUL", fix="give the commit a valid author"
        )
    for extras in _forms(message):
        for candidate in (extras, _with_author(extras)):
            try:
                mail = b"%s\n%s" % (render(author, message, candidate), diff)
                patch = parse_patch(mail, _NAME)
            except (BadInputError, ValueError):
                continue
            if (
                patch.author == author
                and patch.message == message
                and patch.trailer == b""
                and diff_to_bytes(patch.files) == diff
            ):
                return mail
    raise InternalError(
        "no form of the mail reads back as the commit",
        fix="report this with the output of 'git cat-file commit'",
    )


def _forms(message: bytes) -> Iterator[Extras]:
    """Plain first, then what more unusual messages need."""
    yield Extras()
    if message.count(b"\n\n"):
        yield Extras(inner_from=True)
    yield Extras(lines=True)
    yield Extras(lines=True, message=True)


def _with_author(extras: Extras) -> Extras:
    return Extras(extras.inner_from, extras.lines, extras.message, author=True)
