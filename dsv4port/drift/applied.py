"""A series as it stands on its pin: the files it leaves, and which patch wrote which line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dsv4port.apply.engine import Engine, SeriesConflictError, SeriesItem
from dsv4port.apply.file_patch import FileOutcome
from dsv4port.drift.findings import Concern
from dsv4port.git.pack import Rehearsal
from dsv4port.git.reader import ObjectReader
from dsv4port.patch.model import ChangeKind, Hunk


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a patch wrote: the patch's name, and the line in its file."""

    patch: str
    patch_line: int


@dataclass(slots=True)
class TouchedFile:
    """One file as the series leaves it.

    Parameters:
        content: None where the series deletes it.
        lines: for every line who wrote it, None for upstream.
        removals: lines (1-based) before which a patch removed something.
        first: the patch that touched it first, and the line of its file section.
        added: the series brought the file.
    """

    path: str
    content: bytes | None
    lines: list[Written | None]
    removals: dict[int, Written]
    first: Written
    added: bool

    def changed(self) -> dict[int, Concern]:
        """The lines that the series wrote, by number."""
        text = (self.content or b"").splitlines()
        return {
            number: Concern(
                one.patch, self.path, number, one.patch_line,
                text[number - 1].decode("utf-8", "replace").strip() if number <= len(text) else "",
            )
            for number, one in enumerate(self.lines, 1)
            if one is not None
        }  # fmt: skip

    def edited(self) -> dict[int, Concern]:
        """The lines that the series wrote, and those where it removed something."""
        found = self.changed()
        for number, one in self.removals.items():
            line = min(number, max(1, len(self.lines)))
            found.setdefault(line, Concern(one.patch, self.path, line, one.patch_line))
        return found


@dataclass(frozen=True, slots=True)
class AppliedSeries:
    """A series on its pin."""

    files: Mapping[str, TouchedFile] = field(default_factory=dict)

    @property
    def contents(self) -> dict[str, bytes | None]:
        """Content by path of every file that differs from the pin; None for a deleted one."""
        return {path: one.content for path, one in self.files.items()}

    def added_lines(self) -> Iterator[Concern]:
        """Every line that the series wrote."""
        for one in self.files.values():
            yield from one.changed().values()


def apply_to_pin(items: Sequence[SeriesItem], reader: ObjectReader, commit: str) -> AppliedSeries:
    """Apply a series in memory and follow its lines.

    Raises:
        SeriesConflictError: it does not apply: drift can only be told of a series on its own pin.
    """
    engine = Engine(reader, Rehearsal(), commit)
    engine.expect(items)
    files: dict[str, TouchedFile] = {}
    for item in items:
        report = engine.apply(item)
        if not report.outcome.applied:
            raise SeriesConflictError(engine.report())
        for outcome in report.files:
            _follow(files, item.key, outcome)
    for path, touched in engine.report().touched.items():
        one = files.get(_text(path))
        if one is not None:
            one.content = None if touched.after is None else engine.content(touched.after.id)
            if one.content is not None:
                one.lines += [None] * (len(one.content.splitlines()) - len(one.lines))
    return AppliedSeries(files)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _follow(files: dict[str, TouchedFile], key: str, outcome: FileOutcome) -> None:
    patch = outcome.file
    first = Written(key, patch.line_number)
    source = None if patch.old_path is None else _text(patch.old_path)
    if patch.change is ChangeKind.DELETE:
        assert source is not None
        files[source] = TouchedFile(source, None, [], {}, first, False)
        return
    assert patch.new_path is not None
    path = _text(patch.new_path)
    known = files.get(source) if source is not None else None
    if patch.change is ChangeKind.RENAME and source is not None:
        files[source] = TouchedFile(source, None, [], {}, first, False)
    lines = list(known.lines) if known is not None else []
    removals = dict(known.removals) if known is not None and source == path else {}
    added = source is None or source != path or (known is not None and known.added)
    one = TouchedFile(
        path, b"", lines, removals, known.first if known is not None else first, added
    )
    for shift, (hunk, result) in _with_shift(patch.hunks, outcome):
        assert result is not None
        _place(one, key, hunk, result + shift)
    files[path] = one


def _with_shift(
    hunks: Sequence[Hunk], outcome: FileOutcome
) -> Iterator[tuple[int, tuple[Hunk, int | None]]]:
    shift = 0
    for hunk, result in zip(hunks, outcome.hunks, strict=True):
        start = result.new_line
        if start is not None and hunk.old_count == 0 and hunk.old_start != 0:
            # A pure insertion names the line it comes after.
            start += 1
        yield shift, (hunk, start)
        shift += hunk.new_count - hunk.old_count


def _place(one: TouchedFile, key: str, hunk: Hunk, start: int) -> None:
    """Take over the lines of a hunk that begins at line `start` of the file so far."""
    at = max(start, 1) - 1
    if len(one.lines) < at:
        one.lines += [None] * (at - len(one.lines))
    number = hunk.line_number
    fresh: list[Written | None] = []
    taken = 0
    for kind, body in zip(hunk.kinds, hunk.body, strict=True):
        number += 1
        here = Written(key, number)
        number += body.count(b"\n") - 1 if body.count(b"\n") > 1 else 0
        if kind == ord("+"):
            fresh.append(here)
            continue
        old = one.lines[at + taken] if at + taken < len(one.lines) else None
        taken += 1
        if kind == ord(" "):
            fresh.append(old)
        else:
            one.removals[at + len(fresh) + 1] = here
    one.lines[at : at + taken] = fresh
