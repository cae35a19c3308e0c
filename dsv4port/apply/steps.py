"""The steps at which a publish can be interrupted, so that tests can interrupt it there."""

from __future__ import annotations

import os
import signal
from enum import Enum

STOP_AT = "DSV4PORT_TEST_STOP_AT"
"""Environment variable: the step at which the process kills itself."""


class Step(Enum):
    """A point in a publish; what has been done when it is reached."""

    OBJECTS_WRITTEN = "objects-written"
    """New objects are in the checkout's store; nothing refers to them."""
    CHANGES_SAVED = "changes-saved"
    """With force: everything on disk is committed under a recovery reference."""
    JOURNAL_WRITTEN = "journal-written"
    """The journal says what is about to happen; from here on it will be finished."""
    FILES_WRITTEN = "files-written"
    """The work tree and the index hold the new tree; the branch does not yet."""
    REFERENCES_MOVED = "references-moved"
    """The branch holds the new commit; the receipt is still the old one."""
    RECEIPT_WRITTEN = "receipt-written"
    """All is done but the removal of the journal."""


def reached(step: Enum) -> None:
    """Note that `step` was reached."""
    if os.environ.get(STOP_AT) == step.value:
        os.kill(os.getpid(), signal.SIGKILL)
