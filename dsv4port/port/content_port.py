"""The content of one file patch: merged in its file, and where its code went to other files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dsv4port.port.edits import BaseEdits
from dsv4port.port.elsewhere import beside_upstreamed, look_elsewhere
from dsv4port.port.file_merge import merge_file
from dsv4port.port.hunk_reports import report_hunks
from dsv4port.port.merge import merged_lines
from dsv4port.port.moved_merge import MovedMerge, replaced
from dsv4port.port.outcomes import HunkReport, Policy
from dsv4port.port.relocate import Relocator
from dsv4port.port.syntax import without_broken
from dsv4port.port.text import Text


@dataclass(frozen=True, slots=True)
class ContentPort:
    """The merged content (None where something is in conflict), and other files it changed."""

    content: bytes | None
    reports: list[HunkReport]
    others: dict[bytes, bytes] = field(default_factory=dict)


def port_content(
    path: bytes, base: Text, located: BaseEdits, target: Text, policy: Policy, *,
    landed: float = 0.0, relocated: str = "", relocator: Relocator | None = None,
    read: Callable[[bytes], bytes | None] = lambda path: None,
) -> ContentPort:  # fmt: skip
    """Merge the hunks of one file.

    Parameters:
        path: the file in the patch.
        landed: share of the patch's hunks that upstream is known to have.
        relocated: why the target is another file than the patch names; empty when it is not.
        relocator, read: find code in other files, and read those.
    """
    decided = beside_upstreamed(
        [look_elsewhere(base, target, one) for one in merge_file(base, located.edits, target)],
        landed,
    )
    decided = without_broken(base, located.edits, target, decided)
    moved = {}
    others: dict[bytes, bytes] = {}
    if relocator is not None and any(not one.settled for one in decided):
        elsewhere = MovedMerge(relocator, base, located, target, read)
        moved = elsewhere.find(decided)
        decided = replaced(decided, moved)
        others = elsewhere.contents()
    reports = report_hunks(
        path, base, located, target, decided, policy, relocated=relocated, moved=moved
    )
    if not all(one.outcome.done for one in reports):
        return ContentPort(None, reports)
    lines = merged_lines(target.lines, [one.resolution for one in decided])
    return ContentPort(b"".join(lines), reports, others)
