"""Port patch files in any git repository: writes objects, moves no reference, no work tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsv4port.apply.inputs import read_patch_bytes
from dsv4port.git.pack import PackWriter
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import open_repository
from dsv4port.port.engine import PortEngine, PortItem, PortReport, port_series
from dsv4port.port.outcomes import Policy
from dsv4port.port.reading import read_patches


def port_in_repository(
    repository: Path,
    base: str,
    onto: str,
    patches: Sequence[Path],
    *,
    policy: Policy | None = None,
    stop: bool = False,
) -> PortReport:
    """Port patch files written for ``base`` onto ``onto``, in order.

    Parameters:
        base, onto: revisions that name a tree or a commit.
        stop: end at the first conflict.

    Raises:
        BadInputError: no such repository, revision or file, or a malformed patch.
    """
    opened = open_repository(repository)
    items = [_read(path) for path in patches]
    trees = [opened.tree_id(name) for name in (base, onto)]
    with PackWriter(opened.objects) as pack, ObjectReader(opened.git) as reader:
        engine = PortEngine(
            reader, pack, *trees, policy=policy, changed=lambda: opened.changed_entries(*trees)
        )
        report = port_series(engine, items, stop=stop)
        pack.finish()
    return report


def _read(path: Path) -> PortItem:
    first, *more = read_patches(read_patch_bytes(path), str(path))
    return PortItem(str(path), first, tuple(more))
