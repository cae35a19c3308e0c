"""``dsv4port doctor``: check what the machine must have."""

from __future__ import annotations

from typing import Annotated

import typer

from dsv4port.cli.checks import Check, State, run_checks
from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns
from dsv4port.errors import ExitCode


def command(
    context: typer.Context,
    network: Annotated[
        bool, typer.Option("--network", help="Also ask the package index for a pin.")
    ] = False,
) -> Reply:
    """Check Python, git, packages, cache, project and disk; ends with 6 where one is not usable."""
    checks = list(run_checks(Run.of(context), network=network))
    failed = any(check.state is State.FAIL for check in checks)
    fields = {
        "checks": [
            {
                "name": check.name,
                "state": check.state.value,
                "found": check.found,
                "fix": check.fix,
            }
            for check in checks
        ]
    }
    return Reply(fields, _lines(checks), int(ExitCode.ENVIRONMENT) if failed else 0)


def _lines(checks: list[Check]) -> list[str]:
    lines = []
    table = columns((check.state.value, check.name, check.found) for check in checks)
    for check, line in zip(checks, table, strict=True):
        lines.append(line)
        if check.state is not State.OK and check.fix is not None:
            lines.append(f"      → {check.fix}")
    return lines
