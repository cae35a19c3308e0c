"""All or nothing for several files and folders: staged beside, listed in a journal, then moved.

Until the journal is written nothing of the project has changed. From then on the moves will be
made, by this run or by the next command that asks; each can be made again without harm. What was
at a target is put aside, never removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from dsv4port.apply.steps import reached
from dsv4port.errors import RefusedError
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.project import Project

JOURNAL_FORMAT = 1


class PortStep(Enum):
    """A point in the writing of a port; what has been done when it is reached."""

    STAGED = "port-staged"
    """Everything new lies under the state folder; nothing refers to it."""
    JOURNAL_WRITTEN = "port-journal-written"
    """The journal says what is about to move; from here on it will be finished."""
    ONE_MOVED = "port-one-moved"
    """The first of the moves is made."""
    ALL_MOVED = "port-all-moved"
    """Everything is in its place; the journal is still there."""


@dataclass(frozen=True, slots=True)
class Move:
    """One staged file or folder and where it goes; all paths relative to the project.

    Parameters:
        staged: where it lies; None where the target only goes away.
        target: where it goes.
        aside: where what is at the target goes.
        before: sha256 of the file at the target; None for a folder or nothing.
    """

    staged: str | None
    target: str
    aside: str
    before: str | None = None


class PortJournal:
    """The staging area and the journal of a project."""

    def __init__(self, project: Project) -> None:
        self._root = project.root
        self.folder = project.state_folder / "port"
        self._file = self.folder / "journal.json"
        self._staging = self.folder / "staging"

    def recover(self) -> list[str]:
        """Finish what an earlier run began; returns the targets that were moved."""
        if not self._file.is_file():
            shutil.rmtree(self._staging, ignore_errors=True)
            return []
        document = json.loads(self._file.read_bytes())
        if document.get("format") != JOURNAL_FORMAT:
            raise RefusedError(
                f"{self._file} was begun by another version of dsv4port",
                fix="finish it with that version",
            )
        moves = [Move(**row) for row in document["moves"]]
        self._finish(moves)
        return [move.target for move in moves]

    def stage(self, number: int) -> Path:
        """A place for the staged file or folder of that number."""
        self._staging.mkdir(parents=True, exist_ok=True)
        return self._staging / str(number)

    def aside(self, stamp: str, target: str) -> str:
        """Where what is at a target goes, as a relative path that is free."""
        number = 0
        while True:
            suffix = f"-{number}" if number else ""
            path = self.folder / "replaced" / f"{stamp}{suffix}" / target
            if not os.path.lexists(path):
                return self.relative(path)
            number += 1

    def relative(self, path: Path) -> str:
        """A path as the journal writes it."""
        return path.relative_to(self._root).as_posix()

    def run(self, moves: Sequence[Move]) -> None:
        """Make the moves; everything staged is on disk."""
        if not moves:
            return
        reached(PortStep.STAGED)
        text = json.dumps({"format": JOURNAL_FORMAT, "moves": [asdict(one) for one in moves]})
        write_atomically(self._file, text.encode() + b"\n")
        reached(PortStep.JOURNAL_WRITTEN)
        self._finish(moves)

    def _finish(self, moves: Sequence[Move]) -> None:
        for number, move in enumerate(moves):
            self._make(move)
            if number == 0:
                reached(PortStep.ONE_MOVED)
        reached(PortStep.ALL_MOVED)
        self._file.unlink()
        shutil.rmtree(self._staging, ignore_errors=True)

    def _make(self, move: Move) -> None:
        target, aside = self._root / move.target, self._root / move.aside
        if move.staged is None:
            if os.path.lexists(target) and not os.path.lexists(aside):
                aside.parent.mkdir(parents=True, exist_ok=True)
                target.rename(aside)
            self._remove_empty(target.parent)
            return
        staged = self._root / move.staged
        if not os.path.lexists(staged):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() and staged.is_file():
            # Only what nobody changed meanwhile is overwritten without a copy.
            if hashlib.sha256(target.read_bytes()).hexdigest() != move.before:
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(target, aside)
        elif os.path.lexists(target):
            if os.path.lexists(aside):
                raise RefusedError(
                    f"{target} came back while a port was being finished",
                    fix=f"move it away; what was there before is {aside}",
                )
            aside.parent.mkdir(parents=True, exist_ok=True)
            target.rename(aside)
        staged.replace(target)

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder of which nothing is left, and those above it in the project."""
        while folder != self._root and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
