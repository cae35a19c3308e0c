"""Where builds keep what they make, and who may write there.

::

    .dsv4port/build/kernels/<patchset>/     receipt.json, the libraries, build.log
    .dsv4port/build/targets/<target>/       current -> generations/<n>, build.log, deps/
    .dsv4port/build/locks/<what>.lock       who builds

A folder whose name starts with ``.staging`` belongs to a build under way, or to one that was
killed; whoever holds the lock may remove it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from dsv4port.git.flock import open_lock, take, wait_for
from dsv4port.manifest.project import Project
from dsv4port.upstream.progress import Progress

STAGING = ".staging"
"""How the name of an unfinished build's folder starts."""


def build_folder(project: Project) -> Path:
    """``.dsv4port/build``."""
    return project.state_folder / "build"


def kernels_folder(project: Project, patchset: str) -> Path:
    """Where the libraries of a patchset and their receipt lie."""
    return build_folder(project) / "kernels" / patchset


def target_folder(project: Project, target: str) -> Path:
    """Where the environments of a target lie."""
    return build_folder(project) / "targets" / target


@contextlib.contextmanager
def exclusive_build(project: Project, what: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one patchset's or target's builds; wait for whoever has it. OSError."""
    descriptor = open_lock(build_folder(project) / "locks" / f"{what}.lock")
    try:
        if not take(descriptor):
            progress.notice(f"waiting for another dsv4port that is building {what}")
            wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """A fresh folder in `parent` that is gone afterwards, as are those of killed builds.

    The caller holds the lock.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    folder = parent / f"{STAGING}-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove what killed builds left in a folder. The caller holds the lock."""
    for leftover in parent.glob(f"{STAGING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in parent.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
