"""Try again what may work the next time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dsv4port.upstream.http import PassingProblemError
from dsv4port.upstream.progress import Progress

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try again, and how long to wait before.

    Parameters:
        retries: tries after the first.
        first_wait: seconds before the second try; doubles with each further one.
        longest_wait: seconds; what a server asks for counts up to this, too.
        sleep: waits so many seconds.
    """

    retries: int = 5
    first_wait: float = 0.25
    longest_wait: float = 10.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self, failures: int, problem: PassingProblemError, progress: Progress) -> None:
        """Wait after the last of so many failures in a row, saying why."""
        asked_for = problem.wait or 0.0
        seconds = min(max(self.first_wait * 2.0 ** (failures - 1), asked_for), self.longest_wait)
        progress.notice(f"{problem.what}; trying again in {seconds:.2g} s")
        self.sleep(seconds)

    def attempt(self, work: Callable[[], _T], progress: Progress) -> _T:
        """Call `work` until it succeeds.

        Raises:
            PassingProblemError: it failed so every time.
        """
        failures = 0
        while True:
            try:
                return work()
            except PassingProblemError as problem:
                failures += 1
                if failures > self.retries:
                    raise
                self.wait(failures, problem, progress)
