"""``dsv4port apply``: a stack onto the checkout, or a folder of patches onto any tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply
from dsv4port.cli.run_apply import apply_folder, apply_to_checkout
from dsv4port.errors import UsageError


def command(
    context: typer.Context,
    stack: Annotated[
        str | None, typer.Argument(metavar="[STACK]", help="The stack, by name.")
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Save what was changed in the checkout, then overwrite it."),
    ] = False,
    unlocked: Annotated[
        bool, typer.Option("--unlocked", help="Do not ask for a lock, do not compare with it.")
    ] = False,
    repository: Annotated[
        Path | None,
        typer.Option("--repo", metavar="DIR", help="Instead of a stack: any git repository."),
    ] = None,
    onto: Annotated[
        str | None,
        typer.Option("--onto", metavar="TREEISH", help="With --repo: what to apply to."),
    ] = None,
    series: Annotated[
        Path | None,
        typer.Option("--series", metavar="DIR", help="With --repo: the folder of the patches."),
    ] = None,
) -> Reply:
    """Make the checkout hold a stack: its pin with all its patches, compared with its lock.

    With --repo, --onto and --series apply a folder of patches to a tree of any git repository
    instead; that writes objects only.
    """
    run = Run.of(context)
    if repository is None and onto is None and series is None:
        if stack is None:
            raise UsageError("no STACK was given", fix=_stacks(run))
        return apply_to_checkout(run, stack, force=force, unlocked=unlocked)
    if repository is None or onto is None or series is None:
        raise UsageError(
            "--repo, --onto and --series belong together", fix="give all three, or a STACK alone"
        )
    if stack is not None or force or unlocked:
        raise UsageError(
            "--repo goes with neither STACK nor --force nor --unlocked", fix="leave them out"
        )
    return apply_folder(run, repository.absolute(), onto, series.absolute())


def _stacks(run: Run) -> str:
    names = run.project.stack_names()
    return f"name one of {', '.join(names)}" if names else "make one in manifests/stacks/"
