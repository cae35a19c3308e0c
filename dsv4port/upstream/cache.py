"""The folder that keeps downloads and imported pins, shared by all checkouts of a user.

::

    downloads/<sha256>/<file name>      checked archives, and `.part` files of unfinished ones
    store.git/                          bare repository; one pack and one reference per import
    pins/<pin>-<source>.json            what was imported; written last
    staging/<pin>-<source>/             an import under construction
    locks/<key>.lock                    who works on what
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pin


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `Cache.prune` removed: names of entries, bytes freed, and entries left as in use."""

    removed: tuple[str, ...]
    freed: int
    busy: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache in `folder`; nothing is created before something is to be stored."""

    folder: Path

    @classmethod
    def locate(cls) -> Cache:
        """``$DSV4PORT_CACHE``, else ``$XDG_CACHE_HOME/dsv4port``, else ``~/.cache/dsv4port``."""
        raise NotImplementedError

    @property
    def store(self) -> Path:
        """The bare repository that holds every imported pin."""
        return self.folder / "store.git"

    def prune(self, keep: Iterable[Pin]) -> Pruned:
        """Remove what the pins in `keep` do not need: other imports, downloads, leftovers.

        Checkouts hold their own links to the packs, so they stay whole.
        """
        raise NotImplementedError
