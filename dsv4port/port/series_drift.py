"""API drift of a series, by the patch that it concerns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dsv4port.drift.applied import apply_to_pin
from dsv4port.drift.findings import Finding
from dsv4port.drift.meaning import load_meanings, meanings_between
from dsv4port.drift.series import Workbench, drift_of_series, folders_of
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.port.series_input import PortInput
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.pins import ImportedPin
from dsv4port.upstream.progress import NO_PROGRESS, Progress


def drift_by_patch(
    project: Project,
    pins: Pins,
    source: PortInput,
    old: ImportedPin,
    new: ImportedPin,
    cache: Cache,
    *,
    progress: Progress = NO_PROGRESS,
) -> dict[str, tuple[Finding, ...]]:
    """Findings for each patch (by its key), each with the lines of that patch alone.

    Raises:
        SeriesConflictError: the series does not apply to its own pin.
    """
    items = [patch.item for member in source.members for patch in member.patches]
    meanings = meanings_between(load_meanings(project, pins), pins, old.name, new.name)
    with Workbench(cache, progress) as bench:
        applied = apply_to_pin(items, bench.reader, old.commit)
        folders = folders_of(applied)
        findings = drift_of_series(
            bench.index(old, folders), bench.index(new, folders), applied, meanings=meanings
        )
    return split_by_patch(findings)


def split_by_patch(findings: Iterable[Finding]) -> dict[str, tuple[Finding, ...]]:
    """The findings of each patch, most severe first."""
    rows: dict[str, list[Finding]] = {}
    for finding in findings:
        keys = dict.fromkeys(concern.patch for concern in finding.concerns)
        for key in keys:
            own = tuple(one for one in finding.concerns if one.patch == key)
            rows.setdefault(key, []).append(replace(finding, concerns=own))
    return {key: tuple(found) for key, found in rows.items()}
