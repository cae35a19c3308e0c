"""Strict apply on any git repository: writes objects, moves no reference, touches no work tree."""

from __future__ import annotations

from pathlib import Path

from dsv4port.apply.engine import SeriesItem, SeriesReport, apply_series
from dsv4port.apply.inputs import read_patch_bytes
from dsv4port.errors import BadInputError
from dsv4port.git.objects import ObjectKind, encode_commit
from dsv4port.git.pack import PackWriter
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository, open_repository
from dsv4port.manifest.listing import SERIES_FILE, read_listing
from dsv4port.patch.mailbox import parse_patch

_PATCH_SUFFIXES = (".patch", ".diff")
_ANCHOR_IDENTITY = b"dsv4port <dsv4port@dsv4port.invalid> 0 +0000"


def apply_to_repository(repository: Path, onto: str, series: Path) -> SeriesReport:
    """Apply the patches of a folder on top of a tree or commit.

    Parameters:
        onto: a revision; a bare tree gets a parentless commit to stand on.
        series: a folder: its ``series`` file decides the order, without one the file names do.

    Returns:
        What became of each patch. Objects are written also when a patch was refused, as far as
        the series went.

    Raises:
        BadInputError: no such repository, revision or folder, or a malformed patch.
    """
    opened = open_repository(repository)
    names = series_names(series)
    items = [
        SeriesItem(name, parse_patch(read_patch_bytes(series / name), str(series / name)))
        for name in names
    ]
    with (
        PackWriter(opened.objects) as pack,
        ObjectReader(opened.git) as reader,
    ):
        base = _base_commit(opened, reader, onto)
        report = apply_series(reader, pack, base, items)
        pack.finish()
    return report


def series_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise BadInputError(f"no such folder: {folder}", fix="name a folder with patch files")
    if (folder / SERIES_FILE).exists():
        return list(read_listing(folder, str(folder / SERIES_FILE)).numbers)
    names = sorted(path.name for path in folder.iterdir() if path.suffix in _PATCH_SUFFIXES)
    if not names:
        raise BadInputError(
            f"{folder} holds no patches", fix="name a folder with *.patch files or a series file"
        )
    return names


def _base_commit(repository: Repository, reader: ObjectReader, onto: str) -> str:
    found = repository.git.run(
        "rev-parse", "--verify", "--quiet", "--end-of-options", f"{onto}^{{commit}}",
        accept=(0, 1, 128),
    )  # fmt: skip
    if found.code == 0:
        return found.text.splitlines()[-1]
    tree = repository.tree_id(onto)
    anchor = encode_commit(
        tree=tree, parents=(), author=_ANCHOR_IDENTITY, committer=_ANCHOR_IDENTITY,
        message=b"base tree\n",
    )  # fmt: skip
    return repository.write_object(ObjectKind.COMMIT, anchor)
