"""The folder that keeps downloads and imported pins, shared by all checkouts of a user.

::

    downloads/<sha256>/<file name>      checked archives, and `.part` files of unfinished ones
    store.git/                          bare repository; one pack and one reference per import
    pins/<pin>-<source>.json            what was imported; written last
    staging/<pin>-<source>/             an import under construction
    locks/<key>.lock                    who works on what

An import is built in `staging`, and becomes part of the store in an order that makes every
moment a good one to die: pack, index, reference, record.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.errors import EnvironmentProblemError
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.files import (
    children,
    remove_file,
    remove_tree,
    sync_folder,
    write_atomically,
    writing,
)
from dsv4port.upstream.locks import exclusive, exclusive_if_free
from dsv4port.upstream.progress import NO_PROGRESS, Progress
from dsv4port.upstream.records import Record, is_foreign, read_record

if TYPE_CHECKING:
    from dsv4port.git.repository import Repository
    from dsv4port.manifest.pins import Pin

CACHE_VARIABLE = "DSV4PORT_CACHE"
"""Environment variable that names the cache's folder."""

_DAY = 86400.0
_DOWNLOAD_PATIENCE = 7 * _DAY
"""Seconds after which a download that nobody goes on with is given up."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `Cache.prune` did.

    Parameters:
        removed: names of entries, below the cache's folder.
        freed: bytes.
        busy: entries that stay because another process works on them.
        unused: imports that no pin to keep names, and that stay.
    """

    removed: tuple[str, ...]
    freed: int
    busy: tuple[str, ...]
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache in `folder`; nothing is created before something is to be stored."""

    folder: Path

    @classmethod
    def locate(cls) -> Cache:
        """``$DSV4PORT_CACHE``, else ``$XDG_CACHE_HOME/dsv4port``, else ``~/.cache/dsv4port``.

        Raises:
            EnvironmentProblemError: there is no home folder either.
        """
        named = os.environ.get(CACHE_VARIABLE)
        if named:
            return cls(Path(named).expanduser().absolute())
        # The XDG rules say that a relative path is to be ignored.
        shared = os.environ.get("XDG_CACHE_HOME", "")
        if Path(shared).is_absolute():
            return cls(Path(shared) / "dsv4port")
        try:
            return cls(Path.home() / ".cache" / "dsv4port")
        except RuntimeError as error:
            raise EnvironmentProblemError(
                "this user has no home folder to keep a cache in",
                fix=f"set {CACHE_VARIABLE} to a folder",
            ) from error

    @property
    def store(self) -> Path:
        """The bare repository that holds every imported pin."""
        return self.folder / "store.git"

    def download_folder(self, sha256: str) -> Path:
        """Where the archive with this hash is kept."""
        return self.folder / "downloads" / sha256

    def record_file(self, pin: str, source: str) -> Path:
        """Where the record of an import is kept."""
        return self.folder / "pins" / f"{pin}-{source}.json"

    def pack_files(self, pack: str) -> tuple[Path, Path]:
        """Pack and index of that name in the store, whether they exist or not."""
        folder = self.store / "objects" / "pack"
        return folder / f"pack-{pack}.pack", folder / f"pack-{pack}.idx"

    def find(self, pin: str, source: str) -> Record | None:
        """The record of an import whose pack is there; None when it has to be made."""
        record = read_record(self.record_file(pin, source))
        if record is None or (record.pin, record.source) != (pin, source):
            return None
        return record if all(file.is_file() for file in self.pack_files(record.pack)) else None

    def lock(
        self, key: str, *, what: str, progress: Progress = NO_PROGRESS
    ) -> contextlib.AbstractContextManager[None]:
        """Hold the lock `key` while the body runs; wait for another process that holds it."""
        return exclusive(self._lock_file(key), what=what, progress=progress)

    def import_key(self, pin: str, source: str) -> str:
        """The lock of one import."""
        return f"import-{pin}-{source}"

    def download_key(self, sha256: str) -> str:
        """The lock of one download."""
        return f"download-{sha256}"

    @contextlib.contextmanager
    def staging(self, pin: str, source: str) -> Iterator[Path]:
        """An empty folder for an import under construction; the caller holds the import's lock.

        What an earlier process left there, killed on the way, is removed first.
        """
        folder = self.folder / "staging" / f"{pin}-{source}"
        with writing(folder):
            remove_tree(folder)
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):
                remove_tree(folder)

    def create_store(self) -> None:
        """Make the bare repository, at once or not at all; does nothing where it is."""
        if (self.store / "HEAD").is_file():
            return
        with self._store_lock(), writing(self.store):
            if (self.store / "HEAD").is_file():
                return
            from dsv4port.git.process import Git

            half = self.folder / "staging" / "store.git"
            remove_tree(half)
            remove_tree(self.store)
            half.parent.mkdir(parents=True, exist_ok=True)
            Git().run(
                "init", "--quiet", "--bare", "--template=", "--object-format=sha1",
                "--initial-branch=none", str(half),
            )  # fmt: skip
            Git(half).run("config", "gc.auto", "0")
            half.rename(self.store)

    def register(self, record: Record, pack: Path, index: Path) -> None:
        """Move a finished pack into the store and make the import known.

        The caller holds the import's lock, and has checked that commit and tree are the right
        ones.

        Raises:
            EnvironmentProblemError: the cache cannot be written to.
        """
        self.create_store()
        stored_pack, stored_index = self.pack_files(record.pack)
        with self._store_lock(), writing(stored_pack):
            stored_pack.parent.mkdir(parents=True, exist_ok=True)
            pack.replace(stored_pack)
            index.replace(stored_index)
            sync_folder(stored_pack.parent)
            if record.shallow:
                self._change_shallow(add=record.commit)
            self._repository().update_references(
                [(record.reference, record.commit, None)], f"import {record.pin}"
            )
            write_atomically(self.record_file(record.pin, record.source), record.encode())

    def forget(self, pin: str, source: str) -> int:
        """Remove an import and return the bytes freed; the caller holds the import's lock.

        The pack stays where another import consists of the same one.

        Raises:
            EnvironmentProblemError: the cache cannot be written to.
        """
        file = self.record_file(pin, source)
        with self._store_lock(), writing(file):
            freed = remove_file(file)
            return freed + self._remove_unrecorded()

    def note_use(self, pin: str, source: str) -> None:
        """Remember that an import was used: the time of its record, to the day.

        A cache that cannot be written to, such as one that is mounted for reading, serves as well.
        """
        file = self.record_file(pin, source)
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _DAY:
                os.utime(file)

    def prune(self, keep: Iterable[Pin] = (), *, unused_days: int | None = None) -> Pruned:
        """Remove leftovers, and where asked for also imports that nobody uses.

        Leftovers are of no use to any project that shares the cache: imports that were given up
        half-way, damaged records, archives that are imported, and downloads that were not gone
        on with for a week. Checkouts hold their own links to the packs, so they stay whole. What
        another process works on is left alone, and so is what a newer version wrote.

        Parameters:
            keep: pins whose imports stay however long nobody used them.
            unused_days: remove every other import that was not used for so many days; None
                removes none.

        Raises:
            EnvironmentProblemError: the cache cannot be written to.
        """
        removed: list[str] = []
        busy: list[str] = []
        freed = 0
        if not self.folder.is_dir():
            return Pruned((), 0, (), ())
        others = self._others(tuple(keep))
        going = [*self._leftovers()]
        if unused_days is not None:
            going += [
                (f"import-{file.stem}", f"pins/{file.stem}")
                for file in others
                if _age(file) >= unused_days * _DAY
            ]
        with writing(self.folder):
            for key, name in going:
                with exclusive_if_free(self._lock_file(key)) as free:
                    if free:
                        freed += self._remove_entry(name)
                        removed.append(name)
                    else:
                        busy.append(name)
            with self._store_lock():
                freed += self._remove_unrecorded()
        unused = tuple(f"pins/{file.stem}" for file in others if file.is_file())
        return Pruned(tuple(removed), freed, tuple(busy), unused)

    def _others(self, keep: tuple[Pin, ...]) -> list[Path]:
        """Records of whole imports that no pin of `keep` names."""
        named = {f"{pin.name}-git" for pin in keep if pin.git is not None}
        named |= {f"{pin.name}-sdist" for pin in keep if pin.sdist is not None}
        return [file for file, record in self._records() if record and file.stem not in named]

    def _leftovers(self) -> Iterator[tuple[str, str]]:
        """(lock, name below the cache's folder) of what no project can use."""
        imported = set()
        for file, record in self._records():
            if record is not None:
                imported.add(record.sha256)
            elif not is_foreign(file):
                yield f"import-{file.stem}", f"pins/{file.stem}"
        for folder in children(self.folder / "staging"):
            key = "store" if folder.name == "store.git" else f"import-{folder.name}"
            yield key, f"staging/{folder.name}"
        for folder in children(self.folder / "downloads"):
            newest = min((_age(file) for file in children(folder)), default=_DOWNLOAD_PATIENCE)
            if folder.name in imported or newest >= _DOWNLOAD_PATIENCE:
                yield self.download_key(folder.name), f"downloads/{folder.name}"

    def _records(self) -> Iterator[tuple[Path, Record | None]]:
        """Every record with its file; None where it or its pack is damaged or missing."""
        for file in self._record_files():
            pin, _, source = file.stem.rpartition("-")
            yield file, self.find(pin, source)

    def _remove_unrecorded(self) -> int:
        """Remove packs, references and shallow marks that no record names; store lock held."""
        if not (self.store / "HEAD").is_file() or any(map(is_foreign, self._record_files())):
            return 0
        records = [record for record in map(read_record, self._record_files()) if record]
        named = {record.reference for record in records}
        repository = self._repository()
        for reference in repository.references("refs/pins/"):
            if reference not in named:
                repository.git.run("update-ref", "--no-deref", "-d", reference)
        packs = {path for record in records for path in self.pack_files(record.pack)}
        freed = 0
        # The index goes first: git takes a pack without one for no pack.
        for path in children(self.store / "objects" / "pack"):
            if path.suffix in (".idx", ".pack") and path not in packs:
                freed += remove_file(path)
        self._change_shallow(keep={record.commit for record in records if record.shallow})
        return freed

    def _remove_entry(self, name: str) -> int:
        room, _, entry = name.partition("/")
        if room == "pins":
            pin, _, source = entry.rpartition("-")
            return self.forget(pin, source)
        return remove_tree(self.folder / room / entry)

    def _record_files(self) -> list[Path]:
        return [file for file in children(self.folder / "pins") if file.suffix == ".json"]

    def _lock_file(self, key: str) -> Path:
        return self.folder / "locks" / f"{key}.lock"

    def _store_lock(self) -> contextlib.AbstractContextManager[None]:
        return self.lock("store", what="changing the store")

    def _repository(self) -> Repository:
        from dsv4port.git.repository import Repository

        return Repository(self.store, self.store)

    def _change_shallow(self, *, add: str | None = None, keep: set[str] | None = None) -> None:
        """Change which commits have their parents left out; store lock held."""
        file = self.store / "shallow"
        lines = set(file.read_text("ascii").split()) if file.is_file() else set()
        changed = lines if keep is None else lines & keep
        if add is not None:
            changed = changed | {add}
        if not changed:
            file.unlink(missing_ok=True)
        elif changed != lines:
            write_atomically(file, "".join(f"{line}\n" for line in sorted(changed)).encode())


def _age(file: Path) -> float:
    """Seconds since a file was changed; one that just went counts as new."""
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return 0.0
