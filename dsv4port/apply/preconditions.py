"""Hold the preconditions of a stack's patchsets against a pin's tree."""

from __future__ import annotations

from dsv4port.errors import PreconditionError
from dsv4port.git.objects import MODE_SUBMODULE, MODE_TREE, parse_commit
from dsv4port.git.reader import ObjectReader
from dsv4port.git.tree import TreeEditor
from dsv4port.manifest.stack import ResolvedStack, probe_preconditions


def check_preconditions(stack: ResolvedStack, reader: ObjectReader, commit: str) -> None:
    """Try every probe.

    Raises:
        PreconditionError: one does not hold; the details name all that do not, with the reason
            the manifest gives.
    """
    root = parse_commit(reader.read(commit)[1]).tree
    tree = TreeEditor(root, lambda identifier: reader.read(identifier)[1])

    def read(path: bytes) -> bytes | None:
        entry = tree.get(path)
        if entry is None or entry.mode in (MODE_TREE, MODE_SUBMODULE):
            return None
        return reader.read(entry.id)[1]

    failures = [
        f"{failure.patchset}: {failure.probe.path}: {failure.found}: {failure.probe.why}"
        for member in stack.members
        for failure in probe_preconditions(member.patchset, stack.pin.name, read)
    ]
    if failures:
        raise PreconditionError(
            f"stack {stack.stack.name} does not belong on {stack.pin.name}",
            fix="use a pin that the patchset supports, or port the patchset",
            details=failures,
        )
