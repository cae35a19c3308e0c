"""The state of a resolution under way: one file, written in one go, and the folder beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dsv4port.errors import RefusedError
from dsv4port.git.checkout import Checkout
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.project import Project

STATE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ResolveState:
    """What was opened.

    Parameters:
        name: the patchset or stack that is ported.
        old_pin, new_pin: from where to where.
        patchset, file: the patch.
        ours: commit that the work tree stands on: the target with the series so far.
        old_commit: the patch's commit in the old series.
        unmerged: paths in conflict, and the sha256 of what was written there (None: nothing).
        policy: decisions by rung, as the port that was opened used them.
    """

    name: str
    old_pin: str
    new_pin: str
    patchset: str
    file: str
    ours: str
    old_commit: str
    unmerged: dict[str, str | None]
    policy: dict[str, str]

    @property
    def key(self) -> str:
        """``<patchset>/<file>``."""
        return f"{self.patchset}/{self.file}"


class ResolveRoom:
    """``.dsv4port/resolve`` of a project: the work tree and the state."""

    def __init__(self, project: Project) -> None:
        self.folder = project.state_folder / "resolve"
        self.worktree = self.folder / "worktree"
        self._file = self.folder / "state.json"

    @property
    def checkout(self) -> Checkout:
        """The work tree."""
        return Checkout(self.worktree)

    def load(self) -> ResolveState | None:
        """What is open; None when nothing is."""
        try:
            document = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return None
        if document.pop("format", None) != STATE_FORMAT:
            raise RefusedError(
                f"{self._file} was written by another version of dsv4port",
                fix="finish the resolution with that version, or remove the folder",
            )
        return ResolveState(**document)

    def save(self, state: ResolveState) -> None:
        """Note what is open; until then a work tree is a leftover."""
        document = {"format": STATE_FORMAT, **asdict(state)}
        write_atomically(self._file, (json.dumps(document, indent=1) + "\n").encode())

    def close(self) -> None:
        """Forget it: the state first, so that no state ever names a work tree that is gone."""
        import shutil

        self._file.unlink(missing_ok=True)
        if self.worktree.exists():
            shutil.rmtree(self.worktree)

    def path(self, name: str) -> Path:
        """A file beside the work tree."""
        return self.folder / name
