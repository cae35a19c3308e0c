"""A stack file for the new pin: offered as text, never written over anything."""

from __future__ import annotations

import re

from dsv4port.manifest.scalars import write_text
from dsv4port.manifest.stack import Stack
from dsv4port.port.series_results import SeriesPort


def new_stack_name(report: SeriesPort) -> str:
    """The stack's name with the new pin in the place of the old one, or behind it."""
    assert report.stack is not None
    old, new = report.old.name, report.new.name
    for before, after in ((old, new), (_short(old), _short(new))):
        if before and re.search(rf"{re.escape(before)}(?![0-9])", report.stack):
            return report.stack.replace(before, after, 1)
    return f"{report.stack}-{new}"


def _short(pin: str) -> str:
    """``v0.26`` of ``v0.26.0``."""
    return pin.rpartition(".")[0] if pin.count(".") > 1 else pin


def new_stack_text(report: SeriesPort, name: str, old: Stack) -> str:
    """The file's text. Patchsets of which nothing is left are not in it."""
    title = old.title.replace(report.old.name.removeprefix("v"), report.new.name.removeprefix("v"))
    kept = [member.name for member in report.members if member.series_files]
    rows = [
        "format: 1",
        f"name: {write_text(name)}",
        f"title: {write_text(title)}",
        f"pin: {write_text(report.new.name)}",
        f"target: {write_text(old.target)}",
        f"patchsets: [{', '.join(map(write_text, kept))}]",
    ]
    return "\n".join(rows) + "\n"
