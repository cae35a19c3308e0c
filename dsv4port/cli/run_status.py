"""What ``dsv4port status`` says. Knows nothing of how its arguments were read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, count, full_path, shown_path
from dsv4port.cli.rows import recovered_row, recovery_notice, restore_command

if TYPE_CHECKING:
    from dsv4port.apply.receipt import Receipt
    from dsv4port.apply.status import StatusReport

_MOST_LINES = 30


def report_checkout(run: Run) -> Reply:
    """Say what the checkout of the run holds."""
    from dsv4port.apply.status import checkout_status

    checkout = run.checkout
    report = checkout_status(run.project, checkout, on_recovery=recovery_notice(run, checkout))
    return Reply(_fields(checkout, report), list(_lines(checkout, report)))


def _fields(checkout: Path, report: StatusReport) -> dict[str, Any]:
    from dsv4port.patch.quote import display_path

    receipt = report.receipt
    return {
        "checkout": full_path(checkout),
        "exists": report.exists,
        "receipt": None if receipt is None else _receipt_row(receipt),
        "head": report.head,
        "at_published": report.at_published,
        "operation": report.operation,
        "changes": [
            {"path": display_path(change.path), "state": change.state.value}
            for change in report.changes
        ],
        "clean": report.clean,
        "lock": None if report.lock is None else report.lock.value,
        "recovery": [
            {
                "ref": found.name,
                "commit": found.commit,
                "restore": restore_command(checkout, found.name),
            }
            for found in report.recovery
        ],
        "recovered": recovered_row(checkout, report.recovered),
    }


def _receipt_row(receipt: Receipt) -> dict[str, Any]:
    return {
        "tool": receipt.tool,
        "time": receipt.time,
        "pin": receipt.pin,
        "source": receipt.source,
        "pin_commit": receipt.pin_commit,
        "stack": receipt.stack,
        "commit": receipt.commit,
        "tree": receipt.tree,
        "locked": receipt.locked,
        "patches": [
            {
                "file": patch.key,
                "sha256": patch.sha256,
                "outcome": patch.outcome,
                "commit": patch.commit,
                "tree": patch.tree,
            }
            for patch in receipt.patches
        ],
    }


def _lines(checkout: Path, report: StatusReport) -> Iterator[str]:
    if not report.exists:
        yield f"there is no checkout at {shown_path(checkout)}"
        yield "make one with `dsv4port apply STACK` or `dsv4port reset PIN`"
        return
    receipt = report.receipt
    if receipt is None:
        yield from columns([("checkout", shown_path(checkout)), ("receipt", "none")])
    else:
        yield from columns(_summary(checkout, report, receipt))
    yield from _change_lines(report)
    if report.recovery:
        yield f"saved     {count(len(report.recovery), 'recovery reference')}; to get one back:"
        for found in report.recovery:
            yield f"  {restore_command(checkout, found.name)}"


def _summary(checkout: Path, report: StatusReport, receipt: Receipt) -> Iterator[tuple[str, str]]:
    yield "checkout", shown_path(checkout)
    yield "pin", f"{receipt.pin} ({receipt.source}), commit {receipt.pin_commit[:12]}"
    if receipt.stack is None:
        yield "stack", f"none, since {receipt.time}"
    else:
        yield "stack", f"{receipt.stack}, applied {receipt.time} by dsv4port {receipt.tool}"
        names = [f"{patch.key} ({patch.outcome})" for patch in receipt.patches]
        yield "patches", str(len(names))
        for name in names[:_MOST_LINES]:
            yield "", name
        if len(names) > _MOST_LINES:
            yield "", f"… and {len(names) - _MOST_LINES} more"
    yield "tree", f"{receipt.tree}{_LOCK_WORDS[report.lock.value] if report.lock else ''}"


_LOCK_WORDS = {
    "same": ", as the lock says",
    "different": ", which is not what the lock says",
    "no-lock": "; the stack has no lock",
    "no-stack": "",
}


def _change_lines(report: StatusReport) -> Iterator[str]:
    from dsv4port.patch.quote import display_path

    if report.operation is not None:
        yield f"git       {report.operation} is under way"
    if not report.at_published:
        head = "names no commit" if report.head is None else f"is at {report.head[:12]}"
        yield f"history   HEAD {head}, not where the last publish left it"
    if not report.changes:
        yield "files     no changes"
        return
    yield f"files     {count(len(report.changes), 'change')}"
    shown = report.changes[:_MOST_LINES]
    yield from columns(
        ((change.state.value, display_path(change.path)) for change in shown), indent=2
    )
    if len(report.changes) > _MOST_LINES:
        yield f"  … and {len(report.changes) - _MOST_LINES} more"
