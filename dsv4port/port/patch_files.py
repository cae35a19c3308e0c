"""The patch file of a ported patch: the same author, date and message, and the new diff.

A patch whose diff did not change keeps its bytes, whatever form its mail had.
"""

from __future__ import annotations

from dsv4port.apply.engine import TOOL_EMAIL, TOOL_NAME
from dsv4port.git.objects import encode_commit
from dsv4port.patch.model import Identity, Patch
from dsv4port.patch.write import diff_to_bytes, format_mailbox

_NOBODY = Identity(TOOL_NAME, TOOL_EMAIL, 0, b"+0000")


def author_of(patch: Patch) -> Identity:
    """The author of a patch; of a plain diff this tool."""
    return patch.author or _NOBODY


def message_of(patch: Patch, file: str) -> bytes:
    """The message of a patch; of a plain diff the name of its file."""
    return patch.message if patch.message is not None else file.encode() + b"\n"


def patch_bytes(old: bytes, patch: Patch, diff: bytes) -> bytes:
    """The file of a patch with another diff.

    Parameters:
        old: the file as it was; it is kept where the diff is the same.
        patch: what it says.
        diff: the new diff, as git writes it; not empty.
    """
    if diff_to_bytes(patch.files) == diff:
        return old
    if patch.message is None:
        # No mail before, no mail now: there is no author or date to carry.
        return patch.preamble + diff
    return format_mailbox(author=author_of(patch), message=patch.message, diff=diff)


def commit_bytes(patch: Patch, file: str, tree: str, parent: str) -> bytes:
    """A commit of the patch. Ids do not depend on time or machine."""
    author = author_of(patch)
    committer = Identity(TOOL_NAME, TOOL_EMAIL, author.timestamp, author.zone)
    return encode_commit(
        tree=tree, parents=(parent,), author=author.encode(), committer=committer.encode(),
        message=message_of(patch, file),
    )  # fmt: skip
