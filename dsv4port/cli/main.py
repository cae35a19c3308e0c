"""The program: find the command, run it, print what it says, end with the right exit code."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dsv4port.cli.context import Run
from dsv4port.cli.exit_codes import BROKEN_PIPE, TRACEBACK, Failure, explain
from dsv4port.cli.plain_line import plain_reply
from dsv4port.cli.render import Reply, print_failure, print_json, print_reply
from dsv4port.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import click

PROGRAM = "dsv4port"

COMMANDS = {
    "fetch": ("dsv4port.cli.fetch", "Bring pins into the cache, checked by hash."),
    "apply": ("dsv4port.cli.apply", "Make the checkout hold a stack."),
    "verify": ("dsv4port.cli.verify", "Hold patches, checkout or an installation against a lock."),
    "status": ("dsv4port.cli.status", "Say what the checkout holds."),
    "reset": ("dsv4port.cli.reset", "Return the checkout to a bare pin."),
    "lock": ("dsv4port.cli.lock", "Write down what a stack comes out as."),
    "port": ("dsv4port.cli.port", "Carry a series to other pins, or patches to another tree."),
    "resolve": ("dsv4port.cli.resolve", "Decide a patch in conflict by hand, and go on."),
    "drift": ("dsv4port.cli.drift", "Say what changed between pins that patches depend on."),
    "build": ("dsv4port.cli.build", "Compile native code for a target, and check it."),
    "refresh": ("dsv4port.cli.refresh", "Write patch files anew from the checkout's commits."),
    "test": ("dsv4port.cli.test", "Run the tests of patchsets on the patched tree."),
    "report": ("dsv4port.cli.report", "Say what was shown of a stack, and by which file."),
    "ladder": ("dsv4port.cli.ladder", "Compute decode graphs and arena, or check a serve command."),
    "list": ("dsv4port.cli.list", "List pins, patchsets and stacks."),
    "show": ("dsv4port.cli.show", "Show a pin, patchset, patch or stack."),
    "doctor": ("dsv4port.cli.doctor", "Check what the machine must have."),
}
"""Every command: the module that has it as ``command``, and its line in the help."""


def load_command(name: str) -> click.Command:
    """Import the module of a command and make its function one that click can run."""
    import typer
    import typer.main

    from dsv4port.cli.context import global_options

    module, line = COMMANDS[name]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, short_help=line)(importlib.import_module(module).command)
    command = typer.main.get_command(app)
    command.params.extend(global_options())
    return command


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program with `arguments` (the process's own by default) and exit."""
    # One short run makes many values and no cycles worth collecting; memory stays bounded by the
    # engine's own budget.
    gc.set_threshold(100_000, 50, 50)
    # A file name may hold what the terminal's encoding cannot say.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run the program and return its exit code; nothing escapes."""
    state = Run()
    try:
        reply = _invoke(arguments, state)
        if isinstance(reply, Reply):
            _print(state, reply)
            return reply.exit_code
        return _flushed(reply if isinstance(reply, int) else 0)
    except BaseException as error:
        return _fail(arguments, state, error)


def _invoke(arguments: list[str], state: Run) -> Any:
    if not arguments:
        raise UsageError("no command was given", fix=f"see `{PROGRAM} --help`")
    reply = plain_reply(arguments, state)
    if reply is not None:
        return reply
    from dsv4port.cli.program import invoke

    return invoke(arguments, state)


def _print(state: Run, reply: Reply) -> None:
    if state.json:
        fields = {**state.fields, **reply.fields}
        print_json(state.command, exit_code=reply.exit_code, notices=state.notices, fields=fields)
    else:
        print_reply(reply)
    sys.stdout.flush()


def _fail(arguments: list[str], state: Run, error: BaseException) -> int:
    failure = explain(error)
    if failure.exit_code == BROKEN_PIPE:
        return _hang_up()
    state.finish_progress()
    if failure.exit_code == ExitCode.INTERNAL and os.environ.get(TRACEBACK) == "1":
        import traceback

        traceback.print_exception(error)
    try:
        # What click could not parse, it has not recorded either.
        if state.json or "--json" in arguments:
            print_json(
                state.command, exit_code=failure.exit_code, notices=state.notices,
                fields=state.fields, failure=failure,
            )  # fmt: skip
        else:
            print_failure(failure)
        sys.stdout.flush()
    except OSError as unprintable:
        return _unprintable(failure, unprintable)
    return failure.exit_code


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _hang_up()
    return code


def _unprintable(failure: Failure, error: OSError) -> int:
    """Standard output is full or gone: the exit code has to say it all."""
    if isinstance(error, BrokenPipeError):
        return _hang_up()
    _discard_output()
    return failure.exit_code


def _hang_up() -> int:
    _discard_output()
    return BROKEN_PIPE


def _discard_output() -> None:
    """Keep the interpreter from complaining about what it cannot write when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
