"""Read the plain command lines of the commands that scripts run most, without click.

Importing click and typer takes longer than these commands' own work. So ``apply``, ``verify`` and
``status`` with nothing but full option names are read here. Whatever is not understood, from
``--help`` to a misspelling, is left to click, which then answers as if this were not here. Where
both understand a line, they understand the same (tests compare them).
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dsv4port.cli.context import Run
    from dsv4port.cli.render import Reply


class _Command(NamedTuple):
    """Where a command's work is done, its flags, and whether it takes the name of a stack."""

    module: str
    function: str
    flags: frozenset[str]
    operands: range


_COMMANDS = {
    "apply": _Command(
        "dsv4port.cli.run_apply", "apply_to_checkout", frozenset(("force", "unlocked")), range(1, 2)
    ),
    "verify": _Command(
        "dsv4port.cli.run_verify", "hold_checkout", frozenset(("deep",)), range(2)
    ),
    "status": _Command("dsv4port.cli.run_status", "report_checkout", frozenset(), range(1)),
}  # fmt: skip


class PlainLine(NamedTuple):
    """A command line that was understood."""

    command: str
    stack: str | None
    flags: dict[str, bool]
    project: Path | None
    checkout: Path | None
    json: bool


def read_plain_line(arguments: list[str]) -> PlainLine | None:
    """The line, or None where it is not one of the plain ones."""
    name: str | None = None
    operands: list[str] = []
    flags: dict[str, bool] = {}
    folders: dict[str, str] = {}
    json = False
    rest = iter(arguments)
    for word in rest:
        option, equals, value = word.partition("=")
        if word == "--json":
            json = True
        elif option in ("--project", "--checkout"):
            folder = value if equals else next(rest, "")
            # Given twice, click may look at both.
            if not folder or folder.startswith("-") or option in folders:
                return None
            folders[option] = folder
        elif not word or word.startswith("-"):
            flag = word.removeprefix("--")
            if name is None or flag not in _COMMANDS[name].flags:
                return None
            flags[flag] = True
        elif name is None:
            if word not in _COMMANDS:
                return None
            name = word
        else:
            operands.append(word)
    if name is None or len(operands) not in _COMMANDS[name].operands:
        return None
    project, checkout = (
        Path(folders[option]) if option in folders else None
        for option in ("--project", "--checkout")
    )
    if project is not None and not _is_readable_folder(project):
        return None
    if checkout is not None and checkout.exists() and not _is_readable_folder(checkout):
        return None
    stack = operands[0] if operands else None
    return PlainLine(name, stack, flags, project, checkout, json)


def plain_reply(arguments: list[str], run: Run) -> Reply | None:
    """Run the command of a plain line and return its reply; None where the line is not one."""
    line = read_plain_line(arguments)
    if line is None:
        return None
    run.command, run.json = line.command, line.json
    run.project_folder, run.checkout_folder = line.project, line.checkout
    command = _COMMANDS[line.command]
    function: Any = getattr(importlib.import_module(command.module), command.function)
    operands = (line.stack,) if command.operands.stop > 1 else ()
    reply: Reply = function(run, *operands, **line.flags)
    return reply


def _is_readable_folder(path: Path) -> bool:
    return path.is_dir() and os.access(path, os.R_OK)
