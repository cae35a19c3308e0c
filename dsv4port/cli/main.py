"""The program: find the command, run it, print what it says, end with the right exit code."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from dsv4port import __version__
from dsv4port.cli.context import Run, global_options
from dsv4port.cli.exit_codes import BROKEN_PIPE, TRACEBACK, Failure, explain
from dsv4port.cli.render import Reply, print_failure, print_json, print_reply
from dsv4port.errors import ExitCode, UsageError

PROGRAM = "dsv4port"

COMMANDS = {
    "fetch": ("dsv4port.cli.fetch", "Bring pins into the cache, checked by hash."),
    "apply": ("dsv4port.cli.apply", "Make the checkout hold a stack."),
    "verify": ("dsv4port.cli.verify", "Hold patches, checkout or an installation against a lock."),
    "status": ("dsv4port.cli.status", "Say what the checkout holds."),
    "reset": ("dsv4port.cli.reset", "Return the checkout to a bare pin."),
    "lock": ("dsv4port.cli.lock", "Write down what a stack comes out as."),
    "refresh": ("dsv4port.cli.refresh", "Write patch files anew from the checkout's commits."),
    "list": ("dsv4port.cli.list", "List pins, patchsets and stacks."),
    "show": ("dsv4port.cli.show", "Show a pin, patchset, patch or stack."),
    "doctor": ("dsv4port.cli.doctor", "Check what the machine must have."),
}
"""Every command: the module that has it as ``command``, and its line in the help."""

_EPILOG = (
    "Exit codes: 0 done or holds, 1 the answer is no, 2 usage, 3 conflict, 4 refused to protect "
    "data, 5 bad input, 6 environment, 70 internal error."
)


class LazyGroup(click.Group):
    """A group that imports the module of a command when it is run, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        return load_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelled one is answered with the nearest."""
        name = args[0]
        if name not in COMMANDS:
            from dsv4port.manifest.values import shown, suggestion

            raise click.UsageError(
                f"There is no command {shown(name)}{suggestion(name, COMMANDS)}", ctx
            )
        Run.of(ctx).command = name
        return super().resolve_command(ctx, args)


def load_command(name: str) -> click.Command:
    """Import the module of a command and make its function one that click can run."""
    import typer
    import typer.main

    module, line = COMMANDS[name]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, short_help=line)(importlib.import_module(module).command)
    command = typer.main.get_command(app)
    command.params.extend(global_options())
    return command


def program() -> click.Group:
    """The whole command line."""
    version = click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
        help="Print the version and exit.",
    )  # fmt: skip
    return LazyGroup(
        PROGRAM,
        help="Apply, prove and carry patch stacks on pinned vLLM releases.",
        epilog=_EPILOG,
        params=[*global_options(), version],
        no_args_is_help=False,
    )


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
    except click.exceptions.Exit as ended:
        return _flushed(ended.exit_code)
    except BaseException as error:
        return _fail(arguments, state, error)
    return _flushed(0)


def _invoke(arguments: list[str], state: Run) -> Any:
    if not arguments:
        raise UsageError("no command was given", fix=f"see `{PROGRAM} --help`")
    with program().make_context(PROGRAM, arguments, obj=state) as context:
        return context.command.invoke(context)


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
    state.progress.finish()
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


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        context.exit()
