"""What can become of a test, and which failures say something about the machine alone."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from enum import Enum


class Outcome(str, Enum):
    """What became of one test."""

    PASSED = "passed"
    """It ran to its end and nothing was wrong."""
    FAILED = "failed"
    """It found something wrong."""
    ERROR = "error"
    """It could not be set up, collected or torn down."""
    ENVIRONMENT = "environment"
    """It failed for want of something outside: a gated download, no network, a full disk."""
    SKIPPED = "skipped"
    """It said itself that it does not apply here."""
    DESELECTED = "deselected"
    """Not run: its markers ask for a device, weights or a network that this run has not."""
    XFAILED = "xfailed"
    """It failed, as the test expects."""
    XPASSED = "xpassed"
    """It passed, although the test expects a failure."""

    @property
    def ran(self) -> bool:
        """Whether the test was started at all."""
        return self not in (Outcome.SKIPPED, Outcome.DESELECTED)


BAD = (Outcome.FAILED, Outcome.ERROR)
"""Outcomes that make the answer no."""

_REFUSED_DOWNLOADS = {
    "GatedRepoError",
    "RepositoryNotFoundError",
    "LocalEntryNotFoundError",
    "OfflineModeIsEnabled",
}
_BROKEN_CONNECTIONS = {
    "gaierror",
    "NameResolutionError",
    "NewConnectionError",
    "MaxRetryError",
    "ConnectTimeout",
    "ConnectError",
    "ProxyError",
}
_CONNECTIONS_OF = {"ConnectionError": ("requests", "httpx", "aiohttp")}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {401, 403}
# What transformers says in an OSError of its own, with the cause left out.
_SAID_BY_OSERROR = re.compile(
    r"You are trying to access a gated repo|We couldn't connect to 'https?://|"
    r"is not a local folder and is not a valid model identifier|"
    r"Cannot (?:reach|find the requested files in the disk cache).*outgoing traffic"
)


def environment_problem(error: BaseException) -> str | None:
    """Why `error` says nothing about the code under test, None where it may do so.

    Recognised by the types and status codes of the error and of those that led to it. The words of
    a message count only for a plain OSError, because a failed assertion can repeat any text.
    """
    for one in _chain(error):
        name, module = type(one).__name__, type(one).__module__.partition(".")[0]
        status = getattr(getattr(one, "response", None), "status_code", None)
        if name in _REFUSED_DOWNLOADS:
            return f"download refused: {name}"
        if status in _DENIED:
            return f"download refused: HTTP {status}"
        if name in _BROKEN_CONNECTIONS or module in _CONNECTIONS_OF.get(name, ()):
            return f"no connection: {name}"
        if isinstance(one, OSError) and one.errno in _FULL:
            return "no space left on the disk"
        if type(one) is OSError and _SAID_BY_OSERROR.search(str(one)):
            return "download refused or no connection"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what led to it, each once."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
