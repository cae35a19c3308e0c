"""``dsv4port status``: say what the checkout holds."""

from __future__ import annotations

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply
from dsv4port.cli.run_status import report_checkout


def command(context: typer.Context) -> Reply:
    """Say what the checkout holds: pin, stack, patches, changes since, and what was saved."""
    return report_checkout(Run.of(context))
