"""How long work reports how far it is, without knowing whether anybody looks."""

from __future__ import annotations

from typing import Literal, Protocol

Unit = Literal["bytes", "objects", "patches", "files"]
"""What the numbers of a progress report count."""


class Progress(Protocol):
    """Receives progress reports, from one thread at a time.

    Every `start` is followed by one `finish`, also when the work fails; the next `start` comes
    after that.
    """

    def start(self, label: str, total: int | None, unit: Unit = "bytes") -> None:
        """Work begins. `total` is None when nobody knows it."""
        ...

    def advance(self, amount: int) -> None:
        """So much more is done. Negative when work has to be done again."""
        ...

    def finish(self) -> None:
        """The work that `start` announced ended, well or not."""
        ...

    def notice(self, text: str) -> None:
        """Something a person may wonder about, one line; also outside start and finish."""
        ...


class NoProgress:
    """Takes all reports and shows nothing."""

    def start(self, label: str, total: int | None, unit: Unit = "bytes") -> None:
        """Ignore it."""

    def advance(self, amount: int) -> None:
        """Ignore it."""

    def finish(self) -> None:
        """Ignore it."""

    def notice(self, text: str) -> None:
        """Ignore it."""


NO_PROGRESS: Progress = NoProgress()
"""The progress of callers that show none."""
