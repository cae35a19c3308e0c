"""Carry patchsets to another pin: the engine, resolutions, checks and drift put together.

Everything happens in a workshop and in memory. What comes out says what the new series would be;
writing it down is another module's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from dsv4port.apply.engine import Engine, SeriesConflictError, SeriesItem
from dsv4port.drift.findings import Finding
from dsv4port.errors import InternalError
from dsv4port.git.checkout import Checkout, add_pack
from dsv4port.git.objects import MODE_SUBMODULE, MODE_TREE, ObjectKind
from dsv4port.git.pack import PackWriter, Rehearsal
from dsv4port.git.reader import ObjectReader
from dsv4port.git.tree import TreeEditor
from dsv4port.manifest.patchset import Upstreamed
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.resolution import Decided
from dsv4port.manifest.stack import probe_preconditions
from dsv4port.manifest.values import Name, PullRequest
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import ChangeKind, Patch
from dsv4port.port.engine import PatchPort, PortEngine, PortItem
from dsv4port.port.outcomes import Outcome, Policy
from dsv4port.port.patch_files import commit_bytes, patch_bytes
from dsv4port.port.resolutions import StaleResolution, apply_strictly, choose, result_of
from dsv4port.port.series_input import Member, PortInput, SeriesPatch, read_member
from dsv4port.port.series_results import (
    ConflictFile,
    Fate,
    PatchsetPort,
    PortedPatch,
    SeriesPort,
)
from dsv4port.port.upstream_checks import check_upstreamed
from dsv4port.port.workshop import Workshop
from dsv4port.upstream.pins import ImportedPin
from dsv4port.upstream.progress import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class PortOptions:
    """How to port.

    Parameters:
        policy: what is accepted of which rung.
        stop: end at the first conflict.
        range_diff: compare the old and the new series.
        without_resolutions: patches (``<patchset>/<file>``) whose kept resolutions are not used.
        keep_in: a checkout that gets all new objects, commits of both series included.
    """

    policy: Policy = field(default_factory=Policy)
    stop: bool = False
    range_diff: bool = True
    without_resolutions: frozenset[str] = frozenset()
    keep_in: Checkout | None = None


def port_to_pin(
    project: Project,
    pins: Pins,
    source: PortInput,
    old: ImportedPin,
    new: ImportedPin,
    *,
    options: PortOptions | None = None,
    drift: Mapping[str, tuple[Finding, ...]] | None = None,
    merged: Mapping[PullRequest, str] | None = None,
    progress: Progress = NO_PROGRESS,
) -> SeriesPort:
    """Port patchsets, in order, each on the result of those before it.

    A patchset that only comes along is taken from its own series for the new pin where it has one.

    Parameters:
        old, new: the two pins, in one store.
        drift: findings by patch key.
        merged: pull requests in the history of the new pin, with their commits.

    Raises:
        SeriesConflictError: the series does not apply to its own pin.
        HashMismatchError: a kept resolution that fits was edited.
    """
    with Workshop([old.store]) as shop:
        run = _Port(project, pins, source, old, new, options or PortOptions(), shop)
        return run.run(drift or {}, merged or {}, progress)


class _Port:
    def __init__(
        self,
        project: Project,
        pins: Pins,
        source: PortInput,
        old: ImportedPin,
        new: ImportedPin,
        options: PortOptions,
        shop: Workshop,
    ) -> None:
        self._project = project
        self._pins = pins
        self._source = source
        self._old, self._new = old, new
        self._options = options
        self._shop = shop
        self._reader = shop.reader()
        self._pack: PackWriter = shop.pack()
        self._stopped = False

    def run(
        self,
        drift: Mapping[str, tuple[Finding, ...]],
        merged: Mapping[PullRequest, str],
        progress: Progress,
    ) -> SeriesPort:
        patches = [patch for member in self._source.members for patch in member.patches]
        old_commits = self._apply_old(patches)
        engine = PortEngine(
            self._reader, self._pack, self._old.tree, self._new.tree, policy=self._options.policy,
            changed=lambda: self._shop.repository.changed_entries(self._old.tree, self._new.tree),
        )  # fmt: skip
        engine.expect(PortItem(patch.key, patch.patch) for patch in patches)
        progress.start(f"porting to {self._new.name}", len(patches), "patches")
        try:
            rows: list[tuple[Member, list[PortedPatch]]] = []
            tree, head = self._new.tree, self._new.commit
            for member in self._source.members:
                done: list[PortedPatch] = []
                if not member.asked and self._new.name in member.patchset.series:
                    tree, head, done = self._take_along(engine, member, tree, head, old_commits)
                else:
                    for patch in member.patches:
                        one, tree = self._port(engine, member, patch, tree, old_commits[patch.key])
                        if one.fate.in_series:
                            head = self._commit(patch, tree, head)
                            one = replace(one, commit=head)
                        done.append(replace(one, drift=self._of_patch(drift, one)))
                        progress.advance(1)
                rows.append((member, done))
        finally:
            progress.finish()
        made = self._pack.finish()
        if made is not None and self._options.keep_in is not None:
            add_pack(self._options.keep_in, made.pack, made.index, shallow=None)
        members = tuple(self._finish(member, done, merged) for member, done in rows)
        self._prove(members, tree)
        return SeriesPort(
            self._source.name, self._source.stack, self._old, self._new, members, tree, head
        )

    # Both chains.

    def _apply_old(self, patches: list[SeriesPatch]) -> dict[str, str]:
        """The commits of the old series, by patch key."""
        strict = Engine(self._reader, self._pack, self._old.commit)
        items = [patch.item for patch in patches]
        strict.expect(items)
        commits: dict[str, str] = {}
        for item in items:
            report = strict.apply(item)
            if report.commit is None:
                raise SeriesConflictError(strict.report())
            commits[item.key] = report.commit
        return commits

    def _commit(self, patch: SeriesPatch, tree: str, parent: str) -> str:
        return self._pack.add(
            ObjectKind.COMMIT, commit_bytes(patch.patch, patch.file, tree, parent)
        )

    def _take_along(
        self, engine: PortEngine, member: Member, tree: str, head: str, old: dict[str, str]
    ) -> tuple[str, str, list[PortedPatch]]:
        """A required patchset that has a series for the new pin: that one counts."""
        there = read_member(self._project, member.patchset, self._new.name, asked=False)
        for patch in member.patches:
            tree = engine.settle(PortItem(patch.key, patch.patch), {})
        done = []
        nothing = PortItem("", Patch(b"", (), b"", None, None))
        for patch in there.patches:
            changes = apply_strictly(patch.patch.files, lambda path: engine.before(path)[1])
            before = tree
            tree = engine.settle(nothing, changes)
            head = self._commit(patch, tree, head)
            done.append(
                PortedPatch(
                    patch,
                    Fate.PORTED,
                    None,
                    patch.data,
                    head,
                    old.get(patch.key, head),
                    onto=before,
                )
            )
        return tree, head, done

    # One patch.

    def _port(
        self, engine: PortEngine, member: Member, patch: SeriesPatch, tree: str, old_commit: str
    ) -> tuple[PortedPatch, str]:
        item = PortItem(patch.key, patch.patch)
        empty = PortedPatch(patch, Fate.NOT_TRIED, None, None, None, old_commit, onto=tree)
        if self._stopped:
            return empty, tree
        stale: tuple[StaleResolution, ...] = ()
        if patch.key not in self._options.without_resolutions:
            chosen, other = choose(member.resolutions, patch.patch.files, engine.before)
            stale = tuple(other)
            if chosen is not None:
                after = engine.settle(item, result_of(chosen, engine.before))
                in_series = chosen.decided is Decided.RESOLVED and after != tree
                fate = Fate.RESOLVED if in_series else Fate.LEFT_OUT
                return replace(empty, fate=fate, resolution=chosen), after
        files = list(_conflict_files(engine, patch))
        report = engine.port(item)
        if not report.outcome.done:
            self._stopped = self._options.stop
            conflict = tuple(_completed(engine, files, report))
            found = replace(empty, fate=Fate.CONFLICT, port=report, stale=stale, conflict=conflict)
            return found, tree
        # A patch can also end in nothing where its parts were found upstream one by one.
        nothing = report.outcome is Outcome.UPSTREAMED or report.tree == tree
        fate = Fate.UPSTREAMED if nothing else Fate.PORTED
        return replace(empty, fate=fate, port=report, stale=stale), report.tree

    def _of_patch(
        self, drift: Mapping[str, tuple[Finding, ...]], one: PortedPatch
    ) -> tuple[Finding, ...]:
        # What is not in the new series cannot break there.
        if one.fate in (Fate.UPSTREAMED, Fate.LEFT_OUT):
            return ()
        return drift.get(one.source.key, ())

    def _prove(self, members: tuple[PatchsetPort, ...], tree: str) -> None:
        """The patch files as they will be written, applied strictly, must give the very tree."""
        items = [
            SeriesItem(one.source.key, parse_patch(one.data, one.source.key))
            for member in members
            for one in member.patches
            if one.fate.in_series and one.data is not None
        ]
        with ObjectReader(self._shop.git) as reader:
            strict = Engine(reader, Rehearsal(), self._new.commit)
            strict.expect(items)
            for item in items:
                if strict.apply(item).commit is None:
                    raise InternalError(
                        f"{item.key} was ported and does not apply to {self._new.name}",
                        fix="nothing was written; report this with the patch and the two pins",
                    )
            found = strict.report().tree
        if found != tree:
            raise InternalError(
                f"the ported series gives the tree {found}, the port says {tree}",
                fix="nothing was written; report this with the series and the two pins",
            )

    # One patchset.

    def _finish(
        self, member: Member, done: list[PortedPatch], merged: Mapping[PullRequest, str]
    ) -> PatchsetPort:
        with ObjectReader(self._shop.git) as reader:
            read = partial(_read_file, reader, _editor(reader, self._new.tree))
            failures = tuple(probe_preconditions(member.patchset, self._new.name, read))
            checks = check_upstreamed(member.patchset, self._new.name, self._pins, read, merged)
        patches = tuple(map(self._with_data, done))
        return PatchsetPort(
            member, patches, failures, checks,
            tuple(self._upstreamed(member, patches)), self._range_diff(member, patches),
        )  # fmt: skip

    def _with_data(self, one: PortedPatch) -> PortedPatch:
        if one.commit is None or one.data is not None:
            return one
        diff = self._shop.diff(one.onto, one.commit)
        return replace(one, data=patch_bytes(one.source.data, one.source.patch, diff))

    def _upstreamed(self, member: Member, patches: tuple[PortedPatch, ...]) -> Iterator[Upstreamed]:
        """What the manifest should say of dropped patches, unless it does."""
        dropped = [one for one in patches if one.fate is Fate.UPSTREAMED]
        if not dropped or not member.asked:
            return
        position = self._pins.position(self._new.name)
        known = [
            row for row in member.patchset.upstreamed if self._pins.position(row.pin) <= position
        ]
        if any(not row.patches for row in known):
            return
        told = {file for row in known for file in row.patches}
        pin = Name(self._new.name)
        whole = len(dropped) == len(patches)
        proof = [
            (f"{one.source.file}: " if whole else "") + sentence
            for one in dropped
            if whole or one.source.file not in told
            for sentence in one.upstream_proof
        ]
        files = tuple(one.source.file for one in dropped if one.source.file not in told)
        if whole:
            yield Upstreamed(pin, proof=tuple(proof))
        elif files:
            yield Upstreamed(pin, patches=files, proof=tuple(proof))

    def _range_diff(self, member: Member, patches: tuple[PortedPatch, ...]) -> str:
        if not self._options.range_diff or not patches or not member.asked:
            return ""
        new = [one.commit for one in patches if one.commit is not None]
        old = [one.old_commit for one in patches]
        if not new:
            return ""
        done = self._shop.git.run(
            "range-diff", "--no-color", "--no-notes", "--creation-factor=90",
            f"{old[0]}^..{old[-1]}", f"{new[0]}^..{new[-1]}",
        )  # fmt: skip
        return done.stdout.decode("utf-8", "replace")


def _conflict_files(engine: PortEngine, patch: SeriesPatch) -> Iterator[ConflictFile]:
    """The three sides of every file, as far as they are known before the patch is tried."""
    for found in patch.patch.files:
        source = found.old_path if found.old_path is not None else found.path
        base, ours = engine.before(source)
        if found.change is ChangeKind.ADD:
            base = None
        yield ConflictFile(found, source, base, None, ours)


def _completed(
    engine: PortEngine, files: list[ConflictFile], report: PatchPort
) -> Iterator[ConflictFile]:
    moved = {hunk.path: hunk.new_path for hunk in report.hunks if hunk.new_path is not None}
    for one in files:
        theirs = None
        if one.patch.new_path is not None:
            theirs = engine.before(one.patch.new_path)[0]
        path = one.path if one.patch.new_path is None else one.patch.new_path
        ours = one.ours
        where = moved.get(one.patch.path)
        if where is not None and ours is None:
            path, ours = where, engine.before(where)[1]
        yield replace(one, path=path, ours=ours, theirs=theirs)


def _editor(reader: ObjectReader, tree: str) -> TreeEditor:
    return TreeEditor(tree, lambda identifier: reader.read(identifier)[1])


def _read_file(reader: ObjectReader, editor: TreeEditor, path: bytes) -> bytes | None:
    entry = editor.get(path)
    if entry is None or entry.mode in (MODE_TREE, MODE_SUBMODULE):
        return None
    return reader.read(entry.id)[1]
