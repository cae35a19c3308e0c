"""Run a build's program: its output goes to a log, and nothing of it outlives this process.

A compiler starts compilers of its own. Each program gets a process group, which is ended as a
whole when this process is interrupted, told to terminate, or fails to write the log. Where this
process is killed outright, the kernel tells the program itself; what that had started ends when it
has nothing left to do, and whatever it writes lies in a folder that the next build removes.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from dsv4port.errors import BuildFailedError, EnvironmentProblemError, ToolchainError
from dsv4port.quick_dataclass import dataclass

TAIL = 15
"""How many of a program's last lines are kept for messages."""

_CAUSE = 500
"""How many of the last lines may name the cause; installers print a lot after it."""

_ERROR = re.compile(r"\b(fatal )?error: |\bError: ")

_PATIENCE = 5.0
"""Seconds that an ended process group has to clean up."""

_PR_SET_PDEATHSIG = 1

_FULL = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|File size limit exceeded|File too large"
)
_OFFLINE = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Failed to establish a new "
    r"connection|Name or service not known|[Uu]nable to access 'https?://|Connection refused|"
    r"Network is unreachable|Failed to clone repository|dns error"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that ended.

    Parameters:
        code: the exit code; negative: the signal.
        lines: its last lines, at most some hundred.
    """

    command: tuple[str, ...]
    code: int
    lines: tuple[str, ...]

    @property
    def tail(self) -> tuple[str, ...]:
        """The very last lines."""
        return self.lines[-TAIL:]

    @property
    def told(self) -> tuple[str, ...]:
        """What to tell of it: the first lines that speak of an error, then the last ones."""
        shown = self.lines[:-TAIL]
        return (*[line for line in shown if _ERROR.search(line)][:5], *self.tail)

    @property
    def succeeded(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0


def run_logged(
    command: Sequence[str],
    log: BinaryIO,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None] = lambda line: None,
    stdin: bytes = b"",
) -> Ended:
    """Run a program to its end; standard output and error go to `log`, line by line.

    Raises:
        ToolchainError: it cannot be started.
        OSError: the log cannot be written; the program was ended.
    """
    try:
        process = subprocess.Popen(
            list(command), cwd=cwd, env=dict(environment), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=_ends_with_parent(),
        )  # fmt: skip
    except OSError as error:
        raise ToolchainError(
            f"cannot start {command[0]}: {(error.strerror or str(error)).lower()}",
            fix="check that the program is installed and may be executed",
        ) from error
    assert process.stdin is not None and process.stdout is not None
    lines: deque[str] = deque(maxlen=_CAUSE)
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(stdin)
            process.stdin.close()
        for raw in process.stdout:
            log.write(raw)
            line = raw.decode("utf-8", "backslashreplace").rstrip("\r\n")
            if line.strip():
                lines.append(line)
                on_line(line)
        log.flush()
        code = process.wait()
    except BaseException:
        _end_group(process)
        raise
    finally:
        process.stdout.close()
    return Ended(tuple(command), code, tuple(lines))


def failure(ended: Ended, what: str, log: Path) -> BuildFailedError | EnvironmentProblemError:
    """The error for a program that failed: the machine's fault where its lines say so.

    Parameters:
        what: what did not come about, to be read before "ended with".
    """
    how = f"exit code {ended.code}" if ended.code >= 0 else _signal_name(-ended.code)
    said = "\n".join(ended.lines)
    title = f"{what}: {Path(ended.command[0]).name} ended with {how}"
    if _FULL.search(said) or ended.code == -signal.SIGXFSZ:
        return EnvironmentProblemError(
            title, fix="free some space, then run the command again", details=ended.told
        )
    if _OFFLINE.search(said):
        return EnvironmentProblemError(
            title, fix=f"it could not reach the network: read {log}", details=ended.told
        )
    return BuildFailedError(
        title, fix=f"read {log}; the state of before is untouched", details=ended.told
    )


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP become KeyboardInterrupt in the body, so that it cleans up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [(one, signal.getsignal(one)) for one in signals]
    for one, handler in before:
        # What the user had ignored (nohup) stays ignored.
        if handler is signal.SIG_DFL:
            signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    # Also the members that ignored the first signal, although their leader has ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ends_with_parent() -> Callable[[], None] | None:
    """What a new process does so that it is told when this one ends; nothing but on Linux."""
    if sys.platform != "linux":
        return None
    # All imports are done here: between fork and exec another thread's locks may be held for ever.
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    number = int(signal.SIGTERM)

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number)

    return ask


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
