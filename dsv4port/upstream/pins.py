"""One call from a pin to its commit in the cache's object store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dsv4port.upstream.progress import NO_PROGRESS, Progress

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pin
    from dsv4port.upstream.cache import Cache

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
        source: which source of the pin; None means the sdist where the pin has one, else git.
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
    raise NotImplementedError
