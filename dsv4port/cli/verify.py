"""``dsv4port verify``: hold a checkout, or an installed copy, against a stack's lock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.findings import finding_lines, finding_rows
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.cli.rows import notice_recovered, recovered_row
from dsv4port.errors import ExitCode, UsageError


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
        return _verify_installed(run, stack, installed.absolute(), prefix)
    if prefix is not None:
        raise UsageError("--prefix needs --installed", fix="leave it out, or name the folder")
    return _verify_checkout(run, stack, deep)


def _verify_checkout(run: Run, stack: str | None, deep: bool) -> Reply:
    from dsv4port.apply.verify import verify_checkout

    checkout = run.checkout
    report = verify_checkout(run.project, stack, checkout, deep=deep)
    notice_recovered(run, checkout, report.recovered)
    fields = {
        "target": "checkout",
        "path": full_path(checkout),
        "stack": report.stack,
        "pin": report.pin,
        "tree": report.tree,
        "deep": deep,
        "patches_checked": report.patches_checked,
        "files_checked": report.files_checked,
        "ignored": report.ignored,
        "findings": finding_rows(report.findings),
        "recovered": recovered_row(checkout, report.recovered),
    }
    compared = (
        f"{count(report.patches_checked, 'patch', 'patches')} and "
        f"{count(report.files_checked, 'file')} compared by content"
        + ("" if deep else ", all other files by git's stat cache")
    )
    if report.holds:
        lines = [
            f"{shown_path(checkout)} holds {report.stack} on {report.pin} exactly as locked",
            compared,
            f"tree {report.tree}",
        ]
        if report.ignored:
            lines.append(f"{count(report.ignored, 'ignored file')} left out (build outputs)")
        return Reply(fields, lines)
    lines = [
        f"{shown_path(checkout)} is not {report.stack} as locked: "
        f"{count(len(report.findings), 'mismatch', 'mismatches')}",
        *finding_lines(report.findings),
        compared,
    ]
    return Reply(fields, lines, int(ExitCode.NO))


def _verify_installed(run: Run, stack: str | None, folder: Path, prefix: str | None) -> Reply:
    from dsv4port.apply.installed import DEFAULT_PREFIX, verify_installed
    from dsv4port.manifest.lock import load_lock
    from dsv4port.manifest.stack import load_stack

    project = run.project
    name = stack if stack is not None else _applied_stack(run)
    load_stack(project, name)
    lock = load_lock(project, name)
    report = verify_installed(lock, folder, prefix=DEFAULT_PREFIX if prefix is None else prefix)
    fields: dict[str, Any] = {
        "target": "installed",
        "path": full_path(folder),
        "prefix": report.prefix,
        "stack": report.stack,
        "pin": lock.pin,
        "tree": lock.tree,
        "files_checked": report.files_checked,
        "not_installed": report.not_installed,
        "findings": finding_rows(report.findings),
    }
    where = f"{shown_path(folder)}, below {report.prefix or 'its root'}"
    compared = f"{count(report.files_checked, 'touched file')} compared by sha256"
    if report.not_installed:
        compared += f"; {count(report.not_installed, 'touched file')} outside of {report.prefix}"
    if report.holds:
        return Reply(fields, [f"{where}, is {report.stack} on {lock.pin} as locked", compared])
    lines = [
        f"{where}, is not {report.stack} as locked: "
        f"{count(len(report.findings), 'mismatch', 'mismatches')}",
        *finding_lines(report.findings),
        compared,
    ]
    return Reply(fields, lines, int(ExitCode.NO))


def _applied_stack(run: Run) -> str:
    from dsv4port.apply.receipt import read_receipt
    from dsv4port.git.checkout import open_checkout

    names = run.project.stack_names()
    missing = UsageError(
        "no STACK was given, and the checkout holds none",
        fix=f"name one of {', '.join(names)}" if names else "name the stack",
    )
    checkout = run.checkout
    if not checkout.exists():
        raise missing
    receipt = read_receipt(open_checkout(checkout).state)
    if receipt is None or receipt.stack is None:
        raise missing
    return receipt.stack
