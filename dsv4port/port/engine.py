"""A series from one tree to another, patch by patch.

Two chains are kept. The *base chain* is the tree that the series was written for, with every patch
of it applied as written; it gives each patch its recorded base. The *target* is the tree to port
to, with what could be ported. A patch that is in conflict leaves the target as it was, and the
next one is tried; so a later patch may meet a target that lacks what it was written on. Such a
patch is tried both ways: as written, and on a base chain that lacks those patches too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dsv4port.apply.file_patch import Entry as File
from dsv4port.git.objects import MODE_SUBMODULE, Entry
from dsv4port.git.pack import ObjectSink
from dsv4port.git.reader import ObjectReader
from dsv4port.patch.model import ChangeKind, FilePatch, Patch
from dsv4port.port.file_port import BaseState, FilePort, FilePorter, base_state
from dsv4port.port.outcomes import HunkReport, Outcome, Policy, Rung, combined
from dsv4port.port.relocate import FileMove, Relocator
from dsv4port.port.sides import Blobs, Side


@dataclass(frozen=True, slots=True)
class PortItem:
    """A patch as the engine takes it: the name it is reported under, and its parsed form.

    ``more`` are further patches of the same file, which change again what it changed; all of them
    are ported, or none.
    """

    key: str
    patch: Patch
    more: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchPort:
    """What became of one patch.

    Parameters:
        key: its name.
        outcome: of all hunks together.
        tree: the target after it (unchanged by a patch in conflict).
        hunks: one report for each hunk, and for each file's existence, name or mode if changed.
        changed: paths of the target that it changed.
        depends: keys of patches in conflict that touched the same files before it.
        without: whether it was merged as if those patches did not exist.
    """

    key: str
    outcome: Outcome
    tree: str
    hunks: tuple[HunkReport, ...]
    changed: tuple[bytes, ...] = ()
    depends: tuple[str, ...] = ()
    without: bool = False

    @property
    def review(self) -> tuple[str, ...]:
        """Why a person should look at it; empty when nothing is in doubt."""
        return tuple(dict.fromkeys(one.review for one in self.hunks if one.review))

    @property
    def rung(self) -> Rung | None:
        """The last rung that any of its hunks needed; None where one is in conflict."""
        if not self.outcome.done:
            return None
        order = list(Rung)
        found = [one.rung for one in self.hunks if one.rung is not None]
        return max(found, key=order.index) if found else None


@dataclass(frozen=True, slots=True)
class PortReport:
    """What became of a series. ``tree`` is the target with everything that could be ported."""

    base: str
    onto: str
    patches: tuple[PatchPort, ...]
    tree: str

    @property
    def conflicts(self) -> tuple[PatchPort, ...]:
        """The patches that a person must resolve."""
        return tuple(one for one in self.patches if not one.outcome.done)


@dataclass
class _Attempt:
    """One way of porting a patch."""

    states: list[tuple[FilePatch, BaseState]]
    ports: list[FilePort]
    changes: dict[bytes, File | None] = field(default_factory=dict)

    @property
    def reports(self) -> list[HunkReport]:
        return [report for found in self.ports for report in found.reports]

    @property
    def outcome(self) -> Outcome:
        outcomes = [report.outcome for report in self.reports]
        return combined(outcomes) if outcomes else Outcome.CONFLICT


class PortEngine:
    """Ports patches one after another.

    Parameters:
        reader: objects of the repository that has both trees.
        sink: takes the new objects.
        base, onto: ids of the two trees.
        policy: what is accepted of which rung.
        changed: lists what differs between the two trees; without it nothing is looked for in
            other files than the patch names.
    """

    def __init__(
        self,
        reader: ObjectReader,
        sink: ObjectSink,
        base: str,
        onto: str,
        *,
        policy: Policy | None = None,
        changed: Callable[[], dict[bytes, tuple[Entry | None, Entry | None]]] | None = None,
    ) -> None:
        self._sink = sink
        self._policy = policy or Policy()
        self._blobs = Blobs(reader)
        self._base = Side(self._blobs, base)
        self._onto = Side(self._blobs, onto)
        self._relocator = None if changed is None else self._make_relocator(changed)
        self._without: dict[bytes, File | None] = {}
        """Files as the base chain has them without the patches in conflict."""
        self._failed: dict[bytes, list[str]] = {}
        self._ids = (base, onto)
        self._reports: list[PatchPort] = []

    def expect(self, items: Iterable[PortItem]) -> None:
        """Read what the series will touch in one go; asking file by file costs more."""
        paths = dict.fromkeys(
            path
            for item in items
            for patch in (item.patch, *item.more)
            for found in patch.files
            for path in (found.old_path, found.new_path)
            if path is not None
        )
        for tree in self._ids:
            self._blobs.fetch_paths(tree, paths)

    def port(self, item: PortItem) -> PatchPort:
        """Port one patch; nothing of a patch in conflict stays."""
        report = self._port(item) if not item.more else self._port_parts(item)
        self._reports.append(report)
        return report

    def _port_parts(self, item: PortItem) -> PatchPort:
        """A file with several patches: all of them are tried, and all or none stay."""
        tree = self._onto.tree
        before: dict[bytes, File | None] = {}
        parts: list[PatchPort] = []
        for patch in (item.patch, *item.more):
            found = self._port(PortItem(item.key, patch), before)
            parts.append(found)
        outcome = combined([part.outcome for part in parts])
        if not outcome.done and before:
            self._onto.write(before, self._sink)
        return PatchPort(
            item.key, outcome, self._onto.tree if outcome.done else tree,
            tuple(hunk for part in parts for hunk in part.hunks),
            tuple(sorted({path for part in parts for path in part.changed}))
            if outcome.done else (),
            tuple(dict.fromkeys(key for part in parts for key in part.depends if key != item.key)),
            any(part.without for part in parts),
        )  # fmt: skip

    def _port(self, item: PortItem, before: dict[bytes, File | None] | None = None) -> PatchPort:
        """Port one patch; ``before`` notes what stood where it changes the target."""
        attempt = self._attempt(item.patch, {})
        touched = {path for found in item.patch.files for path in (found.old_path, found.new_path)
                   if path is not None}  # fmt: skip
        depends = tuple(
            dict.fromkeys(key for path in sorted(touched) for key in self._failed.get(path, ()))
        )
        without = False
        if not attempt.outcome.done and depends:
            second = self._attempt(item.patch, self._without)
            if second.outcome.done:
                self._advance_base(attempt)
                attempt, without = second, True
        outcome = attempt.outcome
        if outcome.done:
            if before is not None:
                for path in attempt.changes:
                    before.setdefault(path, self._onto.get(path))
            self._onto.write(attempt.changes, self._sink)
        report = PatchPort(
            item.key, outcome, self._onto.tree, tuple(attempt.reports),
            tuple(sorted(attempt.changes)) if outcome.done else (), depends, without,
        )  # fmt: skip
        if not without:
            self._advance_base(attempt)
        if outcome.done:
            for path in touched & self._without.keys():
                self._follow_without(item.patch, path)
        else:
            for path in touched:
                self._failed.setdefault(path, []).append(item.key)
        return report

    def report(self) -> PortReport:
        """Everything ported so far."""
        return PortReport(*self._ids, tuple(self._reports), self._onto.tree)

    def before(self, path: bytes) -> tuple[File | None, File | None]:
        """A file as the next patch finds it: in its base, and in the target."""
        return self._base.get(path), self._onto.get(path)

    def settle(self, item: PortItem, changes: dict[bytes, File | None]) -> str:
        """Take a given result for a patch instead of porting it; returns the target's tree."""
        vacated = {found.old_path for found in item.patch.files if found.new_path is None}
        states = []
        for found in item.patch.files:
            source = found.old_path if found.old_path is not None else found.path
            replaces = found.change is ChangeKind.ADD and source in vacated
            states.append((found, self._state(found, None if replaces else self._base.get(source))))
        for found, state in states:
            if not state.problem:
                self._advance_file(found, state)
        for found, _ in states:
            for path in {found.old_path, found.new_path} & self._without.keys():
                assert path is not None
                self._follow_without(item.patch, path)
        if changes:
            self._onto.write(changes, self._sink)
        return self._onto.tree

    # One way.

    def _attempt(self, patch: Patch, base: dict[bytes, File | None]) -> _Attempt:
        """Port a patch; a second time with what is known then, if upstream has parts of it.

        Other files are only searched when the patch's own do not settle it, and not for a patch
        that upstream has most of.
        """
        attempt = self._try(patch, base, 0.0, None)
        hunks = [report.outcome for report in attempt.reports]
        there = sum(one is Outcome.UPSTREAMED for one in hunks) + 0.5 * sum(
            one is Outcome.PARTLY_UPSTREAMED for one in hunks
        )
        landed = there / len(hunks) if hunks else 0.0
        relocator = self._relocator if landed < 0.5 and not attempt.outcome.done else None
        if relocator is None and landed in (0, 1):
            return attempt
        return self._try(patch, base, landed, relocator)

    def _try(
        self,
        patch: Patch,
        base: dict[bytes, File | None],
        landed: float,
        relocator: Relocator | None,
    ) -> _Attempt:
        states: list[tuple[FilePatch, BaseState]] = []
        ports: list[FilePort] = []
        changes: dict[bytes, File | None] = {}
        vacated = {
            found.old_path
            for found in patch.files
            if found.change in (ChangeKind.DELETE, ChangeKind.RENAME)
        }

        def read(path: bytes) -> File | None:
            return changes[path] if path in changes else self._onto.get(path)

        for found in patch.files:
            source = found.old_path if found.old_path is not None else found.path
            replaces = found.change is ChangeKind.ADD and source in vacated
            before = None if replaces else base.get(source, self._base.get(source))
            state = self._state(found, before)
            states.append((found, state))
            target = None if replaces else read(source)
            path, moved = source, ""
            if target is None and before is not None and found.change is not ChangeKind.ADD:
                where = self._moved(source, before, found)
                if where is not None:
                    path, moved = where.path, where.reason
                    target = read(path)
            occupant = None
            if found.change in (ChangeKind.RENAME, ChangeKind.COPY) and found.path not in vacated:
                occupant = self._onto.get(found.path)
            ported = FilePorter(
                found, state, target, path, occupant=occupant, policy=self._policy, moved=moved,
                landed=landed, relocator=relocator, read=read,
            ).port()  # fmt: skip
            ports.append(ported)
            changes |= ported.changes
        attempt = _Attempt(states, ports, changes)
        if attempt.outcome.done:
            obstacle = self._onto.obstacle(changes)
            if obstacle is not None:
                attempt.ports.append(_in_the_way(patch, obstacle))
        return attempt

    def _make_relocator(
        self, changed: Callable[[], dict[bytes, tuple[Entry | None, Entry | None]]]
    ) -> Relocator:
        def listed() -> dict[bytes, tuple[str | None, str | None]]:
            return {
                path: tuple(  # type: ignore[misc]
                    None if entry is None or entry.mode == MODE_SUBMODULE else entry.id
                    for entry in entries
                )
                for path, entries in changed().items()
            }

        def content(side: Side) -> Callable[[bytes], bytes | None]:
            def read(path: bytes) -> bytes | None:
                file = side.get(path)
                return None if file is None else file.content

            return read

        return Relocator(listed, content(self._base), content(self._onto), self._blobs.fetch)

    def _moved(self, path: bytes, before: File, found: FilePatch) -> FileMove | None:
        """Where the target has a file that is not at its path."""
        if self._relocator is None or (
            found.change is ChangeKind.RENAME and self._onto.get(found.path) is not None
        ):
            return None
        return self._relocator.file(path, self._base.blob_of(path), before.content)

    def _state(self, found: FilePatch, before: File | None) -> BaseState:
        """The patch in its base chain, or on the very blob that it names."""
        state = base_state(found, before)
        fits = not state.problem and (state.located is None or not state.located.missing)
        if fits or found.old_id is None:
            return state
        recorded = self._blobs.find(found.old_id)
        if recorded is None:
            return state
        mode = found.old_mode or (before.mode if before is not None else 0o100644)
        named = base_state(found, File(mode, recorded))
        fits = not named.problem and (named.located is None or not named.located.missing)
        return named if fits else state

    def _advance_base(self, attempt: _Attempt) -> None:
        """The base chain goes on as the series was written, whatever became of the patch."""
        for found, state in attempt.states:
            if state.problem:
                continue
            if not attempt.outcome.done:
                for path in (found.old_path, found.new_path):
                    if path is not None and path not in self._without:
                        self._without[path] = self._base.get(path)
            self._advance_file(found, state)

    def _advance_file(self, found: FilePatch, state: BaseState) -> None:
        if found.change in (ChangeKind.DELETE, ChangeKind.RENAME):
            assert found.old_path is not None
            self._base.put({found.old_path: None})
        if found.new_path is not None and state.after is not None:
            self._base.put({found.new_path: state.after})

    def _follow_without(self, patch: Patch, path: bytes) -> None:
        """Take a ported patch into the chain without conflicts, if it fits there."""
        for found in patch.files:
            if path not in (found.old_path, found.new_path):
                continue
            source = found.old_path if found.old_path is not None else found.path
            before = self._without.get(source, self._base.get(source))
            state = base_state(found, before)
            if not state.problem and not (state.located and state.located.missing):
                self._without[path] = state.after if path == found.new_path else None


def _in_the_way(patch: Patch, obstacle: bytes) -> FilePort:
    from dsv4port.patch.quote import display_path

    report = HunkReport(
        patch.files[0].path, 0, Outcome.CONFLICT, None,
        f"`{display_path(obstacle)}` is in the way of a new file",
    )  # fmt: skip
    return FilePort((report,), {})


def port_series(engine: PortEngine, items: Sequence[PortItem], *, stop: bool = False) -> PortReport:
    """Port a series in order.

    Parameters:
        stop: end at the first patch in conflict instead of trying the rest.
    """
    engine.expect(items)
    for item in items:
        if not engine.port(item).outcome.done and stop:
            break
    return engine.report()
