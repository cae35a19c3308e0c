"""Does an installed copy (a wheel, a container's site-packages) hold what the lock says?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from dsv4port.apply.verify import Finding, Mismatch
from dsv4port.errors import BadInputError, UsageError
from dsv4port.git.checkout import DiskState, disk_state
from dsv4port.git.objects import MODE_SUBMODULE, MODE_SYMLINK, Entry
from dsv4port.git.on_disk import has_file
from dsv4port.manifest.lock import Lock, LockedFile
from dsv4port.patch.quote import display_path
from dsv4port.quick_dataclass import dataclass

DEFAULT_PREFIX = "vllm/"
"""The part of vLLM's tree that an installation holds."""


@dataclass(frozen=True, slots=True)
class InstalledReport:
    """The outcome for an installed copy; ``not_installed`` counts touched files outside it."""

    stack: str
    folder: Path
    prefix: str
    findings: tuple[Finding, ...]
    files_checked: int
    not_installed: int

    @property
    def holds(self) -> bool:
        """Whether every touched file is as locked."""
        return not self.findings


def verify_installed(lock: Lock, folder: Path, *, prefix: str = DEFAULT_PREFIX) -> InstalledReport:
    """Compare the files that the stack touches with a folder that is no git checkout.

    Parameters:
        folder: what stands for the tree's root there, for example ``site-packages``.
        prefix: only paths below it are installed; empty for all.

    Raises:
        BadInputError: the folder does not exist or holds no such package.
        UsageError: the stack touches nothing below the prefix, so the check could not fail.
    """
    if not folder.is_dir():
        raise BadInputError(
            f"no such folder: {folder}", fix="name the folder that holds the installed package"
        )
    if prefix and not (folder / prefix).is_dir():
        raise BadInputError(
            f"{folder} has no {prefix.rstrip('/')}",
            fix="name the folder that contains it (site-packages), or give another --prefix",
        )
    chosen = [file for file in lock.files if file.path.startswith(prefix.encode())]
    if not chosen:
        raise UsageError(
            f"stack {lock.stack} touches no file below `{prefix}`",
            fix="give the prefix under which the touched files are installed",
        )
    return InstalledReport(
        stack=lock.stack,
        folder=folder,
        prefix=prefix,
        findings=tuple(_check(chosen, folder)),
        files_checked=len(chosen),
        not_installed=len(lock.files) - len(chosen),
    )


def _check(files: list[LockedFile], folder: Path) -> Iterator[Finding]:
    for file in files:
        if file.mode == MODE_SUBMODULE:
            continue
        name = display_path(file.path)
        disk = folder / file.path.decode("utf-8", "surrogateescape")
        there = disk.is_symlink() or disk.exists()
        if file.sha256 is None:
            if has_file(folder, file.path):
                yield Finding(Mismatch.EXTRA, name, "is there, although the stack removes it",
                              file.patches)  # fmt: skip
        elif not there:
            yield Finding(Mismatch.MISSING, name, "is not there", file.patches)
        elif not disk.is_file():
            yield Finding(Mismatch.TYPE, name, "is no file", file.patches)
        elif _sha256(disk, file) != file.sha256:
            yield Finding(Mismatch.CONTENT, name, _difference(disk, file), file.patches)


def _sha256(disk: Path, file: LockedFile) -> str:
    # Installers may put a copy where the tree has a link; then the copy's content counts.
    if file.mode == MODE_SYMLINK and disk.is_symlink():
        return hashlib.sha256(str(disk.readlink()).encode("utf-8", "surrogateescape")).hexdigest()
    return hashlib.sha256(disk.read_bytes()).hexdigest()


def _difference(disk: Path, file: LockedFile) -> str:
    if file.before is not None and file.mode_before is not None:
        state = disk_state(disk, Entry(file.mode_before, file.before))
        if state in (DiskState.SAME, DiskState.MODE):
            return "is the pin's own file: not patched"
    return "has other content than the lock says"
