"""Write a port into the project: new series, manifest rows, conflict artifacts; all or nothing."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from dsv4port.errors import InternalError, RefusedError
from dsv4port.manifest.edit import add_series, add_upstreamed
from dsv4port.manifest.listing import SERIES_FILE
from dsv4port.manifest.patchset import load_patchset, parse_patchset
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import Name
from dsv4port.port.artifacts import artifacts
from dsv4port.port.explain import Explanation
from dsv4port.port.journal import Move, PortJournal
from dsv4port.port.series_input import ARTIFACTS
from dsv4port.port.series_results import PatchsetPort, SeriesPort


class Written(Enum):
    """What was done with a patchset's series for the new pin."""

    WRITTEN = "written"
    """There was none; now there is."""
    REPLACED = "replaced"
    """There was another one; it was put aside."""
    UNCHANGED = "unchanged"
    """It is there already, byte for byte."""
    NOTHING = "nothing"
    """No patch is left to write."""


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """One patchset's series on the new pin, compared with what is there.

    ``differences`` are sentences about files, none where nothing was there or it is the same.
    ``manifest`` says whether the manifest changes; ``artifacts`` is their folder, if any.
    """

    patchset: str
    folder: Path
    written: Written
    differences: tuple[str, ...]
    manifest: bool
    artifacts: Path | None
    aside: str | None = None


def plan_writing(project: Project, pins: Pins, report: SeriesPort) -> tuple[SeriesChange, ...]:
    """What writing a port would change; nothing is written."""
    return tuple(_Writer(project, pins, report, one).change() for one in report.asked)


def write_port(
    project: Project,
    pins: Pins,
    report: SeriesPort,
    explanations: Mapping[str, Explanation],
    *,
    overwrite: bool = False,
    allowed: Mapping[str, Mapping[str, bytes]] | None = None,
) -> tuple[SeriesChange, ...]:
    """Write a port; a kill leaves the old state, or one that the next port or resolve finishes.

    The caller holds the project's lock.

    Parameters:
        explanations: of the conflicts, by patch key.
        overwrite: a series that is there already and differs is put aside.
        allowed: by patchset, a series that may be replaced anyway: it was made by a port.

    Raises:
        RefusedError: another series is there; the details say what differs.
    """
    writers = [_Writer(project, pins, report, one) for one in report.asked]
    changes = [one.change() for one in writers]
    if not overwrite:
        _refuse(project, report, writers, changes, allowed or {})
    journal = PortJournal(project)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    moves: list[Move] = []
    for writer in writers:
        moves += writer.moves(journal, stamp, len(moves), explanations)
    journal.run(moves)
    asides = {move.target: move.aside for move in moves}
    return tuple(_with_aside(project, one, asides) for one in changes)


def _with_aside(project: Project, one: SeriesChange, asides: Mapping[str, str]) -> SeriesChange:
    if one.written is not Written.REPLACED:
        return one
    return replace(one, aside=asides[one.folder.relative_to(project.root).as_posix()])


def _refuse(
    project: Project, report: SeriesPort, writers: Sequence[_Writer],
    changes: Sequence[SeriesChange], allowed: Mapping[str, Mapping[str, bytes]],
) -> None:  # fmt: skip
    details: list[str] = []
    for writer, change in zip(writers, changes, strict=True):
        if change.written is not Written.REPLACED:
            continue
        if allowed.get(change.patchset) == writer.there:
            continue
        details.append(f"{project.label(change.folder)}:")
        details += [f"  {text}" for text in change.differences]
    if details:
        raise RefusedError(
            f"there is another series for {report.new.name} already",
            fix="keep it, or add --replace: it is put aside first",
            details=details,
        )


class _Writer:
    """One patchset's part."""

    def __init__(self, project: Project, pins: Pins, report: SeriesPort, one: PatchsetPort) -> None:
        self._project = project
        self._pins = pins
        self._report = report
        self._one = one
        patchset = one.member.patchset
        pin = Name(report.new.name)
        self._pin = pin
        folder = patchset.series.get(pin, pin)
        shared = [other for other, name in patchset.series.items() if name == folder]
        if pin in patchset.series and shared != [pin]:
            # The folder serves other pins too; theirs stays.
            folder = pin
        self.folder = project.patchset_folder(patchset.name) / folder
        self.new = new_series_files(one)
        self.there = read_series_files(
            project.patchset_folder(patchset.name) / patchset.series.get(pin, pin)
        )

    def change(self) -> SeriesChange:
        """What would change."""
        differences = tuple(_differences(self.there, self.new))
        if not self.new:
            written = Written.NOTHING
        elif self.there == self.new:
            written = Written.UNCHANGED
        else:
            written = Written.REPLACED if self.there else Written.WRITTEN
        return SeriesChange(
            self._one.name, self.folder, written,
            differences if written is Written.REPLACED else (),
            self._manifest() is not None, self._artifacts_folder(),
        )  # fmt: skip

    def moves(
        self, journal: PortJournal, stamp: str, first: int, explanations: Mapping[str, Explanation]
    ) -> list[Move]:
        """Stage everything, and say what has to move. The manifest goes first: a folder that it
        does not name would make the whole patchset unreadable."""
        found: list[Move] = []

        def add(target: Path, content: bytes | Mapping[str, bytes] | None) -> None:
            staged = None if content is None else journal.stage(first + len(found))
            before = None
            if staged is not None and content is not None:
                if isinstance(content, bytes):
                    _write_file(staged, content)
                    if target.is_file():
                        before = hashlib.sha256(target.read_bytes()).hexdigest()
                else:
                    _write_folder(staged, content)
            relative = journal.relative(target)
            found.append(
                Move(
                    None if staged is None else journal.relative(staged),
                    relative,
                    journal.aside(stamp, relative),
                    before,
                )
            )

        manifest = self._manifest()
        if manifest is not None:
            add(self._project.patchset_file(self._one.name), manifest)
        if self.new and self.there != self.new:
            add(self.folder, self.new)
        folder = self._artifacts_folder(any_state=True)
        assert folder is not None
        made = artifacts(self._report, self._one, explanations)
        if made:
            add(folder, made)
        elif folder.exists():
            add(folder, None)
        return found

    def _artifacts_folder(self, *, any_state: bool = False) -> Path | None:
        pair = f"{self._report.old.name}-{self._report.new.name}"
        folder = self._project.root / ARTIFACTS / pair / self._one.name
        return folder if any_state or self._one.conflicts else None

    def _manifest(self) -> bytes | None:
        """The manifest's new text; None where it stays."""
        file = self._project.patchset_file(self._one.name)
        old = file.read_bytes()
        text = old.decode()
        if self.new:
            text = add_series(text, self._pin, self.folder.name, list(self._pins))
        for row in self._one.upstreamed:
            text = add_upstreamed(text, row)
        new = text.encode()
        if new == old:
            return None
        self._check(new)
        return new

    def _check(self, text: bytes) -> None:
        """The new manifest must say what the old one says, and what was added."""
        before = load_patchset(self._project, self._one.name, self._pins)
        after = parse_patchset(self._project, self._one.name, text, self._pins)
        series = dict(before.series)
        if self.new:
            series[self._pin] = Name(self.folder.name)
        expected = replace(
            before, series=series, upstreamed=(*before.upstreamed, *self._one.upstreamed)
        )
        if after != expected:
            raise InternalError(
                f"the manifest of {self._one.name} would not read back as what was meant",
                fix="add the series by hand, and report this with the patchset.yaml",
            )


def new_series_files(one: PatchsetPort) -> dict[str, bytes]:
    """The files of the new series folder, the series file included; empty for no patches."""
    files = one.series_files
    if not files:
        return {}
    series = one.member.series.with_entries(files)
    return {**files, SERIES_FILE: series.encode()}


def read_series_files(folder: Path) -> dict[str, bytes]:
    """What lies in a series folder; empty where there is none."""
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _differences(there: Mapping[str, bytes], new: Mapping[str, bytes]) -> list[str]:
    rows = []
    for name in sorted(there.keys() | new.keys()):
        if name not in new:
            rows.append(f"{name}: is there, the port does not have it")
        elif name not in there:
            rows.append(f"{name}: the port has it, it is not there")
        elif there[name] != new[name]:
            rows.append(f"{name}: differs")
    return rows


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_file(file, content)
