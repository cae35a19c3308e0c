"""Findings as SARIF 2.1.0, the format that code hosts show beside a change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from dsv4port.drift.findings import Finding, Kind, Severity
from dsv4port.drift.index import Place

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif_log(
    findings: Sequence[Finding],
    *,
    version: str,
    old: str,
    new: str,
    patch_files: dict[str, str],
) -> dict[str, Any]:
    """One run with one result per finding.

    Parameters:
        version: of this tool.
        old, new: names of the two pins.
        patch_files: path of each patch's file, relative to the project, by the patch's name.

    Returns:
        What JSON can hold. A result lies at the line of the patch it concerns, and without one at
        the line of the old tree; the lines of both trees are related locations.
    """
    kinds = sorted({one.kind for one in findings}, key=lambda kind: kind.value)
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "dsv4port drift",
                        "semanticVersion": version,
                        "rules": [_rule(kind) for kind in kinds],
                    }
                },
                "columnKind": "utf16CodeUnits",
                "originalUriBaseIds": {
                    "PROJECT": {"description": {"text": "the root of the project"}},
                    "OLD": {"description": {"text": f"the tree of {old}"}},
                    "NEW": {"description": {"text": f"the tree of {new}"}},
                },
                "results": [_result(one, kinds, patch_files) for one in findings],
                "properties": {"from": old, "to": new},
            }
        ],
    }


def _rule(kind: Kind) -> dict[str, Any]:
    return {
        "id": kind.value,
        "name": "".join(word.capitalize() for word in kind.value.split("-")),
        "shortDescription": {"text": kind.value.replace("-", " ")},
    }


def _result(finding: Finding, kinds: Sequence[Kind], patch_files: dict[str, str]) -> dict[str, Any]:
    text = finding.message
    if finding.replacement is not None:
        text += f" (see {finding.replacement})"
    locations = list(_patch_locations(finding, patch_files))
    if not locations:
        place, base = (finding.old, "OLD") if finding.old else (finding.new, "NEW")
        locations = [_location(place, base)] if place is not None else []
    related = [
        {"id": number, **_location(place, base), "message": {"text": label}}
        for number, (place, base, label) in enumerate(_trees(finding), 1)
    ]
    result: dict[str, Any] = {
        "ruleId": finding.kind.value,
        "ruleIndex": kinds.index(finding.kind),
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": locations,
        "partialFingerprints": {"dsv4portDrift/v1": _fingerprint(finding)},
        "properties": {
            "subject": finding.subject,
            "replacement": finding.replacement,
            "evidence": list(finding.evidence),
        },
    }
    if related:
        result["relatedLocations"] = related
    return result


def _patch_locations(finding: Finding, patch_files: dict[str, str]) -> Iterable[dict[str, Any]]:
    for one in finding.concerns:
        file = patch_files.get(one.patch)
        if file is not None:
            yield _location(Place(file, max(1, one.patch_line)), "PROJECT")


def _trees(finding: Finding) -> Iterable[tuple[Place, str, str]]:
    if finding.old is not None:
        yield finding.old, "OLD", "before"
    if finding.new is not None:
        yield finding.new, "NEW", "now"


def _location(place: Place, base: str) -> dict[str, Any]:
    from urllib.parse import quote

    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(place.path), "uriBaseId": base},
            "region": {"startLine": max(1, place.line)},
        }
    }


def _fingerprint(finding: Finding) -> str:
    """Stable across runs and line numbers."""
    parts = (finding.kind.value, finding.subject, *sorted({one.patch for one in finding.concerns}))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
