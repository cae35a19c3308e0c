"""Progress on a terminal: a bar for work that takes over a second, nothing for the rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dsv4port.cli.render import plain, safe_line
from dsv4port.upstream.progress import Unit

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_PATIENCE = 1.0
"""Seconds of work before a bar is worth the start-up of what draws it."""


class Bars:
    """Receives progress reports and draws them on standard error, where that is a terminal.

    Parameters:
        notice: takes the notices.
        silent: draw nothing.
    """

    def __init__(self, notice: Callable[[str], None], *, silent: bool) -> None:
        self._notice = notice
        self._silent = silent or plain(sys.stderr)
        self._began = 0.0
        self._done = 0
        self._work: tuple[str, int | None, Unit] = ("", None, "bytes")
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def start(self, label: str, total: int | None, unit: Unit = "bytes") -> None:
        """Work begins."""
        self.finish()
        self._work, self._done, self._began = (label, total, unit), 0, time.monotonic()

    def advance(self, amount: int) -> None:
        """So much more is done."""
        self._done += amount
        if self._silent:
            return
        if self._bar is None:
            if time.monotonic() - self._began < _PATIENCE:
                return
            self._draw()
        assert self._bar is not None and self._task is not None
        self._bar.update(self._task, completed=self._done)

    def finish(self) -> None:
        """The work ended."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def notice(self, text: str) -> None:
        """Pass a notice on, above the bar where there is one."""
        # The bar redraws itself below what is printed while it is stopped.
        bar = self._bar
        if bar is not None:
            bar.stop()
        self._notice(text)
        if bar is not None:
            bar.start()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        label, total, unit = self._work
        amounts = (
            (DownloadColumn(binary_units=True), TransferSpeedColumn())
            if unit == "bytes"
            else (MofNCompleteColumn(), TextColumn(unit))
        )
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn(),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task(escape(safe_line(label)), total=total)
        self._bar.start()
