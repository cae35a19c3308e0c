"""The command line as click reads it: every command, every option, help and misspellings."""

from __future__ import annotations

from typing import Any

import click

from dsv4port import __version__
from dsv4port.cli.context import Run, global_options
from dsv4port.cli.main import COMMANDS, PROGRAM, load_command

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


def invoke(arguments: list[str], state: Run) -> Any:
    """Read `arguments`, run the command, and return what it returns, or an exit code."""
    try:
        with _program().make_context(PROGRAM, arguments, obj=state) as context:
            return context.command.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code


def _program() -> click.Group:
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


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        print(f"{PROGRAM} {__version__}")
        context.exit()
