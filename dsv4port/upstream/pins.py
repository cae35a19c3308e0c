"""One call from a pin to its commit in the cache's object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dsv4port.errors import BadInputError, HashMismatchError
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pin
    from dsv4port.upstream.cache import Cache
    from dsv4port.upstream.records import Record

Source = Literal["sdist", "git"]
"""Where a pin's tree comes from; the two trees of one release differ."""


@dataclass(frozen=True, slots=True)
class ImportedPin:
    """A pin that is in the store.

    Parameters:
        commit: id of the pin's commit. For an sdist the same on every machine; for git the
            upstream commit itself.
        store: the bare repository; ``refs/pins/<name>/<source>`` is the commit there.
        pack: the one pack that holds all objects of the pin, and nothing else is needed.
        index: the index of that pack.
        shallow: the commit has parents that are not there: a repository that takes the pack over
            must list the commit in its ``shallow`` file.
        recorded: the manifest records the tree id, and it was equal.
        fetched: this call did the work; False when it was there already.
    """

    name: str
    source: Source
    commit: str
    tree: str
    store: Path
    pack: Path
    index: Path
    shallow: bool
    recorded: bool
    fetched: bool


def ensure_pin(
    pin: Pin,
    cache: Cache,
    *,
    source: Source | None = None,
    from_path: Path | None = None,
    mirror: str | None = None,
    deep: bool = False,
    progress: Progress = NO_PROGRESS,
) -> ImportedPin:
    """Make sure that a pin is in the store, and say where.

    Parameters:
        source: which source of the pin; None means the one that `from_path` or `mirror` is for,
            else the sdist where the pin has one, else git.
        from_path: an archive, an extracted folder, or a git repository to take it from instead
            of the network.
        mirror: where to fetch git sources from: a URL, or ``old=new`` to replace the start of
            the recorded one. None means ``DSV4PORT_GIT_MIRROR``, which has the same form.
        deep: read the whole pack of an earlier import and compare checksums; damaged ones are
            imported again.

    Raises:
        BadInputError: the pin has no such source, or the archive is not safe to unpack.
        HashMismatchError: archive, commit or tree differ from what the manifest records.
        NetworkError: it could not be fetched.
        EnvironmentProblemError: the cache cannot be written, or git fails.
    """
    chosen = _choose_source(pin, source, from_path, mirror)
    known = _known(pin, chosen, cache, deep=deep, progress=progress)
    if known is not None:
        if from_path is not None and chosen == "sdist":
            _compare_given(pin, from_path, progress)
        return _result(pin, known, cache, fetched=False)
    with cache.lock(
        cache.import_key(pin.name, chosen), what=f"importing {pin.name}", progress=progress
    ):
        # Whoever held the lock may have done the work.
        known = _known(pin, chosen, cache, deep=False, progress=progress)
        if known is not None:
            return _result(pin, known, cache, fetched=False)
        from dsv4port.upstream.importing import import_git, import_sdist

        if chosen == "sdist":
            record = import_sdist(pin, cache, from_path=from_path, progress=progress)
        else:
            record = import_git(pin, cache, from_path=from_path, mirror=mirror, progress=progress)
    return _result(pin, record, cache, fetched=True)


def _choose_source(
    pin: Pin, source: Source | None, from_path: Path | None, mirror: str | None
) -> Source:
    if source is None:
        # What is given says which it is for; otherwise the choice never depends on the machine.
        given_git = mirror is not None or (from_path is not None and _is_repository(from_path))
        return "git" if pin.sdist is None or (given_git and pin.git is not None) else "sdist"
    if (pin.sdist if source == "sdist" else pin.git) is None:
        other = "git" if source == "sdist" else "sdist"
        raise BadInputError(
            f"the pin {pin.name} has no {source} source",
            fix=f"use its {other} source, or add one to manifests/pins.yaml",
        )
    return source


def _is_repository(path: Path) -> bool:
    return (path / ".git").exists() or (path / "objects").is_dir()


def _known(
    pin: Pin, source: Source, cache: Cache, *, deep: bool, progress: Progress
) -> Record | None:
    """The record of an import of this very pin, None when it has to be made."""
    record = cache.find(pin.name, source)
    if record is None or not _is_of(record, pin, source):
        return None
    check_tree(pin, source, record.tree)
    if deep:
        from dsv4port.upstream.integrity import damage

        problem = damage(cache, record)
        if problem is not None:
            progress.notice(f"{problem}; importing {pin.name} again")
            with cache.lock(cache.import_key(pin.name, source), what=f"importing {pin.name}"):
                cache.forget(pin.name, source)
            return None
    cache.note_use(pin.name, source)
    return record


def _is_of(record: Record, pin: Pin, source: Source) -> bool:
    """Whether a record tells of the archive or commit that the pin names now."""
    if source == "sdist":
        assert pin.sdist is not None
        return record.sha256 == pin.sdist.sha256
    assert pin.git is not None
    if pin.git.commit is not None:
        return record.commit == pin.git.commit
    return record.tag == pin.git.tag and record.commit.startswith(pin.git.commit_prefix or "")


def check_tree(pin: Pin, source: Source, tree: str) -> bool:
    """Compare a tree id with the recorded one; says whether one is recorded.

    Raises:
        HashMismatchError: another one is recorded.
    """
    recorded = pin.sdist.tree if source == "sdist" and pin.sdist is not None else None
    if source == "git" and pin.git is not None:
        recorded = pin.git.tree
    if recorded is not None and recorded != tree:
        raise HashMismatchError(
            f"{pin.name}: the pin says that the {source} tree is {recorded}, it is {tree}",
            fix="correct `tree` in manifests/pins.yaml if the archive or commit is the right one",
        )
    return recorded is not None


def _compare_given(pin: Pin, path: Path, progress: Progress) -> None:
    """Refuse a given archive that is not the pin's, although it is not needed any more."""
    from dsv4port.upstream.importing import check_given

    check_given(pin, path, progress)


def _result(pin: Pin, record: Record, cache: Cache, *, fetched: bool) -> ImportedPin:
    source: Source = "sdist" if record.source == "sdist" else "git"
    pack, index = cache.pack_files(record.pack)
    return ImportedPin(
        name=record.pin,
        source=source,
        commit=record.commit,
        tree=record.tree,
        store=cache.store,
        pack=pack,
        index=index,
        shallow=record.shallow,
        recorded=check_tree(pin, source, record.tree),
        fetched=fetched,
    )
