"""Why a patch is in conflict, in the terms of the person who has to decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.pack import Rehearsal
from dsv4port.git.process import Git
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import Repository, open_repository
from dsv4port.manifest.pins import Pins
from dsv4port.patch.diff import parse_diff
from dsv4port.patch.model import Hunk
from dsv4port.port.engine import PortEngine, PortItem
from dsv4port.port.history import (
    BreakingCommit,
    first_breaking,
    first_parent_commits,
    pin_commit,
)
from dsv4port.port.markers import Labels, marked
from dsv4port.port.outcomes import HunkReport, Policy
from dsv4port.port.series_input import SeriesPatch
from dsv4port.port.series_results import ConflictFile, PortedPatch, SeriesPort
from dsv4port.port.text import Text, split_lines
from dsv4port.port.workshop import Workshop

_NEAR = 12
"""Lines around a hunk that count as its place where no scope does."""

_LARGE = 120
"""Lines of upstream's diff in a scope from which on only what is near the hunk is shown."""


@dataclass(frozen=True, slots=True)
class ExplainedHunk:
    """One hunk that is not in the result.

    Parameters:
        report: what the engine says.
        body: the hunk as it stands in the patch.
        scope: the scope that ``upstream`` is about; None for the lines around it.
        upstream: what upstream changed there between the two pins, as a diff; may be empty.
        near: where that was too much: the line of the old pin around which it is shown.
    """

    report: HunkReport
    body: bytes
    scope: str | None
    upstream: bytes
    near: int | None = None


@dataclass(frozen=True, slots=True)
class ExplainedFile:
    """One file of the patch; ``merged`` has markers, None where lines cannot say it."""

    sides: ConflictFile
    merged: File | None
    hunks: tuple[ExplainedHunk, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A patch in conflict. ``breaking`` is None where no history was at hand or none breaks it."""

    patch: PortedPatch
    files: tuple[ExplainedFile, ...]
    breaking: BreakingCommit | None
    history: str
    """What was done to find the breaking commit, or why it was not."""


class Explainer:
    """Explains the conflicts of one port.

    Parameters:
        history: a repository with upstream's history, where there is one.
    """

    def __init__(
        self, report: SeriesPort, pins: Pins, policy: Policy, history: Path | None = None
    ) -> None:
        self._report = report
        self._pins = pins
        self._policy = policy
        self._history = None if history is None else open_repository(history)

    def explain_all(self) -> dict[str, Explanation]:
        """Every conflict, by patch key."""
        with ObjectReader(Git(self._report.new.store)) as reader:
            return {
                one.source.key: self._explain(one, reader)
                for one in self._report.conflicts
                if one.port is not None
            }

    def _explain(self, one: PortedPatch, reader: ObjectReader) -> Explanation:
        assert one.port is not None
        labels = labels_of(self._report, one)
        files = []
        for sides in one.conflict:
            hunks = [hunk for hunk in one.port.hunks if hunk.path == sides.patch.path]
            open_hunks = [hunk for hunk in hunks if not hunk.outcome.done]
            if not open_hunks:
                continue
            files.append(
                ExplainedFile(
                    sides,
                    marked(sides, hunks, labels),
                    tuple(self._hunk(sides, hunk, reader) for hunk in open_hunks),
                )
            )
        breaking, words = self._breaking(one)
        return Explanation(one, tuple(files), breaking, words)

    # What upstream did there.

    def _hunk(self, sides: ConflictFile, report: HunkReport, reader: ObjectReader) -> ExplainedHunk:
        body = b""
        if 0 < report.number <= len(sides.patch.hunks):
            hunk = sides.patch.hunks[report.number - 1]
            body = hunk.header + b"".join(hunk.body)
        source = sides.patch.old_path or sides.patch.path
        old, new = (
            self._pristine(reader, tree, path)
            for tree, path in (
                (self._report.old.tree, source),
                (self._report.new.tree, report.new_path or source),
            )
        )
        if old is None or new is None or sides.base is None:
            return ExplainedHunk(report, body, None, b"")
        scope, spans, near = _place(sides, report, source, old[1], new[1])
        upstream = self._diff(old[0], new[0], *spans)
        if scope is not None and upstream.count(b"\n") > _LARGE:
            upstream = self._diff(old[0], new[0], near, range(0)) or upstream
            return ExplainedHunk(report, body, scope, upstream, near.start + _NEAR + 1)
        return ExplainedHunk(report, body, scope, upstream)

    def _pristine(self, reader: ObjectReader, tree: str, path: bytes) -> tuple[str, bytes] | None:
        import os

        if b"\n" in path:
            return None
        found = reader.find(f"{tree}:{os.fsdecode(path)}")
        return None if found is None else (found[0], found[2])

    def _diff(self, old: str, new: str, before: range, after: range) -> bytes:
        if old == new:
            return b""
        diff = (
            Git(self._report.new.store)
            .run("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--text", old, new)
            .stdout
        )
        at = diff.find(b"\n@@ ")
        if at < 0:
            return b""
        # git names the blobs, which are two; what counts are the hunks.
        files, _ = parse_diff(b"--- a/file\n+++ b/file" + diff[at:], "upstream's diff")
        return b"".join(
            hunk.header + b"".join(hunk.body)
            for found in files
            for hunk in found.hunks
            if _touches(hunk, before, after)
        )

    # When it broke.

    def _breaking(self, one: PortedPatch) -> tuple[BreakingCommit | None, str]:
        if self._history is None:
            return None, "no history was given (--history DIR)"
        old, new = self._report.old.name, self._report.new.name
        ends = [pin_commit(self._history, self._pins.pin(pin)) for pin in (old, new)]
        if ends[0] is None or ends[1] is None:
            missing = old if ends[0] is None else new
            return None, f"the history does not have {missing}"
        paths = [sides.patch.old_path or sides.patch.path for sides in one.conflict]
        commits = first_parent_commits(self._history, ends[0], ends[1], paths)
        with Workshop([self._report.new.store, self._history.common]) as shop:
            breaks = self._breaks(one, shop)
            found = first_breaking(self._history, commits, breaks)
        if found is None:
            words = (
                f"on none of the {len(commits)} commits that touch its files: what the target "
                "has of this series itself, or upstream's branch of the release, breaks it"
            )
            return None, words
        return found, f"{found.tried} of {found.candidates} commits that touch its files were tried"

    def _breaks(self, one: PortedPatch, shop: Workshop) -> Callable[[str], bool]:
        before: list[SeriesPatch] = []
        for member in self._report.members:
            for patch in member.patches:
                before.append(patch.source)
                if patch is one:
                    break
            else:
                continue
            break

        def breaks(commit: str) -> bool:
            with ObjectReader(shop.git) as reader:
                engine = PortEngine(
                    reader, Rehearsal(), self._report.old.tree,
                    Repository(shop.repository.git_dir, shop.repository.common).tree_id(commit),
                    policy=self._policy,
                )  # fmt: skip
                engine.expect(PortItem(patch.key, patch.patch) for patch in before)
                last = [engine.port(PortItem(patch.key, patch.patch)) for patch in before][-1]
                return not last.outcome.done

        return breaks


def labels_of(report: SeriesPort, one: PortedPatch) -> Labels:
    """The names of the sides in markers."""
    return Labels(
        f"ours: {report.new.name} with the series so far",
        f"base: {report.old.name} with the series so far",
        f"theirs: {one.source.file}",
    )


def _place(
    sides: ConflictFile, report: HunkReport, path: bytes, old: bytes, new: bytes
) -> tuple[str | None, tuple[range, range], range]:
    """Scope of a hunk, its 0-based rows in the two pins' own files, and the old rows near it."""
    assert sides.base is not None
    row = (report.old_line or _stated(sides, report)) - 1
    base = Text.of(path, sides.base.content)
    # The base has what earlier patches added; the same line of the pin itself counts.
    lines = split_lines(old)
    row_in_pin = _same_row(base.lines, row, lines)
    near = range(row_in_pin - _NEAR, row_in_pin + _NEAR + 1)
    scope = base.scope(row)
    if scope is not None and scope.steps:
        spans = [Text.of(path, content).span(scope) for content in (old, new)]
        if spans[0]:
            before = range(*spans[0][0])
            after = range(*spans[1][0]) if spans[1] else range(0)
            return scope.name, (before, after), near
    return None, (near, range(0)), near


def _same_row(base: Sequence[bytes], row: int, pin: Sequence[bytes]) -> int:
    """Where the pin has a row of the base: the nearest equal line, else the same number."""
    if not 0 <= row < len(base):
        return row
    equal = [at for at, line in enumerate(pin) if line == base[row]]
    return min(equal, key=lambda at: abs(at - row), default=row)


def _stated(sides: ConflictFile, report: HunkReport) -> int:
    if 0 < report.number <= len(sides.patch.hunks):
        return max(sides.patch.hunks[report.number - 1].old_start, 1)
    return 1


def _touches(hunk: Hunk, before: range, after: range) -> bool:
    old = _changed(hunk, hunk.old_start, b"+")
    new = _changed(hunk, hunk.new_start, b"-")
    return any(row in before for row in old) or any(row in after for row in new)


def _changed(hunk: Hunk, start: int, other: bytes) -> Sequence[int]:
    """0-based rows of one side at which the hunk changes something."""
    rows, row = [], max(start, 1) - 1
    for index in range(len(hunk.kinds)):
        kind = hunk.kinds[index : index + 1]
        if kind != b" ":
            rows.append(row)
        if kind != other:
            row += 1
    return rows
