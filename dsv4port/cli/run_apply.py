"""What ``dsv4port apply`` does and says. Knows nothing of how its arguments were read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.cli.rows import (
    companion_row,
    moved_lines,
    notice_companions,
    notice_saved,
    patch_rows,
    recovered_row,
    recovery_notice,
    restore_command,
)
from dsv4port.errors import ConflictError

if TYPE_CHECKING:
    from dsv4port.apply.engine import SeriesReport
    from dsv4port.apply.stack_apply import ApplyReport


def apply_to_checkout(run: Run, name: str, *, force: bool = False, unlocked: bool = False) -> Reply:
    """Apply a stack to the checkout of the run."""
    from dsv4port.apply.stack_apply import apply_stack
    from dsv4port.upstream.cache import Cache

    project, checkout = run.project, run.checkout
    run.fields.update(stack=name, checkout=full_path(checkout))
    try:
        report = apply_stack(
            project, name, checkout, cache=Cache.locate(), force=force, unlocked=unlocked,
            progress=run.progress, on_recovery=recovery_notice(run, checkout),
        )  # fmt: skip
    except ConflictError as error:
        # Only now: an apply with nothing to do must not pay for importing the engine.
        from dsv4port.apply.engine import SeriesConflictError

        if isinstance(error, SeriesConflictError):
            _note_conflict(run, error.report)
        raise
    notice_companions(run, report.companions)
    notice_saved(run, checkout, report.saved)
    return Reply(_stack_fields(checkout, report), list(_stack_lines(checkout, report)))


def apply_folder(run: Run, repository: Path, onto: str, series: Path) -> Reply:
    """Apply a folder of patches to a tree of any repository."""
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
