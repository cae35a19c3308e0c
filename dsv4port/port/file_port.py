"""One file patch onto the target: what becomes of content, existence, name and mode.

The three sides of the merge are the file before the patch (in the base chain), what the patch makes
of it, and the file in the target. Whatever can happen to a file has an outcome here; nothing is
overwritten, and what cannot be merged is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dsv4port.apply.file_patch import Entry as File
from dsv4port.errors import PatchFormatError
from dsv4port.git.objects import MODE_FILE, MODE_SUBMODULE, MODE_SYMLINK
from dsv4port.patch.model import BinaryMethod, ChangeKind, FilePatch
from dsv4port.port.content_port import port_content
from dsv4port.port.edits import BaseEdits, apply_edits, locate
from dsv4port.port.hunk_reports import exact_report, not_in_base
from dsv4port.port.outcomes import HunkReport, Outcome, Policy, Rung, judged
from dsv4port.port.presence import presence
from dsv4port.port.relocate import Relocator
from dsv4port.port.text import Text, split_lines

_BINARY_WINDOW = 8000
"""Bytes in which a NUL makes a content binary, as for git."""

_GONE = "upstream removed the file, and no file of the target is proven to be it"

_MOSTLY = 0.6
"""Share of an added file that an existing one must have to be that file, changed later."""


@dataclass(frozen=True, slots=True)
class BaseState:
    """A file patch in the base chain.

    Parameters:
        before: the file that the patch was written for; None where there is none.
        after: what the patch makes of it; None where it is deleted.
        located: its hunks in the lines of ``before``; None for what has no hunks to find.
        problem: why the patch does not fit its base; empty when it does.
        doubt: what is not certain about it.
    """

    before: File | None
    after: File | None
    located: BaseEdits | None = None
    problem: str = ""
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class FilePort:
    """What a file patch does to the target.

    ``changes`` maps paths of the target to what stands there afterwards (None: nothing). It is
    only meant to be used when every report is done.
    """

    reports: tuple[HunkReport, ...]
    changes: dict[bytes, File | None]


def is_binary(content: bytes) -> bool:
    """Whether git would call a content binary."""
    return b"\0" in content[:_BINARY_WINDOW]


def base_state(patch: FilePatch, before: File | None) -> BaseState:
    """What the patch makes of its own base."""
    if MODE_SUBMODULE in (patch.old_mode, patch.new_mode):
        return BaseState(before, before, problem="the patch changes a submodule")
    if patch.change is ChangeKind.ADD:
        return _added(patch, before)
    if before is None:
        return BaseState(None, None, problem="the base has no such file")
    if patch.binary is not None:
        return _binary(patch, before)
    located = locate(split_lines(before.content), patch.hunks)
    lines = apply_edits(split_lines(before.content), located.edits)
    mode = before.mode if patch.new_mode is None else patch.new_mode
    after: File | None = File(mode, b"".join(lines))
    problem = ""
    if patch.change is ChangeKind.DELETE:
        if lines or located.missing:
            problem = "the patch deletes the file, but its hunks are not all of it in the base"
        after = None
    return BaseState(before, after, located, problem)


def _added(patch: FilePatch, before: File | None) -> BaseState:
    try:
        content = (
            _binary_content(patch, b"")
            if patch.binary is not None
            else b"".join(line for hunk in patch.hunks for line in hunk.new_lines)
        )
    except PatchFormatError as error:
        return BaseState(before, before, problem=error.what)
    after = File(MODE_FILE if patch.new_mode is None else patch.new_mode, content)
    if before is not None and before != after:
        return BaseState(before, after, problem="the patch adds a file that its base has already")
    return BaseState(None, after)


def _binary(patch: FilePatch, before: File) -> BaseState:
    try:
        content = _binary_content(patch, before.content)
    except PatchFormatError as error:
        return BaseState(before, before, problem=error.what)
    if patch.change is ChangeKind.DELETE:
        return BaseState(before, None)
    mode = before.mode if patch.new_mode is None else patch.new_mode
    return BaseState(before, File(mode, content))


def _binary_content(patch: FilePatch, base: bytes) -> bytes:
    from dsv4port.patch.binary import apply_half

    assert patch.binary is not None
    half = patch.binary.forward
    if half.method is BinaryMethod.LITERAL and len(half.data) != half.size:
        raise PatchFormatError("the binary data is not as long as it says")
    return apply_half(half, base)


class FilePorter:
    """Ports one file patch.

    Parameters:
        patch: the file patch.
        state: it in its base chain.
        target: the file in the target at ``path``, None if there is none.
        path: where the target has the file: the old path, or where upstream moved it to.
        occupant: for a rename or copy, what the target has at the new path.
        policy: what is accepted.
        moved: why ``path`` is another than the patch names; empty when it is not.
        landed: share of the patch's hunks that upstream is known to have.
        relocator: finds code that upstream moved; None: nothing is looked for in other files.
        read: another file of the target, with what this patch did to it so far.
    """

    def __init__(
        self,
        patch: FilePatch,
        state: BaseState,
        target: File | None,
        path: bytes,
        *,
        occupant: File | None,
        policy: Policy,
        moved: str = "",
        landed: float = 0.0,
        relocator: Relocator | None = None,
        read: Callable[[bytes], File | None] = lambda path: None,
    ) -> None:
        self._patch = patch
        self._state = state
        self._target = target
        self._path = path
        self._occupant = occupant
        self._policy = policy
        self._moved = moved
        self._landed = landed
        self._relocator = relocator
        self._read = read
        self._others: dict[bytes, bytes] = {}

    def port(self) -> FilePort:
        """Decide everything about the file."""
        found = self._port()
        return FilePort(
            tuple(judged(report, self._policy) for report in found.reports), found.changes
        )

    def _port(self) -> FilePort:
        state, target = self._state, self._target
        if state.problem:
            return self._whole(Outcome.CONFLICT, None, state.problem)
        if self._patch.change is ChangeKind.ADD:
            return self._add()
        assert state.before is not None
        if self._patch.change is ChangeKind.DELETE:
            return self._delete()
        if self._patch.change is ChangeKind.RENAME:
            return self._rename()
        if self._patch.change is ChangeKind.COPY and self._occupant is not None:
            if self._occupant == state.after:
                return self._whole(
                    Outcome.UPSTREAMED, Rung.PRESENCE, "upstream has the same copy", {}
                )
            return self._whole(Outcome.CONFLICT, None, "the copy's path is taken by another file")
        if target is None:
            return self._gone()
        new_path = self._patch.path if self._patch.change is ChangeKind.COPY else self._path
        return self._modify(target, new_path, [])

    # Existence.

    def _add(self) -> FilePort:
        state, target = self._state, self._target
        assert state.after is not None
        if target is None:
            if not self._patch.hunks:
                return self._whole(Outcome.EXACT, Rung.EXACT, "", {self._path: state.after})
            report = HunkReport(
                self._patch.path, 1, Outcome.EXACT, Rung.EXACT, old_line=1, new_line=1
            )
            return FilePort((report,), {self._path: state.after})
        if target == state.after:
            return self._whole(
                Outcome.UPSTREAMED, Rung.PRESENCE, "upstream added the same file", {}, score=1.0
            )
        if target.content == state.after.content:
            return self._whole(
                Outcome.CONFLICT, None, "upstream added the same file with another mode", score=1.0
            )
        if is_binary(target.content) or is_binary(state.after.content):
            return self._whole(
                Outcome.CONFLICT, None, "upstream added another file under this name"
            )
        there = presence((), split_lines(state.after.content), (), split_lines(target.content))
        if there.survives >= _MOSTLY:
            return self._whole(
                Outcome.UPSTREAMED, Rung.PRESENCE,
                f"upstream added this file and changed it: it has {there.survives:.0%} of its "
                "lines",
                {}, score=there.score, upstream=target.content,
                review="upstream's file is not the patch's: compare them before dropping it",
            )  # fmt: skip
        return self._whole(
            Outcome.CONFLICT, None, "upstream added another file under this name",
            score=there.score,
        )  # fmt: skip

    def _delete(self) -> FilePort:
        target, before = self._target, self._state.before
        assert before is not None
        if target is None:
            return self._whole(
                Outcome.UPSTREAMED, Rung.PRESENCE, "upstream deleted the file too", {}, score=1.0
            )
        if target.content == before.content:
            rung = Rung.RELOCATION if self._moved else Rung.EXACT
            outcome = Outcome.RELOCATED if self._moved else Outcome.EXACT
            return self._whole(outcome, rung, self._moved, {self._path: None})
        return self._whole(
            Outcome.CONFLICT, None, "the patch deletes the file, but upstream changed it"
        )

    def _gone(self) -> FilePort:
        """A change of a file that the target has neither here nor, as a whole, elsewhere."""
        state = self._state
        nothing = self._whole(Outcome.CONFLICT, None, _GONE)
        if state.located is None or state.before is None or self._relocator is None:
            return nothing
        ported = port_content(
            self._patch.path, Text.of(self._path, state.before.content), state.located,
            Text(self._path, []), self._policy, relocator=self._relocator, read=self._content_of,
        )  # fmt: skip
        # Nothing stands in a file that is gone: that a hunk's removed lines do not, proves nothing.
        reports = [
            replace(report, outcome=Outcome.CONFLICT, rung=None, reason=_GONE, score=None)
            if report.outcome is Outcome.UPSTREAMED and report.new_path is None
            else report
            for report in ported.reports
        ]
        if not any(report.outcome.done for report in reports):
            return nothing
        changes: dict[bytes, File | None] = {}
        for path, content in ported.others.items():
            other = self._read(path)
            assert other is not None
            changes[path] = File(other.mode, content)
        return FilePort(tuple(reports), changes)

    def _rename(self) -> FilePort:
        patch, target = self._patch, self._target
        assert patch.new_path is not None
        if target is None and self._occupant is not None:
            report = self._report(
                Outcome.UPSTREAMED, Rung.PRESENCE, "upstream renamed the file in the same way",
                score=1.0,
            )  # fmt: skip
            if self._state.located is not None and not self._state.located.edits:
                return FilePort((report,), {})
            return self._modify(self._occupant, patch.new_path, [report])
        if target is None:
            return self._whole(Outcome.CONFLICT, None, _GONE)
        if self._occupant is not None:
            return self._whole(Outcome.CONFLICT, None, "the new name is taken by another file")
        ported = self._modify(target, patch.new_path, [])
        changes = dict(ported.changes)
        changes.setdefault(patch.new_path, target)
        changes = {self._path: None, **changes}
        reports = ported.reports or (self._report(Outcome.EXACT, Rung.EXACT, ""),)
        return FilePort(reports, changes)

    # Content and mode.

    def _modify(self, target: File, new_path: bytes, reports: list[HunkReport]) -> FilePort:
        state = self._state
        assert state.before is not None and state.after is not None
        mode, mode_report = self._mode(state.before, state.after, target)
        if mode_report is not None:
            reports.append(mode_report)
        content: bytes | None = target.content
        if state.before.content != state.after.content or self._patch.hunks:
            content, found = self._content(target)
            reports += found
        changes: dict[bytes, File | None] = {}
        if (content is not None and (content, mode) != (target.content, target.mode)) or (
            content is not None and self._patch.change is ChangeKind.COPY
        ):
            changes[new_path] = File(mode, content)
        for path, written in self._others.items():
            other = self._read(path)
            assert other is not None
            changes[path] = File(other.mode, written)
        return FilePort(tuple(reports), changes)

    def _mode(self, before: File, after: File, target: File) -> tuple[int, HunkReport | None]:
        if before.mode == after.mode:
            return target.mode, None
        if target.mode == after.mode:
            return target.mode, self._report(
                Outcome.UPSTREAMED, Rung.PRESENCE, f"upstream set mode {after.mode:o} too",
                score=1.0,
            )  # fmt: skip
        if target.mode == before.mode:
            outcome = Outcome.RELOCATED if self._moved else Outcome.EXACT
            rung = Rung.RELOCATION if self._moved else Rung.EXACT
            return after.mode, self._report(outcome, rung, self._moved)
        return target.mode, self._report(
            Outcome.CONFLICT, None,
            f"the patch sets mode {after.mode:o}, upstream set {target.mode:o}",
        )  # fmt: skip

    def _content(self, target: File) -> tuple[bytes | None, list[HunkReport]]:
        """The merged content, None where something is in conflict, and the reports."""
        state = self._state
        assert state.before is not None and state.after is not None
        before, after = state.before, state.after
        located = state.located
        whole = (
            located is None
            or MODE_SYMLINK in (before.mode, target.mode)
            or is_binary(before.content)
            or is_binary(target.content)
        )
        if whole:
            return self._by_whole(before, after, target)
        assert located is not None
        base = Text.of(self._patch.old_path or self._path, before.content)
        if before.content == target.content:
            reports = [
                not_in_base(self._patch.path, index)
                if placed is None
                else exact_report(self._patch.path, index, placed)
                for index, placed in enumerate(located.placed)
            ]
            if self._moved:
                reports = [
                    replace(one, outcome=Outcome.RELOCATED, rung=Rung.RELOCATION,
                            reason=self._moved, new_path=self._path)
                    if one.outcome.done else one
                    for one in reports
                ]  # fmt: skip
            done = all(one.outcome.done for one in reports)
            return after.content if done else None, reports
        ported = port_content(
            self._patch.path, base, located, Text.of(self._path, target.content), self._policy,
            landed=self._landed, relocated=self._moved, relocator=self._relocator,
            read=self._content_of,
        )  # fmt: skip
        self._others = ported.others
        return ported.content, ported.reports

    def _content_of(self, path: bytes) -> bytes | None:
        found = self._read(path)
        return None if found is None or is_binary(found.content) else found.content

    def _by_whole(
        self, before: File, after: File, target: File
    ) -> tuple[bytes | None, list[HunkReport]]:
        """Content that is not merged by lines: links and binary files."""
        if self._state.located is not None and self._state.located.missing:
            return None, [
                not_in_base(self._patch.path, index) for index in self._state.located.missing
            ]
        if target.content == after.content:
            return target.content, [
                self._report(
                    Outcome.UPSTREAMED, Rung.PRESENCE, "upstream has the same content", score=1.0
                )
            ]
        if target.content == before.content and (target.mode == MODE_SYMLINK) == (
            before.mode == MODE_SYMLINK
        ):
            outcome = Outcome.RELOCATED if self._moved else Outcome.EXACT
            rung = Rung.RELOCATION if self._moved else Rung.EXACT
            return after.content, [self._report(outcome, rung, self._moved)]
        return None, [
            self._report(
                Outcome.CONFLICT, None, "upstream changed content that is never merged by lines"
            )
        ]

    # Reports of the file as a whole.

    def _report(
        self, outcome: Outcome, rung: Rung | None, reason: str, *,
        score: float | None = None, upstream: bytes | None = None, review: str = "",
    ) -> HunkReport:  # fmt: skip
        return HunkReport(
            self._patch.path, 0, outcome, rung, reason,
            new_path=self._path if self._moved else None, score=score, upstream=upstream,
            review=review,
        )  # fmt: skip

    def _whole(
        self, outcome: Outcome, rung: Rung | None, reason: str,
        changes: dict[bytes, File | None] | None = None, *,
        score: float | None = None, upstream: bytes | None = None, review: str = "",
    ) -> FilePort:  # fmt: skip
        report = self._report(outcome, rung, reason, score=score, upstream=upstream, review=review)
        return FilePort((report,), changes or {})
