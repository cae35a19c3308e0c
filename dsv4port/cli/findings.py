"""``dsv4port verify``'s findings, as rows for JSON and as lines for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import columns

if TYPE_CHECKING:
    from dsv4port.apply.verify import Finding


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON."""
    return [
        {
            "kind": finding.kind.value,
            "subject": finding.subject,
            "reason": finding.reason,
            "patches": list(finding.patches),
        }
        for finding in findings
    ]


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Findings for people, one a line, each with the patches that the file belongs to."""
    return columns(
        (
            (finding.kind.value, finding.subject, finding.reason, _owners(finding))
            for finding in findings
        ),
        indent=2,
    )


def _owners(finding: Finding) -> str:
    others = [key for key in finding.patches if key != finding.subject]
    return f"(of {', '.join(others)})" if others else ""
