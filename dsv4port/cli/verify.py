"""``dsv4port verify``: hold a checkout, or an installed copy, against a stack's lock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply
from dsv4port.cli.run_verify import hold_checkout, hold_installed
from dsv4port.errors import UsageError


def command(
    context: typer.Context,
    stack: Annotated[
        str | None,
        typer.Argument(metavar="[STACK]", help="Default: the stack the checkout holds."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every file, and apply the series anew in memory."),
    ] = False,
    installed: Annotated[
        Path | None,
        typer.Option(
            "--installed", metavar="DIR",
            help="Instead of the checkout: a folder with an installed copy (site-packages).",
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="PATH/",
            help="With --installed: the part of the tree that is installed. Default: vllm/.",
        ),
    ] = None,
) -> Reply:  # fmt: skip
    """Compare patch files, commits and files on disk with the lock; every mismatch is a row.

    Ends with 1 when there is one.
    """
    run = Run.of(context)
    if installed is not None:
        if deep:
            raise UsageError("--deep is for checkouts", fix="leave it out with --installed")
        return hold_installed(run, stack, installed.absolute(), prefix)
    if prefix is not None:
        raise UsageError("--prefix needs --installed", fix="leave it out, or name the folder")
    return hold_checkout(run, stack, deep=deep)
