"""What ``dsv4port verify`` does and says. Knows nothing of how its arguments were read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.context import Run
from dsv4port.cli.findings import finding_lines, finding_rows
from dsv4port.cli.render import Reply, columns, count, full_path, shown_path
from dsv4port.cli.rows import recovered_row, recovery_notice
from dsv4port.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dsv4port.build.receipts import KernelCheck, KernelFinding


def hold_checkout(run: Run, stack: str | None, *, deep: bool = False) -> Reply:
    """Hold the checkout of the run against a lock: of `stack`, or of the stack it holds."""
    from dsv4port.apply.verify import verify_checkout

    checkout = run.checkout
    report = verify_checkout(
        run.project, stack, checkout, deep=deep, on_recovery=recovery_notice(run, checkout)
    )
    kernels = _kernels(run, report.stack)
    wrong = () if kernels is None else kernels.findings
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
        "kernels_checked": 0 if kernels is None else kernels.checked,
        "findings": [*finding_rows(report.findings), *map(_kernel_row, wrong)],
        "recovered": recovered_row(checkout, report.recovered),
    }
    compared = (
        f"{count(report.patches_checked, 'patch', 'patches')} and "
        f"{count(report.files_checked, 'file')} compared by content"
        + ("" if deep else ", all other files by git's stat cache")
    )
    if kernels is not None and kernels.checked:
        compared += f"; {count(kernels.checked, 'built kernel')} by sha256"
    if report.holds and not wrong:
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
        f"{count(len(report.findings) + len(wrong), 'mismatch', 'mismatches')}",
        *finding_lines(report.findings),
        *columns(((one.kind.value, one.subject, one.reason) for one in wrong), indent=2),
        compared,
    ]
    return Reply(fields, lines, int(ExitCode.NO))


def _kernels(run: Run, stack: str) -> KernelCheck | None:
    """What was built of the stack's own kernels, None where nothing was built in this project."""
    if not (run.project.state_folder / "build" / "kernels").is_dir():
        return None
    from dsv4port.build.receipts import check_kernels
    from dsv4port.manifest.stack import load_stack

    return check_kernels(run.project, load_stack(run.project, stack).patchsets)


def _kernel_row(finding: KernelFinding) -> dict[str, Any]:
    return {
        "kind": finding.kind.value,
        "subject": finding.subject,
        "reason": finding.reason,
        "patches": [],
    }


def hold_installed(run: Run, stack: str | None, folder: Path, prefix: str | None) -> Reply:
    """Hold an installed copy against a lock."""
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
