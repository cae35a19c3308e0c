"""From an exception to what the command line says about it, and to its exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from dsv4port.errors import Dsv4portError, ExitCode
from dsv4port.quick_dataclass import dataclass

if TYPE_CHECKING:
    import click

TRACEBACK = "DSV4PORT_TRACEBACK"
"""Environment variable: set to 1, an internal error shows where it came from."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, the shell's convention for SIGINT."""

BROKEN_PIPE = 141
"""Exit code when the reader of the output went away, the shell's convention for SIGPIPE."""

_MACHINE_ERRNOS = {
    errno.ENOSPC: "free some space, then run the command again",
    errno.EDQUOT: "free some of your disk quota, then run the command again",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "choose a place on a file system that can be written to",
    errno.EACCES: "make it accessible for this user",
    errno.EPERM: "make it accessible for this user",
    errno.EEXIST: "move away what is there",
    errno.ENOTDIR: "move away the file that is where a folder should be",
    errno.EISDIR: "move away the folder that is where a file should be",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close other programs: the system has too many files open",
    errno.ENOMEM: "free some memory, then run the command again",
    errno.EIO: "check the disk: the system could not read or write it",
}
"""Failures of the file system that say something about the machine, and the way out."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is shown: ``kind`` is stable, the texts are for people."""

    exit_code: int
    kind: str
    what: str
    fix: str | None = None
    details: tuple[str, ...] = ()


def explain(error: BaseException) -> Failure:
    """What to say about `error`, and the exit code to end with. The only such mapping."""
    if isinstance(error, Dsv4portError):
        return Failure(int(error.exit_code), error.kind, error.what, error.fix, error.details)
    if "click" in sys.modules:
        # An error of click's exists only where click was imported; start-up does not pay for it.
        import click

        if isinstance(error, click.ClickException):
            return _explain_usage(error)
        if isinstance(error, click.Abort):
            error = KeyboardInterrupt()
    if isinstance(error, (KeyboardInterrupt, EOFError)):
        return Failure(
            INTERRUPTED, "Interrupted", "interrupted", "run the command again to finish its work"
        )
    if isinstance(error, BrokenPipeError):
        return Failure(BROKEN_PIPE, "BrokenPipe", "the reader of the output went away")
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS:
        return _explain_machine(error, _MACHINE_ERRNOS[error.errno])
    return Failure(
        int(ExitCode.INTERNAL),
        "Internal",
        f"internal error: {type(error).__name__}: {error}",
        f"this is a defect of dsv4port: report it with what {TRACEBACK}=1 prints",
    )


def _explain_usage(error: click.ClickException) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "dsv4port"
    message = error.format_message().rstrip(".")
    return Failure(
        int(ExitCode.USAGE), "Usage", message[:1].lower() + message[1:], f"see `{command} --help`"
    )


def _explain_machine(error: OSError, fix: str) -> Failure:
    where = ""
    if error.filename is not None:
        # A failed rename or link names the place it was to write in second.
        named = error.filename2 if error.filename2 is not None else error.filename
        where = f"{os.fsdecode(named)}: "
    assert error.errno is not None
    what = f"{where}{os.strerror(error.errno).lower()}"
    return Failure(int(ExitCode.ENVIRONMENT), "EnvironmentProblem", what, fix)
