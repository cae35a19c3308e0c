"""``dsv4port build``: native code for a target, and checks of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply
from dsv4port.errors import UsageError


def command(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE…]", help="With --check-sources: files of the tree."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", help="What to build for; without it, list them."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be run, and run it not.")] = (
        False
    ),
    jobs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Compilers at a time. Default: one a processor."),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False,
            help="A virtual environment whose packages are used; nothing is downloaded then.",
        ),
    ] = None,
    kernels: Annotated[
        str | None,
        typer.Option(metavar="PATCHSET", help="Compile the patchset's own kernels."),
    ] = None,
    check_triton: Annotated[
        bool,
        typer.Option("--check-triton", help="With --kernels: compile its Triton kernels instead."),
    ] = False,
    check_sources: Annotated[
        bool,
        typer.Option(
            "--check-sources",
            help="Compile CUDA sources of the checkout one by one: FILE…, or what its stack "
            "touches.",
        ),
    ] = False,
    every_source: Annotated[
        bool, typer.Option("--all", help="With --check-sources: every CUDA source of the tree.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="A kind of check that may fail: package, extension, schema, packages, versions.",
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False,
            help="With a check: the interpreter that has torch and Triton. Default: this one.",
        ),
    ] = None,
) -> Reply:  # fmt: skip
    """Build a checkout for a target into an environment of its own, or a patchset's kernels.

    Ends with 1 when something was built or checked and does not hold.
    """
    run = Run.of(context)
    from dsv4port.build.process import interruptible
    from dsv4port.cli import run_build, run_build_checkout
    from dsv4port.cli.build_rows import Asked

    if target is None:
        _refuse_with(
            "--target is missing", "name one, see `dsv4port build`",
            kernels, check_triton, check_sources, plan, files,
        )  # fmt: skip
        return run_build.list_targets()
    if check_triton and kernels is None:
        raise UsageError("--check-triton needs --kernels", fix="name the patchset")
    if check_sources and kernels is not None:
        raise UsageError("--check-sources and --kernels do not go together", fix="give one of them")
    if (files or every_source) and not check_sources:
        raise UsageError("FILE… and --all go with --check-sources", fix="leave them out")
    if files and every_source:
        raise UsageError("FILE… and --all do not go together", fix="give one of them")
    if python is not None and not (check_triton or check_sources):
        raise UsageError("--python goes with a check", fix="use --base for the environment")
    if base is not None and (kernels is not None or check_sources):
        raise UsageError("--base goes with building a checkout", fix="leave it out")
    if accept and (kernels is not None or check_sources):
        raise UsageError("--accept goes with building a checkout", fix="leave it out")
    asked = Asked(target.split(","), plan, jobs or len(os.sched_getaffinity(0)), dict(os.environ))
    with interruptible():
        if check_sources:
            return run_build_checkout.check_sources(
                run, asked, tuple(files or ()), every_source, python
            )
        if kernels is None:
            return run_build_checkout.environment(run, asked, base, accept or ())
        if check_triton:
            return run_build.check_triton(run, asked, kernels, python)
        return run_build.kernels(run, asked, kernels)


def _refuse_with(what: str, fix: str, *options: object) -> None:
    if any(options):
        raise UsageError(what, fix=fix)
