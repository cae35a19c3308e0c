"""Several pins at once: a row for each patch, a cell for each pin."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4port.port.series_results import Fate, PortedPatch, SeriesPort


def matrix(reports: Sequence[SeriesPort]) -> dict[str, dict[str, str]]:
    """Cells by patch key and pin, both in order."""
    rows: dict[str, dict[str, str]] = {}
    for report in reports:
        for member in report.members:
            for patch in member.patches:
                rows.setdefault(patch.source.key, {})[report.new.name] = cell(patch)
    pins = [report.new.name for report in reports]
    return {key: {pin: cells.get(pin, "-") for pin in pins} for key, cells in rows.items()}


def cell(patch: PortedPatch) -> str:
    """What became of a patch, in a word or two; ``?`` asks for a look."""
    if patch.port is None or patch.fate in (Fate.RESOLVED, Fate.LEFT_OUT):
        text = patch.fate.value
    else:
        text = patch.port.outcome.value
    return f"{text} ?" if patch.review and patch.fate.done else text
