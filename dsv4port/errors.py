"""Every error this package raises on purpose.

One base class; each subclass has the exit code that the command line ends with. The message
says what happened in one line, ``fix`` says in one line what to do next. Exception classes and
their exit codes are stable; message text is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (an interface: scripts depend on them)."""

    OK = 0
    """Done, or what was asked about holds."""
    NO = 1
    """The answer is no: a verify mismatch, failed tests, drift found."""
    USAGE = 2
    """The command line itself is wrong."""
    CONFLICT = 3
    """Patches are left that do not apply."""
    REFUSED = 4
    """Refused in order to protect data: a dirty checkout, a lock that is held."""
    BAD_INPUT = 5
    """A manifest, patch, pin or download is not what it must be."""
    ENVIRONMENT = 6
    """The machine lacks something: git too old, no network, no toolchain."""
    INTERNAL = 70
    """A defect of dsv4port."""


class Dsv4portError(Exception):
    """Base of all errors raised on purpose.

    Parameters:
        what: one line, lower case, no full stop: what happened.
        fix: one line: what to do next; without it the class's `usual_fix`.
        details: further lines, for example the dirty files.
    """

    exit_code = ExitCode.INTERNAL
    usual_fix: str | None = None

    def __init__(self, what: str, *, fix: str | None = None, details: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix if fix is not None else self.usual_fix
        self.details = tuple(details)

    @property
    def kind(self) -> str:
        """Stable identifier for JSON output: the class name without its ``Error`` ending."""
        return type(self).__name__.removesuffix("Error")


class UsageError(Dsv4portError):
    """The command line asks for something that makes no sense."""

    exit_code = ExitCode.USAGE


class ConflictError(Dsv4portError):
    """A patch does not apply, or would land in the wrong place."""

    exit_code = ExitCode.CONFLICT


class RefusedError(Dsv4portError):
    """Going on could lose or half-change something the user has."""

    exit_code = ExitCode.REFUSED


class DirtyCheckoutError(RefusedError):
    """The checkout holds changes that no publish of ours made."""


class NotOurCheckoutError(RefusedError):
    """The folder is no checkout made by dsv4port."""


class LockHeldError(RefusedError):
    """Another process is writing to the same project, checkout or cache entry."""


class BadInputError(Dsv4portError):
    """A file or download is not what it must be."""

    exit_code = ExitCode.BAD_INPUT


class ManifestError(BadInputError):
    """A manifest is malformed; the message starts with ``file:line`` and names the key."""

    usual_fix = "correct the file there; docs/manifests.md says what it may hold"


class PatchFormatError(BadInputError):
    """A patch file is malformed; the message starts with ``file:line``."""

    usual_fix = "make the patch anew with `git format-patch --full-index --binary`"


class HashMismatchError(BadInputError):
    """Content does not have the recorded hash."""


class StaleLockError(BadInputError):
    """A stack's files and its lock do not belong together, or the lock is missing."""


class PreconditionError(BadInputError):
    """A patchset does not belong on this pin's tree: a probe of its manifest does not hold."""


class UnsafePathError(BadInputError):
    """A path would leave the tree or reach into ``.git``."""

    usual_fix = "do not use this source or patch; its paths must lie inside of the tree"


class BuildFailedError(BadInputError):
    """Sources do not compile, or a build's own commands failed; details end its log."""

    usual_fix = "read the log; the state of before is untouched"


class EnvironmentProblemError(Dsv4portError):
    """The machine lacks something the command needs."""

    exit_code = ExitCode.ENVIRONMENT


class NetworkError(EnvironmentProblemError):
    """A download or fetch failed."""

    usual_fix = "check the network and pip's settings with `dsv4port doctor --network`"


class ToolchainError(EnvironmentProblemError):
    """A compiler, interpreter or package that a build needs is missing or too old."""


class GitError(EnvironmentProblemError):
    """git is missing, too old, or failed where it must not."""

    usual_fix = "check git with `dsv4port doctor`, and the repository with `git fsck`"


class InternalError(Dsv4portError):
    """A defect of dsv4port: an invariant does not hold."""
