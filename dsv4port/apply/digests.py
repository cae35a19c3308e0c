"""Whether the files that decided a result are still what they were.

Separate from reading them for an apply: an apply that finds nothing to do reads no manifest and
no patch, and must not even import what would.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.manifest.project import Project

if TYPE_CHECKING:
    from dsv4port.apply.inputs import PatchFile
    from dsv4port.manifest.stack import ResolvedStack


def input_digests(
    project: Project, stack: ResolvedStack, patches: Iterable[PatchFile]
) -> tuple[tuple[str, str], ...]:
    """(path in the project, sha256) of everything the stack's result depends on.

    The digests of `patches` are of what was read: a file that changed since will be noticed.
    A path that ends in a slash is a folder; its digest is over the sorted names in it, so that a
    patch file which appears or disappears is noticed.
    """
    files = [
        project.pins_file,
        project.stack_file(stack.stack.name),
        project.lock_file(stack.stack.name),
    ]
    folders = []
    for member in stack.members:
        files.append(project.patchset_file(member.patchset.name))
        files.append(member.series.folder / "series")
        folders.append(member.series.folder)
    rows = [(project.label(file), _file_digest(file)) for file in files]
    rows += [(project.label(patch.place.path), patch.sha256) for patch in patches]
    rows += [(project.label(folder) + "/", _folder_digest(folder)) for folder in folders]
    return tuple(rows)


def inputs_hold(project: Project, digests: Iterable[tuple[str, str]]) -> bool:
    """Whether every input is as it was when `digests` was taken (there are always some)."""
    root = str(project.root)
    digests = tuple(digests)
    return bool(digests) and all(
        (_folder_digest if path.endswith("/") else _file_digest)(os.path.join(root, path))  # noqa: PTH118
        == digest
        for path, digest in digests
    )


def _file_digest(path: Path | str) -> str:
    try:
        # Hundreds of small files: a buffered reader costs more than the reading.
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return hashlib.sha256(file.readall()).hexdigest()
    except FileNotFoundError:
        return "-"


def _folder_digest(path: Path | str) -> str:
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208
    except FileNotFoundError:
        return "-"
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
