"""Whether the files that decided a result are still what they were.

Separate from reading them for an apply: an apply that finds nothing to do reads no manifest and
no patch, and must not even import what would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.manifest.project import Project

if TYPE_CHECKING:
    from dsv4port.manifest.stack import ResolvedStack


def input_digests(project: Project, stack: ResolvedStack) -> tuple[tuple[str, str], ...]:
    """(path in the project, sha256) of everything the stack's result depends on.

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
        files.extend(member.series.paths)
        folders.append(member.series.folder)
    rows = [(project.label(file), _file_digest(file)) for file in files]
    rows += [(project.label(folder) + "/", _folder_digest(folder)) for folder in folders]
    return tuple(rows)


def inputs_hold(project: Project, digests: Iterable[tuple[str, str]]) -> bool:
    """Whether every input is as it was when `digests` was taken."""
    return all(
        (_folder_digest if path.endswith("/") else _file_digest)(project.root / path) == digest
        for path, digest in digests
    )


def _file_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "-"


def _folder_digest(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        return "-"
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()
