"""``dsv4port refresh``: write patch files anew from the checkout's commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, count
from dsv4port.cli.rows import recovery_notice

if TYPE_CHECKING:
    from dsv4port.apply.refresh import RefreshReport


def command(
    context: typer.Context,
    patchset: Annotated[str, typer.Argument(metavar="PATCHSET", help="The patchset, by name.")],
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A patch file whose commit is gone on purpose; can be given several times.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")
    ] = False,
) -> Reply:
    """Write a patchset's files anew from the commits of the checkout.

    A file whose commit still says the same keeps its bytes.
    """
    from dsv4port.apply.refresh import refresh_patchset

    run = Run.of(context)
    checkout = run.checkout
    report = refresh_patchset(
        run.project, patchset, checkout, drop=tuple(drop or ()), dry_run=dry_run,
        on_recovery=recovery_notice(run, checkout),
    )  # fmt: skip
    fields = {
        "patchset": report.patchset,
        "pin": report.pin,
        "dry_run": dry_run,
        "written": report.written,
        "lock_is_stale": report.lock_is_stale,
        "recovered": run.fields.get("recovered"),
        "patches": [
            {"file": patch.file, "outcome": patch.outcome.value} for patch in report.patches
        ],
    }
    return Reply(fields, _lines(report, dry_run))


def _lines(report: RefreshReport, dry_run: bool) -> list[str]:
    patches = count(len(report.patches), "patch", "patches")
    if not report.lock_is_stale:
        what = "nothing to write"
    elif dry_run:
        what = "nothing written (dry run)"
    else:
        what = "written"
    lines = [f"{report.patchset} on {report.pin}, {patches}: {what}"]
    lines += columns(((patch.outcome.value, patch.file) for patch in report.patches), indent=2)
    if report.written:
        lines.append("next: `dsv4port lock STACK`, and review the difference")
    return lines
