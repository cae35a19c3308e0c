"""What recorded tests come to: rows of the validation table, and what was never shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dsv4port.evidence.store import Evidence, Standing
from dsv4port.testing.outcomes import Outcome
from dsv4port.testing.suites import SuiteKind

_WHAT = {
    SuiteKind.PATCHSET: "own tests",
    SuiteKind.UPSTREAM: "vLLM's tests",
    SuiteKind.RED: "fix tests on the bare pin",
}
_NUMBER = re.compile(r"\d+")


def validation_row(one: Evidence) -> list[str]:
    """Patchsets, what ran, device, on which tree, outcomes, seconds, source."""
    counts: dict[str, int] = {}
    for test in one.tests:
        word = test.redness.value if one.kind is SuiteKind.RED else test.outcome.value
        counts[word] = counts.get(word, 0) + 1
    said = [f"{number} {word}" for word, number in sorted(counts.items())] + list(one.problems)
    seconds = sum(test.seconds for test in one.tests)
    return [
        ", ".join(one.patchsets),
        _WHAT[one.kind],
        one.device,
        "the bare pin" if one.kind is SuiteKind.RED else one.standing.value,
        ", ".join(said) or "no tests",
        f"{seconds:.0f}" if seconds else "—",
        f"`{one.source}`",
    ]


def left_out(found: Iterable[Evidence]) -> list[list[str]]:
    """Tests that did not run, by reason: number, outcome, reason, source."""
    rows: dict[tuple[str, str, str], int] = {}
    for one in found:
        if one.kind is SuiteKind.RED:
            continue
        for test in one.tests:
            if not test.outcome.ran or test.outcome is Outcome.ENVIRONMENT:
                reason = (test.reason or "").partition("\n")[0]
                key = (test.outcome.value, reason, one.source)
                rows[key] = rows.get(key, 0) + 1
    return [[str(n), word, reason, f"`{source}`"] for (word, reason, source), n in rows.items()]


def never_passed(found: Sequence[Evidence]) -> list[str]:
    """Ids of a patchset's tests that were seen, and passed on this stack's files in no run."""
    counted = [
        one
        for one in found
        if one.kind is SuiteKind.PATCHSET and one.standing is not Standing.STALE
    ]
    seen = {test.id for one in counted for test in one.tests if "::" in test.id}
    passed = {test.id for one in counted for test in one.tests if test.outcome is Outcome.PASSED}
    return sorted(seen - passed)


def unproven_patchsets(names: Iterable[str], found: Iterable[Evidence]) -> list[str]:
    """Patchsets of which no test passed on this stack's files in any run."""
    proven = {
        name
        for one in found
        if one.kind is SuiteKind.PATCHSET and one.standing is not Standing.STALE
        for name in one.patchsets
        if any(test.outcome is Outcome.PASSED and name in test.id for test in one.tests)
    }
    return [name for name in names if name not in proven]
