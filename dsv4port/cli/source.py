"""The option that chooses a source of a pin."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv4port.upstream.pins import Source


class SourceChoice(str, Enum):
    """Which source of a pin."""

    SDIST = "sdist"
    """The source distribution on the package index."""
    GIT = "git"
    """The commit in upstream's repository."""


def source_name(choice: Enum | None) -> Source | None:
    """The choice (or the kind of source that a lock names) as the library takes it."""
    if choice is None:
        return None
    return "git" if choice.value == "git" else "sdist"
