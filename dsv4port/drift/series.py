"""The drift of a series between two pins: from the patches to the findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from dsv4port.drift.applied import AppliedSeries
from dsv4port.drift.build import ASIDE, complete, missing_files, tree_index, tree_listing
from dsv4port.drift.compare import Comparison
from dsv4port.drift.extract import extract, is_source
from dsv4port.drift.findings import Concern, Finding
from dsv4port.drift.index import TreeIndex
from dsv4port.drift.match import find_drift
from dsv4port.drift.meaning import Meaning, meaning_findings
from dsv4port.drift.native_uses import native_uses
from dsv4port.drift.python_uses import python_uses
from dsv4port.drift.store import FactStore, memory_store, open_store
from dsv4port.drift.uses import Use, UseKind
from dsv4port.errors import EnvironmentProblemError
from dsv4port.git.objects import blob_id
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin
from dsv4port.upstream.progress import NO_PROGRESS, Progress

INDEX_FILE = ("drift", "symbols.sqlite")
"""Where the facts lie in the cache folder."""


@dataclass(frozen=True, slots=True)
class Built:
    """What making an index took: files that had to be read."""

    pin: str
    read: int


class Workbench:
    """Indexes of pins, made on demand and kept in the cache folder. Use as a context manager.

    Where the cache cannot be written, the index lives in memory and ends with the command.
    """

    def __init__(self, cache: Cache, progress: Progress = NO_PROGRESS) -> None:
        self._cache = cache
        self._progress = progress
        self._exit = ExitStack()
        self._store: FactStore | None = None
        self._reader: ObjectReader | None = None
        self._kept = True
        self.built: list[Built] = []

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    @property
    def repository(self) -> Repository:
        """The object store with all pins."""
        return Repository(self._cache.store, self._cache.store)

    @property
    def reader(self) -> ObjectReader:
        """Objects of that store."""
        if self._reader is None:
            self._reader = self._exit.enter_context(ObjectReader(self.repository.git))
        return self._reader

    def index(self, pin: ImportedPin, folders: Iterable[str] = ()) -> TreeIndex:
        """The index of a pin's tree; `folders` as in :func:`dsv4port.drift.build.complete`."""
        return self.tree(pin.tree, folders, label=pin.name)

    def tree(self, tree: str, folders: Iterable[str] = (), *, label: str = "tree") -> TreeIndex:
        """The index of a tree of the store by its id."""
        store = self._opened()
        files = tree_listing(store, self.repository, tree)
        wanted = ASIDE.intersection(folders)
        if not store.is_complete(tree, wanted):
            if missing_files(store, files, wanted):
                self._complete(store, files, wanted, label)
            store.mark_complete(tree, wanted)
            store.commit()
        return tree_index(files, store, self.reader, wanted)

    def _complete(
        self, store: FactStore, files: dict[str, str], folders: frozenset[str], label: str
    ) -> None:
        with ExitStack() as held:
            if self._kept:
                held.enter_context(
                    self._cache.lock("drift", what="reading symbols", progress=self._progress)
                )
            read = complete(
                store, self.repository.git, files, folders, label=f"reading symbols of {label}",
                progress=self._progress,
            )  # fmt: skip
        self.built.append(Built(label, read))

    def learn(self, applied: AppliedSeries) -> None:
        """Keep the facts of the files that a series makes, so that the next run has them."""
        store = self._opened()
        missing = [
            (path, content)
            for path, content in applied.contents.items()
            if content is not None and is_source(path) and store.facts(blob_id(content)) is None
        ]
        if missing and self._kept:
            with self._cache.lock("drift", what="reading symbols", progress=self._progress):
                store.add(extract(blob_id(content), path, content) for path, content in missing)
                store.commit()

    def _opened(self) -> FactStore:
        if self._store is None:
            try:
                with self._cache.lock("drift-file", what="opening the index"):
                    store = open_store(self._cache.folder.joinpath(*INDEX_FILE))
            except EnvironmentProblemError as error:
                self._progress.notice(f"{error.what}; it is made in memory for this run")
                store, self._kept = memory_store(), False
            self._store = self._exit.enter_context(store)
        return self._store


def folders_of(applied: AppliedSeries) -> frozenset[str]:
    """Folders beside the packages that a series touches or imports from."""
    found = {path.partition("/")[0] for path in applied.files if is_source(path)}
    for path, one in applied.files.items():
        if path.endswith(".py") and one.content is not None:
            found.update(name.decode() for name in _IMPORTED_ASIDE.findall(one.content))
    return frozenset(found & ASIDE)


_IMPORTED_ASIDE = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+(%s)\b" % "|".join(sorted(ASIDE)).encode(), re.MULTILINE
)


def series_uses(old: TreeIndex, applied: AppliedSeries) -> Iterator[Use]:
    """Everything of upstream's that the lines of a series use."""
    patched = old.with_files(applied.contents)
    for path, one in applied.files.items():
        where = Concern(one.first.patch, path, 0, one.first.patch_line)
        kind = UseKind.FILE if path in old.files else UseKind.NEW_FILE
        if kind is UseKind.FILE or one.content is not None:
            yield Use(kind, where, subject=path)
        if one.content is None or not is_source(path):
            continue
        read = python_uses if path.endswith((".py", ".pyi")) else native_uses
        yield from read(old, patched, path, one.changed(), one.edited())


def drift_of_series(
    old: TreeIndex,
    new: TreeIndex,
    applied: AppliedSeries,
    *,
    meanings: Sequence[Meaning] = (),
    comparison: Comparison | None = None,
) -> list[Finding]:
    """Findings for a series that is applied to `old` and is to be carried to `new`.

    Parameters:
        applied: the series on its pin, from :func:`dsv4port.drift.applied.apply_to_pin`.
        meanings: entries of the curated file that lie between the two pins.
        comparison: of the same two indexes, where the caller has one.

    Returns:
        Most severe first; none at all when the trees are equal.
    """
    if old.files == new.files:
        return []
    uses = list(series_uses(old, applied))
    findings = list(find_drift(old, new, uses, comparison=comparison))
    findings += meaning_findings(meanings, uses, applied.added_lines())
    return sorted(findings, key=lambda one: one.sort_key)
