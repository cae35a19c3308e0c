"""The work behind `ensure_pin`: get a source, turn it into a pack, check it, register it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.errors import BadInputError, EnvironmentProblemError, InternalError
from dsv4port.git.pack import PackWriter, Rehearsal
from dsv4port.upstream.deflate import DeflatingSink
from dsv4port.upstream.download import adopt, download, mismatch
from dsv4port.upstream.files import sha256_of, writing
from dsv4port.upstream.pins import check_tree
from dsv4port.upstream.progress import Progress
from dsv4port.upstream.records import Record
from dsv4port.upstream.tree import write_commit

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pin, SdistSource
    from dsv4port.upstream.cache import Cache

COMPRESSION = 1
"""zlib level of the packs: half the size of level 0 for half a second more per release."""


def import_sdist(pin: Pin, cache: Cache, *, from_path: Path | None, progress: Progress) -> Record:
    """Import a pin's archive, or the folder that it was extracted to.

    The caller holds the import's lock.
    """
    source = pin.sdist
    if source is None:
        raise InternalError("an sdist import needs an sdist source")
    if from_path is not None and from_path.is_dir():
        return _import_pack(pin, source, cache, from_path, progress)
    archive = cache.download_folder(source.sha256) / source.archive
    with cache.lock(
        cache.download_key(source.sha256), what=f"downloading {source.archive}", progress=progress
    ):
        _get_archive(source, archive, from_path, progress)
        return _import_pack(pin, source, cache, archive, progress)


def import_git(
    pin: Pin, cache: Cache, *, from_path: Path | None, mirror: str | None, progress: Progress
) -> Record:
    """Import the commit that a pin names in a git repository.

    The caller holds the import's lock.
    """
    from dsv4port.upstream.gitsource import fetch_commit

    source = pin.git
    if source is None:
        raise InternalError("a git import needs a git source")
    if from_path is not None:
        if not from_path.exists():
            raise _no_such_path(from_path)
        mirror = str(from_path.absolute())
    with cache.staging(pin.name, "git") as staging, writing(staging):
        fetched = fetch_commit(source, staging, mirror=mirror, progress=progress)
        check_tree(pin, "git", fetched.tree)
        record = Record(
            pin=pin.name,
            source="git",
            commit=fetched.commit,
            tree=fetched.tree,
            pack=fetched.pack.stem.removeprefix("pack-"),
            shallow=fetched.shallow,
            tag=source.tag,
            tag_object=fetched.tag_object,
        )
        cache.register(record, fetched.pack, fetched.index)
    return record


def check_given(pin: Pin, path: Path, progress: Progress) -> None:
    """Make sure that a given archive or extracted folder is the pin's.

    Raises:
        HashMismatchError: it is not.
        EnvironmentProblemError: it cannot be read.
    """
    if pin.sdist is None:
        raise InternalError("only an sdist can be given")
    if path.is_dir():
        from dsv4port.upstream.directory import import_directory

        _require_recorded_tree(pin.sdist, path)
        check_tree(pin, "sdist", import_directory(path, Rehearsal(), progress=progress))
        return
    try:
        found = sha256_of(path)
    except OSError as error:
        raise _no_such_path(path) from error
    if found != pin.sdist.sha256:
        raise mismatch(pin.sdist.sha256, found, str(path))


def _get_archive(
    source: SdistSource, archive: Path, from_path: Path | None, progress: Progress
) -> None:
    """Make `archive` the pinned file; it is there with the right hash afterwards."""
    if from_path is not None:
        adopt(from_path, archive, source.sha256, progress=progress)
        return
    if archive.is_file():
        found = sha256_of(archive)
        if found == source.sha256:
            return
        progress.notice(f"{archive} is damaged; downloading it again")
        archive.unlink()
    from dsv4port.upstream.http import Http
    from dsv4port.upstream.index import find_archive
    from dsv4port.upstream.pip_settings import read_pip_settings
    from dsv4port.upstream.retry import Patience

    settings = read_pip_settings()
    patience = Patience(settings.retries)
    with Http(settings) as http:
        location = find_archive(source, http, patience=patience, progress=progress)
        download(location, archive, source.sha256, http, patience=patience, progress=progress)


def _import_pack(
    pin: Pin, source: SdistSource, cache: Cache, content: Path, progress: Progress
) -> Record:
    """Turn an archive with the right hash, or a folder, into a registered pack."""
    from dsv4port.upstream.directory import import_directory
    from dsv4port.upstream.sdist import import_archive

    with cache.staging(pin.name, "sdist") as staging, writing(staging):
        with PackWriter(staging, compression=COMPRESSION) as writer:
            with DeflatingSink(writer, compression=COMPRESSION) as sink:
                if content.is_dir():
                    _require_recorded_tree(source, content)
                    tree = import_directory(content, sink, progress=progress)
                else:
                    tree = import_archive(content, sink, progress=progress)
                check_tree(pin, "sdist", tree)
                commit = write_commit(
                    sink, tree, name=source.name, version=source.version, sha256=source.sha256
                )
            pack = writer.finish()
        if pack is None:
            raise InternalError("an import wrote no objects")
        record = Record(
            pin=pin.name,
            source="sdist",
            commit=commit,
            tree=tree,
            pack=pack.name,
            sha256=source.sha256,
        )
        cache.register(record, pack.pack, pack.index)
    return record


def _require_recorded_tree(source: SdistSource, folder: Path) -> None:
    if source.tree is None:
        raise BadInputError(
            f"{folder} cannot be checked: the pin records no tree of {source.archive}",
            fix="give the archive itself, whose sha256 is recorded",
        )


def _no_such_path(path: Path) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        f"cannot read {path}", fix="name an archive, an extracted folder or a git repository"
    )
