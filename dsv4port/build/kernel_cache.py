"""Compiled libraries by what they were compiled from, shared by all projects of a user.

::

    kernels/<key>/library.so
    kernels/<key>/entry.json        sha256 and size; an entry without it is none

The key is a hash of everything that decides about the bytes. An entry comes into being by one
rename, and its library is hashed before it is used: one that is damaged is removed and made anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from dsv4port.build.workplace import STAGING
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.files import sha256_of, writing

LIBRARY = "library.so"
_ENTRY = "entry.json"
_ABANDONED = 3600.0
"""Seconds after which an entry under construction belongs to a process that was killed."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A library in the cache whose content is what was stored."""

    library: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class KernelCache:
    """The cache in `folder`; made when something is stored."""

    folder: Path

    @classmethod
    def locate(cls) -> KernelCache:
        """The part of the user's cache that kernels have."""
        return cls(Cache.locate().folder / "kernels")

    def contains(self, key: str) -> bool:
        """Whether there is an entry; says nothing about its content."""
        return (self.folder / key / _ENTRY).is_file()

    def find(self, key: str) -> Hit | str | None:
        """The entry, None where there is none, or why it cannot be used; then it was removed."""
        entry = self.folder / key
        if not entry.is_dir():
            return None
        try:
            row = json.loads((entry / _ENTRY).read_bytes())
            digest, size = str(row["sha256"]), int(row["size"])
            found = sha256_of(entry / LIBRARY)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if found == digest:
                return Hit(entry / LIBRARY, digest, size)
            problem = f"sha256 is {found}, stored was {digest}"
        with writing(entry):
            shutil.rmtree(entry)
        return problem

    def store(self, key: str, library: Path) -> None:
        """Put a library into the cache; an entry of the same key that is there already stays.

        Raises:
            EnvironmentProblemError: the cache cannot be written.
        """
        entry = self.folder / key
        row = {"sha256": sha256_of(library), "size": library.stat().st_size}
        with writing(entry), self._unfinished() as folder:
            shutil.copyfile(library, folder / LIBRARY)
            (folder / _ENTRY).write_text(json.dumps(row) + "\n")
            for file in folder.iterdir():
                _sync(file)
            try:
                folder.rename(entry)
            except OSError:
                # Another process was faster; both compiled the same.
                if not entry.is_dir():
                    raise

    @contextlib.contextmanager
    def _unfinished(self) -> Iterator[Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(f"{STAGING}-*"):
            with contextlib.suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(leftover)
        folder = self.folder / f"{STAGING}-{os.getpid()}-{os.urandom(3).hex()}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
