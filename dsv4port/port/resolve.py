"""Decide one patch by hand, and go on: open, continue, skip, abort, status.

The decision becomes a kept resolution, and the port is made again with it; so the patch gets into
its place and the later ones are applied anew by the very code that every port runs. An
interruption at any moment leaves either an open work tree or a finished resolution: the next
command goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dsv4port.apply.exclusive import exclusive
from dsv4port.apply.file_patch import Entry as File
from dsv4port.apply.steps import reached
from dsv4port.errors import ConflictError, RefusedError, UsageError
from dsv4port.git.process import Git
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.pins import load_pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.resolution import (
    Decided,
    Resolution,
    ResolvedPath,
    resolution_files,
    resolutions_folder,
)
from dsv4port.manifest.values import Name
from dsv4port.patch.model import Patch
from dsv4port.patch.patch_id import patch_id
from dsv4port.port.outcomes import Decision, Policy, Rung
from dsv4port.port.port_onto import PinPort, PortRequest, finish_interrupted, port_onto
from dsv4port.port.resolutions import patch_paths
from dsv4port.port.resolve_open import ResolveStep, open_patch
from dsv4port.port.resolve_state import ResolveRoom, ResolveState
from dsv4port.port.resolve_tree import ResolveTree
from dsv4port.port.series_input import find_input, read_member
from dsv4port.port.series_port import PortOptions, port_to_pin
from dsv4port.port.series_results import Fate, SeriesPort
from dsv4port.port.write_series import new_series_files
from dsv4port.upstream.cache import Cache
from dsv4port.upstream.progress import NO_PROGRESS, Progress


@dataclass(frozen=True, slots=True)
class Open:
    """A resolution under way; ``unresolved`` says what still keeps it from going on."""

    state: ResolveState
    worktree: Path
    unresolved: tuple[str, ...]
    continued: bool = False


class Resolver:
    """Resolutions of a project; at most one is open at a time."""

    def __init__(self, project: Project, cache: Cache, progress: Progress = NO_PROGRESS) -> None:
        self._project = project
        self._cache = cache
        self._progress = progress
        self._room = ResolveRoom(project)

    def open(
        self,
        name: str,
        patch: str,
        new_pin: str,
        *,
        old_pin: str | None = None,
        policy: Policy | None = None,
        again: bool = False,
    ) -> Open:
        """Open a patch, or go on with it where it is open already.

        Raises:
            RefusedError: another one is open.
            UsageError: no such patch, or it is not in conflict.
        """
        with self._writing():
            state = self._room.load()
            if state is not None:
                if patch not in (state.file, state.key) or new_pin != state.new_pin:
                    raise RefusedError(
                        f"{state.key} on {state.new_pin} is being resolved",
                        fix="finish it with `dsv4port resolve --continue`, --skip or --abort",
                    )
                return Open(state, self._room.worktree, self._unresolved(state), True)
            state = open_patch(
                self._project, name, patch, old_pin, new_pin, self._cache,
                options=PortOptions(policy or Policy()), again=again, progress=self._progress,
            )  # fmt: skip
            return Open(state, self._room.worktree, self._unresolved(state))

    def status(self) -> Open | None:
        """What is open; None when nothing is. Finishes what was interrupted."""
        with self._writing():
            state = self._room.load()
            if state is None:
                return None
            return Open(state, self._room.worktree, self._unresolved(state), True)

    def proceed(
        self, author: str | None, *, why: str | None = None, overwrite: bool = False
    ) -> PinPort:
        """Take what the work tree holds as the decision, and port again with it.

        Raises:
            ConflictError: something is not resolved yet, or no longer parses.
            RefusedError: the series was changed by hand since it was ported.
        """
        with self._writing():
            state = self._opened()
            problems = self._unresolved(state)
            if problems:
                raise ConflictError(
                    f"{state.key} is not resolved yet",
                    fix=f"edit the files in {self._room.worktree}, then run it again",
                    details=problems,
                )
            tree = self._tree(state)
            changes = tree.changes()
            broken = list(tree.broken(changes))
            if broken:
                raise ConflictError(
                    f"{state.key} does not parse as it stands",
                    fix=f"correct it in {self._room.worktree}, then run it again",
                    details=broken,
                )
            if not changes:
                raise ConflictError(
                    f"{state.key} would change nothing",
                    fix="make the change, or leave the patch out with --skip --why TEXT",
                )
            return self._decide(state, author, Decided.RESOLVED, changes, why, overwrite)

    def skip(self, author: str | None, why: str, *, overwrite: bool = False) -> PinPort:
        """Leave the patch out on this content, for a reason that is kept."""
        with self._writing():
            state = self._opened()
            self._save_edits(state)
            return self._decide(state, author, Decided.LEFT_OUT, {}, why, overwrite)

    def abort(self) -> Path | None:
        """Close without a decision; returns the file that keeps the edits, if there were any."""
        with self._writing():
            state = self._opened()
            saved = self._save_edits(state)
            self._room.close()
            return saved

    # What is open.

    @contextmanager
    def _writing(self) -> Iterator[None]:
        file = self._project.state_folder / "lock"
        with exclusive(file, f"the project {self._project.root}"):
            finish_interrupted(self._project, self._progress)
            yield

    def _opened(self) -> ResolveState:
        state = self._room.load()
        if state is None:
            raise UsageError(
                "nothing is being resolved",
                fix="open a patch with `dsv4port resolve NAME PATCH --onto PIN`",
            )
        if not self._room.worktree.is_dir():
            raise RefusedError(
                f"{self._room.worktree} is gone", fix="close it with `dsv4port resolve --abort`"
            )
        return state

    def _tree(self, state: ResolveState) -> ResolveTree:
        return ResolveTree(self._room.checkout, state, self._room.path("result-index"))

    def _unresolved(self, state: ResolveState) -> tuple[str, ...]:
        return tuple(self._tree(state).unresolved())

    # The decision.

    def _decide(
        self,
        state: ResolveState,
        author: str | None,
        decided: Decided,
        changes: Mapping[bytes, File | None],
        why: str | None,
        overwrite: bool,
    ) -> PinPort:
        patch = self._patch(state)
        diff, results = self._tree(state).diff(changes)
        paths = sorted(patch_paths(patch.files) | changes.keys())
        resolution = Resolution(
            Name(state.patchset), state.file, patch_id(patch.files), Name(state.old_pin),
            Name(state.new_pin), author or _author(),
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), decided,
            tuple(self._path(state, path, results) for path in paths), diff, why,
        )  # fmt: skip
        folder = resolutions_folder(self._project, state.patchset)
        folder.mkdir(exist_ok=True)
        for name, content in resolution_files(resolution):
            write_atomically(folder / name, content)
        reached(ResolveStep.RESOLUTION_WRITTEN)
        done = self._port(state, overwrite)
        reached(ResolveStep.SERIES_WRITTEN)
        _require_used(done.report, state, resolution)
        self._room.close()
        return done

    def _patch(self, state: ResolveState) -> Patch:
        patchset = load_patchset(self._project, state.patchset)
        member = read_member(self._project, patchset, state.old_pin)
        for one in member.patches:
            if one.file == state.file:
                return one.patch
        raise RefusedError(
            f"{state.key} is no longer in the series for {state.old_pin}",
            fix="close it with `dsv4port resolve --abort`",
        )

    def _path(
        self, state: ResolveState, path: bytes, results: Mapping[bytes, str | None]
    ) -> ResolvedPath:
        tree = self._tree(state)
        ours = tree.entry(state.ours, path)
        base = tree.entry(f"{state.old_commit}^", path)
        return ResolvedPath(path, base, ours, results.get(path, ours))

    def _port(self, state: ResolveState, overwrite: bool) -> PinPort:
        policy = Policy({Rung(rung): Decision(one) for rung, one in state.policy.items()})
        options = PortOptions(policy)
        request = PortRequest(state.name, state.old_pin, options, drift=False, overwrite=overwrite)

        def allowed(report: SeriesPort) -> dict[str, dict[str, bytes]]:
            """The series as a port without the new resolution makes it."""
            pins = load_pins(self._project)
            source = find_input(self._project, state.name, state.old_pin, state.new_pin, pins)
            before = port_to_pin(
                self._project, pins, source, report.old, report.new,
                options=replace(
                    options, range_diff=False, without_resolutions=frozenset({state.key})
                ),
            )  # fmt: skip
            return {one.name: new_series_files(one) for one in before.asked}

        return port_onto(
            self._project, request, state.new_pin, self._cache, allowed=allowed, locked=True,
            progress=self._progress,
        )  # fmt: skip

    def _save_edits(self, state: ResolveState) -> Path | None:
        """Keep what the work tree holds as a diff beside it."""
        if not self._room.worktree.is_dir():
            return None
        tree = self._tree(state)
        diff, _ = tree.diff(tree.changes())
        if not diff:
            return None
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        file = self._room.path(f"edits-{stamp}.diff")
        write_atomically(file, diff)
        return file


def _require_used(report: SeriesPort, state: ResolveState, resolution: Resolution) -> None:
    for member in report.members:
        for patch in member.patches:
            if patch.source.key == state.key and patch.fate in (Fate.RESOLVED, Fate.LEFT_OUT):
                return
    raise ConflictError(
        f"the resolution of {state.key} is not for what the port meets now: the series before it "
        "changed",
        fix="close it with `dsv4port resolve --abort`, and open the patch again",
        details=[f"kept as {resolution.key}"],
    )


def _author() -> str:
    """Who decides, by git's own configuration of this user."""
    name, mail = os.environ.get("GIT_AUTHOR_NAME"), os.environ.get("GIT_AUTHOR_EMAIL")
    for key in ("user.name", "user.email"):
        found = Git().run("config", "--get", key, accept=(0, 1), user_config=True).text
        if key == "user.name":
            name = name or found
        else:
            mail = mail or found
    if not name or not mail:
        raise UsageError(
            "nobody knows who decides",
            fix="say it with --author 'Name <mail>', or set git's user.name and user.email",
        )
    return f"{name} <{mail}>"
