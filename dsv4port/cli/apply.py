"""``dsv4port apply``: a stack onto the checkout, or a folder of patches onto any tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.cli.rows import (
    companion_row,
    moved_lines,
    notice_companions,
    notice_recovered,
    notice_saved,
    patch_rows,
    recovered_row,
    restore_command,
)
from dsv4port.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from dsv4port.apply.engine import SeriesReport
    from dsv4port.apply.stack_apply import ApplyReport


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
        return _apply_stack(run, stack, force, unlocked)
    if repository is None or onto is None or series is None:
        raise UsageError(
            "--repo, --onto and --series belong together", fix="give all three, or a STACK alone"
        )
    if stack is not None or force or unlocked:
        raise UsageError(
            "--repo goes with neither STACK nor --force nor --unlocked", fix="leave them out"
        )
    return _apply_folder(run, repository.absolute(), onto, series.absolute())


def _stacks(run: Run) -> str:
    names = run.project.stack_names()
    return f"name one of {', '.join(names)}" if names else "make one in manifests/stacks/"


def _apply_stack(run: Run, name: str, force: bool, unlocked: bool) -> Reply:
    from dsv4port.apply.stack_apply import apply_stack
    from dsv4port.upstream.cache import Cache

    project, checkout = run.project, run.checkout
    run.fields.update(stack=name, checkout=full_path(checkout))
    try:
        report = apply_stack(
            project, name, checkout, cache=Cache.locate(), force=force, unlocked=unlocked,
            progress=run.progress,
        )  # fmt: skip
    except ConflictError as error:
        # Only now: an apply with nothing to do must not pay for importing the engine.
        from dsv4port.apply.engine import SeriesConflictError

        if isinstance(error, SeriesConflictError):
            _note_conflict(run, error.report)
        raise
    notice_recovered(run, checkout, report.recovered)
    notice_companions(run, report.companions)
    notice_saved(run, checkout, report.saved)
    return Reply(_stack_fields(checkout, report), list(_stack_lines(checkout, report)))


def _apply_folder(run: Run, repository: Path, onto: str, series: Path) -> Reply:
    from dsv4port.apply.engine import SeriesConflictError
    from dsv4port.apply.repo_apply import apply_to_repository

    report = apply_to_repository(repository, onto, series)
    moved = [patch for patch in report.patches if patch.outcome.value != "exact"]
    run.fields.update(
        outcome=moved[-1].outcome.value if moved else "exact",
        patches=patch_rows(report.patches),
        tree=report.tree,
        commit=report.commit,
        base_tree=report.base_tree,
        base_commit=report.base_commit,
    )
    if report.failure is not None:
        raise SeriesConflictError(report)
    applied = f"{count(len(report.patches), 'patch', 'patches')} applied onto {onto}"
    return Reply(
        lines=[
            f"{applied}: {_outcomes(report)}",
            *moved_lines(report.patches),
            f"tree {report.tree}",
            f"commit {report.commit}",
        ]
    )


def _note_conflict(run: Run, report: SeriesReport) -> None:
    assert report.failure is not None
    run.fields.update(outcome=report.failure.outcome.value, patches=patch_rows(report.patches))


def _stack_fields(checkout: Path, report: ApplyReport) -> dict[str, Any]:
    receipt = report.receipt
    if report.series is not None:
        patches = patch_rows(report.series.patches)
    else:
        patches = [
            {
                "file": patch.key,
                "outcome": patch.outcome,
                "tree": patch.tree,
                "commit": patch.commit,
                "hunks": None,
            }
            for patch in receipt.patches
        ]
    return {
        "outcome": report.outcome.value,
        "pin": receipt.pin,
        "source": receipt.source,
        "base_commit": receipt.pin_commit,
        "patches": patches,
        "tree": receipt.tree,
        "commit": receipt.commit,
        "locked": receipt.locked,
        "saved": report.saved,
        "restore": restore_command(checkout, report.saved),
        "recovered": recovered_row(checkout, report.recovered),
        "companions": [companion_row(missing) for missing in report.companions],
    }


def _stack_lines(checkout: Path, report: ApplyReport) -> list[str]:
    receipt = report.receipt
    where = shown_path(checkout)
    patches = count(len(receipt.patches), "patch", "patches")
    on = f"{receipt.pin} ({receipt.source})"
    if report.series is None:
        first = f"{where} holds {receipt.stack} already: {patches} on {on}; nothing to do"
        moved: list[str] = []
    else:
        first = f"{where} holds {receipt.stack}: {patches} on {on}, {_outcomes(report.series)}"
        moved = list(moved_lines(report.series.patches))
    proof = "as the lock says" if receipt.locked else "not compared with a lock"
    return [first, *moved, f"tree {receipt.tree}, {proof}", f"commit {receipt.commit}"]


def _outcomes(report: SeriesReport) -> str:
    found: dict[str, int] = {}
    for patch in report.patches:
        found[patch.outcome.value] = found.get(patch.outcome.value, 0) + 1
    return ", ".join(f"{number} {outcome}" for outcome, number in found.items())
