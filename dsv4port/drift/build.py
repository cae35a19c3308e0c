"""Make the index of a tree in an object store, reading only files that no earlier tree had."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from dsv4port.drift.extract import Extracted, extract, is_source
from dsv4port.drift.index import TreeIndex
from dsv4port.drift.store import FactStore
from dsv4port.git.objects import MODE_SUBMODULE, MODE_SYMLINK
from dsv4port.git.process import Git
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository
from dsv4port.upstream.progress import NO_PROGRESS, Progress

ASIDE = frozenset(("tests", "test", "docs", "examples", "benchmarks", "tools", "scripts", "vendor"))
"""Folders that are indexed only when a series touches or imports them."""

_PROCESSES = 2
_FEW = 24
"""So few files are read faster here than by other processes."""
_CHUNK = 48


def tree_listing(store: FactStore, repository: Repository, tree: str) -> dict[str, str]:
    """Blob ids by path of a tree."""
    known = store.listing(tree)
    if known is None:
        known = {
            path.decode("utf-8", "surrogateescape"): entry.id
            for path, entry in repository.list_tree(tree).items()
            if entry.mode not in (MODE_SUBMODULE, MODE_SYMLINK)
        }
        store.add_listing(tree, known)
        store.commit()
    return known


def complete(
    store: FactStore,
    git: Git,
    files: dict[str, str],
    folders: Collection[str] = (),
    *,
    label: str,
    progress: Progress = NO_PROGRESS,
) -> int:
    """Read the facts of every file that has none yet; returns how many that were.

    Parameters:
        files: blob ids by path.
        folders: top folders to read although they are in `ASIDE`.
        label: what the progress bar says.
    """
    missing = missing_files(store, files, folders)
    if not missing:
        return 0
    progress.start(label, len(missing), "files")
    for batch in _extracted(git, missing):
        store.add(batch)
        progress.advance(len(batch))
    store.commit()
    progress.finish()
    return len(missing)


def missing_files(
    store: FactStore, files: dict[str, str], folders: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(blob, path) of the source files without facts."""
    known = store.known()
    missing: dict[str, str] = {}
    for path, blob in files.items():
        top = path.partition("/")[0]
        if (
            blob not in known
            and is_source(path)
            and not (top.startswith(".") or (top in ASIDE and top not in folders))
        ):
            missing.setdefault(blob, path)
    return list(missing.items())


def tree_index(
    files: dict[str, str], store: FactStore, reader: ObjectReader, folders: Collection[str] = ()
) -> TreeIndex:
    """The index of a tree whose facts are complete; `folders` as in `complete`."""
    return TreeIndex(files, store, lambda blob: reader.read(blob)[1], ASIDE.difference(folders))


def _extracted(git: Git, missing: Sequence[tuple[str, str]]) -> Iterator[list[Extracted]]:
    if len(missing) <= _FEW:
        with ObjectReader(git) as reader:
            yield _read_chunk(reader, missing)
        return
    from multiprocessing import Pool

    chunks = [missing[start : start + _CHUNK] for start in range(0, len(missing), _CHUNK)]
    assert git.git_dir is not None
    with Pool(_PROCESSES, _begin, (git.git_dir,)) as pool:
        yield from pool.imap_unordered(_work, chunks)


def _read_chunk(reader: ObjectReader, chunk: Sequence[tuple[str, str]]) -> list[Extracted]:
    contents = reader.read_many([blob for blob, _ in chunk])
    return [
        extract(blob, path, data) for (blob, path), (_, data) in zip(chunk, contents, strict=True)
    ]


_reader: ObjectReader | None = None


def _begin(git_dir: Path) -> None:
    global _reader
    import gc
    import signal

    # Ctrl-C is the parent's to answer; syntax trees have no cycles worth looking for.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    _reader = ObjectReader(Git(git_dir))


def _work(chunk: Sequence[tuple[str, str]]) -> list[Extracted]:
    assert _reader is not None
    return _read_chunk(_reader, chunk)
