"""A series onto a tree: one commit per patch, in the object store alone.

The engine reads what each patch touches, has every file patch placed and proven, and hands blobs,
trees and commits to a sink. It knows no checkout and moves no reference; it stops at the first
patch that is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from dsv4port.apply import messages
from dsv4port.apply.file_patch import Entry as File
from dsv4port.apply.file_patch import FileOutcome, apply_file_patch
from dsv4port.apply.hunk_result import HunkOutcome
from dsv4port.errors import ConflictError
from dsv4port.git.objects import (
    MODE_SUBMODULE,
    MODE_TREE,
    Entry,
    ObjectKind,
    blob_id,
    encode_commit,
    parse_commit,
)
from dsv4port.git.pack import ObjectSink
from dsv4port.git.reader import ObjectReader
from dsv4port.git.tree import TreeEditor
from dsv4port.patch.model import ChangeKind, FilePatch, Identity, Patch
from dsv4port.quick_dataclass import dataclass, field

_SLASH = ord("/")
TOOL_NAME = b"dsv4port"
TOOL_EMAIL = b"dsv4port@dsv4port.invalid"


class PatchOutcome(Enum):
    """What became of one patch; of several hunks the least certain one decides."""

    EXACT = "exact"
    """Every hunk at its stated line."""
    OFFSET = "offset"
    """Every hunk in its proven place, at least one at another line."""
    CONFLICT = "conflict"
    """Something does not match, or its place cannot be proven."""
    MISPLACED = "misplaced"
    """A hunk matches only in another scope than the one it was written for."""

    @property
    def applied(self) -> bool:
        """Whether the patch is in the result."""
        return self in (PatchOutcome.EXACT, PatchOutcome.OFFSET)


@dataclass(frozen=True, slots=True)
class SeriesItem:
    """A patch as the engine takes it.

    Parameters:
        key: the name it is reported under.
        patch: the parsed patch.
        trailers: lines appended to the commit message, as (key, value).
    """

    key: str
    patch: Patch
    trailers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PatchReport:
    """One patch's outcome; commit and tree are None where it was refused."""

    key: str
    outcome: PatchOutcome
    commit: str | None
    tree: str | None
    files: tuple[FileOutcome, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """A path that the series touches: its entry before and after, and the patches' keys."""

    before: Entry | None
    after: Entry | None
    patches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """What a series made of a base. ``commit`` and ``tree`` are after the last applied patch."""

    base_commit: str
    base_tree: str
    patches: tuple[PatchReport, ...]
    commit: str
    tree: str
    touched: Mapping[bytes, Touched] = field(default_factory=dict)

    @property
    def failure(self) -> PatchReport | None:
        """The patch that was refused, if one was (the last of ``patches``)."""
        last = self.patches[-1] if self.patches else None
        return last if last is not None and not last.outcome.applied else None


class SeriesConflictError(ConflictError):
    """A patch of a series was refused; ``report`` says what became of every patch tried."""

    def __init__(self, report: SeriesReport) -> None:
        failure = report.failure
        assert failure is not None
        details = [sentence for outcome in failure.files for sentence in _explain(outcome)]
        super().__init__(
            f"{failure.key} does not apply ({failure.outcome.value}); nothing was changed",
            fix="bring the patch up to this tree, or use the pin it was written for",
            details=details or ["the patch changes nothing"],
        )
        self.report = report


def _explain(outcome: FileOutcome) -> Iterator[str]:
    from dsv4port.patch.quote import display_path

    path = display_path(outcome.file.path)
    reasons = [hunk for hunk in outcome.hunks if not hunk.outcome.applied]
    for hunk in reasons:
        yield f"{path}:{hunk.old_line}: {hunk.outcome.value}: {hunk.reason}"
    if not reasons and outcome.refusal is not None:
        yield f"{path}: {outcome.refusal}"


class Engine:
    """Applies patches one after another on top of a commit.

    Parameters:
        reader: objects of the repository that holds the base.
        sink: takes the new objects.
        base_commit: what the series starts from.
    """

    def __init__(self, reader: ObjectReader, sink: ObjectSink, base_commit: str) -> None:
        self._reader = reader
        self._sink = sink
        self.base_commit = base_commit
        self._base = parse_commit(reader.read(base_commit)[1])
        self._expected_trees: dict[str, bytes] = {}
        self._tree = TreeEditor(self._base.tree, self._read_tree)
        self._head = base_commit
        self._head_tree = self._base.tree
        self._blobs = _Blobs(reader, sink)
        self._before: dict[bytes, Entry | None] = {}
        self._keys: dict[bytes, list[str]] = {}
        self._reports: list[PatchReport] = []

    def expect(self, items: Iterable[SeriesItem]) -> None:
        """Read what `items` will touch in one go; waiting for each patch's files costs more."""
        paths = dict.fromkeys(
            found.old_path
            for item in items
            for found in item.patch.files
            if found.old_path is not None and b"\n" not in found.old_path
        )
        folders = dict.fromkeys(
            path[:at] for path in paths for at, byte in enumerate(path) if byte == _SLASH
        )
        names = (f"{self._base.tree}:{os.fsdecode(folder)}" for folder in folders)
        for found in self._reader.find_many(names):
            if found is not None and found[1] is ObjectKind.TREE:
                self._expected_trees[found[0]] = found[2]
        self._blobs.prefetch_paths(self._base.tree, paths)

    def _read_tree(self, identifier: str) -> bytes:
        expected = self._expected_trees.pop(identifier, None)
        return self._reader.read(identifier)[1] if expected is None else expected

    def apply(self, item: SeriesItem) -> PatchReport:
        """Apply one patch; nothing of a refused patch stays."""
        outcomes, blocked = self._place(item.patch)
        if blocked or not all(outcome.applied for outcome in outcomes):
            report = PatchReport(item.key, _refused(outcomes), None, None, tuple(outcomes))
        else:
            self._edit_tree(item, outcomes)
            self._head_tree = self._tree.write(self._sink)
            self._head = self._sink.add(ObjectKind.COMMIT, self._commit(item))
            outcome = _applied(outcomes)
            # The new contents are in the sink; reports only say where they went.
            files = tuple(_without_content(found) for found in outcomes)
            report = PatchReport(item.key, outcome, self._head, self._head_tree, files)
        self._reports.append(report)
        return report

    def content(self, blob: str) -> bytes:
        """Content of a blob that the base or the series has."""
        return self._blobs.read(blob)

    def folders(self) -> dict[bytes, str]:
        """Ids of the trees that the result has at the folders the series looked into."""
        return self._tree.folders()

    def report(self) -> SeriesReport:
        """Everything applied so far."""
        touched = {
            path: Touched(self._before[path], self._file_entry(path), tuple(self._keys[path]))
            for path in sorted(self._before)
        }
        return SeriesReport(
            self.base_commit, self._base.tree, tuple(self._reports),
            self._head, self._head_tree, touched,
        )  # fmt: skip

    def _place(self, patch: Patch) -> tuple[list[FileOutcome], bool]:
        """Outcome per file, all against the tree as it was before this patch."""
        vacated = {
            found.old_path
            for found in patch.files
            if found.change in (ChangeKind.DELETE, ChangeKind.RENAME)
        }
        self._blobs.prefetch(
            entry.id
            for found in patch.files
            if (entry := self._tree.get(found.old_path or found.path)) is not None
            and entry.mode not in (MODE_SUBMODULE, MODE_TREE)
        )
        created: set[bytes | None] = {
            found.new_path for found in patch.files if found.new_path not in (None, found.old_path)
        }
        outcomes = [self._place_file(found, vacated, created) for found in patch.files]
        return outcomes, not patch.files

    def _place_file(
        self, found: FilePatch, vacated: set[bytes | None], created: set[bytes | None]
    ) -> FileOutcome:
        source = found.old_path if found.old_path is not None else found.path
        entry = self._tree.get(source)
        replaced = found.change is ChangeKind.ADD and source in vacated
        if entry is not None and (entry.mode == MODE_TREE or replaced):
            # No file is there: a folder, or what this very patch removes first (git writes a
            # change of type as a removal and an addition).
            entry = None
        target = self._file(entry)
        exact = entry is not None and found.old_id is not None and entry.id.startswith(found.old_id)
        base = None
        if not exact and found.old_id is not None and target is not None:
            base = self._blobs.find(found.old_id)
            if base is not None:
                self._follow_base(found, File(target.mode, base))
        occupant = None
        if found.change in (ChangeKind.RENAME, ChangeKind.COPY) and found.path not in vacated:
            occupant = self._file(self._tree.get(found.path))
        outcome = apply_file_patch(
            found, target, base=base, preimage_is_target=exact, occupant=occupant
        )
        if outcome.applied and found.new_path is not None and found.new_path != found.old_path:
            obstacle = self._obstacle(found.new_path, vacated, created)
            if obstacle is not None:
                return _blocked(outcome, obstacle)
        return outcome

    def _obstacle(
        self, path: bytes, vacated: set[bytes | None], created: set[bytes | None]
    ) -> bytes | None:
        """What is in the way of a new file once the patch has removed all that it removes."""
        parts = path.split(b"/")
        for depth in range(1, len(parts)):
            if (above := b"/".join(parts[:depth])) in created:
                return above
        obstacle = self._tree.blocker(path)
        if obstacle is None or obstacle in vacated:
            return None
        if obstacle == path:
            # A folder goes with the last of its files.
            files = list(self._tree.below(path))
            if files and vacated.issuperset(files):
                return None
        return obstacle

    def _follow_base(self, found: FilePatch, base: File) -> None:
        """Keep what the patch makes of its own base: a later patch may be written for that."""
        followed = apply_file_patch(found, base, base=None, preimage_is_target=True)
        if followed.entry is not None and found.new_id is not None:
            self._blobs.remember(followed.entry.content)

    def _file(self, entry: Entry | None) -> File | None:
        if entry is None or entry.mode == MODE_TREE:
            return None
        if entry.mode == MODE_SUBMODULE:
            return File(entry.mode, b"")
        return File(entry.mode, self._blobs.read(entry.id))

    def _edit_tree(self, item: SeriesItem, outcomes: list[FileOutcome]) -> None:
        for outcome in outcomes:
            found = outcome.file
            if found.change in (ChangeKind.DELETE, ChangeKind.RENAME):
                assert found.old_path is not None
                self._note(found.old_path, item.key)
                self._tree.remove(found.old_path)
        for outcome in outcomes:
            found = outcome.file
            if found.new_path is None or outcome.entry is None:
                continue
            self._note(found.new_path, item.key)
            identifier = self._blobs.add(outcome.entry.content)
            self._tree.put(found.new_path, Entry(outcome.entry.mode, identifier))

    def _file_entry(self, path: bytes) -> Entry | None:
        """The entry of a file; a folder at its path is none."""
        entry = self._tree.get(path)
        return None if entry is None or entry.mode == MODE_TREE else entry

    def _note(self, path: bytes, key: str) -> None:
        if path not in self._before:
            self._before[path] = self._file_entry(path)
            self._keys[path] = []
        if key not in self._keys[path]:
            self._keys[path].append(key)

    def _commit(self, item: SeriesItem) -> bytes:
        patch = item.patch
        author = patch.author or self._nobody()
        message = patch.message if patch.message is not None else item.key.encode() + b"\n"
        # Same time as the author's: ids must not depend on when the tool ran.
        committer = Identity(TOOL_NAME, TOOL_EMAIL, author.timestamp, author.zone)
        return encode_commit(
            tree=self._head_tree,
            parents=(self._head,),
            author=author.encode(),
            committer=committer.encode(),
            message=messages.with_trailers(message, item.trailers),
        )

    def _nobody(self) -> Identity:
        """Author of a plain diff: this tool, at the time of the base."""
        timestamp, zone = self._base.author.rsplit(b" ", 2)[1:]
        return Identity(TOOL_NAME, TOOL_EMAIL, int(timestamp), zone)


class _Blobs:
    """Contents by id: what this run made, then what the repository has."""

    _BUDGET = 32 << 20
    """Bytes of contents kept in memory; more are read again from where they lie."""

    def __init__(self, reader: ObjectReader, sink: ObjectSink) -> None:
        self._reader = reader
        self._sink = sink
        self._recent: dict[str, bytes] = {}
        self._size = 0
        self._bases: dict[str, bytes] = {}

    def add(self, content: bytes) -> str:
        identifier = self._sink.add(ObjectKind.BLOB, content)
        self._keep(identifier, content)
        return identifier

    def prefetch(self, identifiers: Iterable[str]) -> None:
        missing = [
            identifier
            for identifier in dict.fromkeys(identifiers)
            if identifier not in self._recent and self._from_sink(identifier) is None
        ]
        for identifier, (_, data) in zip(missing, self._reader.read_many(missing), strict=True):
            self._keep(identifier, data)

    def prefetch_paths(self, tree: str, paths: Iterable[bytes]) -> None:
        names = [f"{tree}:{os.fsdecode(path)}" for path in paths]
        for found in self._reader.find_many(names):
            if self._size >= self._BUDGET:
                # What is read later would push out what is needed first. Drain the answers.
                continue
            if found is not None and found[1] is ObjectKind.BLOB:
                self._keep(found[0], found[2])

    def read(self, identifier: str) -> bytes:
        known = self._recent.get(identifier)
        if known is None:
            known = self._from_sink(identifier)
        if known is None:
            known = self._reader.read(identifier)[1]
            self._keep(identifier, known)
        return known

    def find(self, abbreviated: str) -> bytes | None:
        """The blob with this (perhaps abbreviated) id, None when absent or ambiguous."""
        found = self._reader.find(abbreviated)
        if found is not None and found[1] is ObjectKind.BLOB:
            return found[2]
        made = [
            data
            for known in (self._bases, self._recent)
            for key, data in known.items()
            if key.startswith(abbreviated)
        ]
        return made[0] if len(set(made)) == 1 else None

    def remember(self, content: bytes) -> None:
        """Keep a content that no repository has, as a base for later patches."""
        self._bases[blob_id(content)] = content

    def _from_sink(self, identifier: str) -> bytes | None:
        data = self._sink.read(identifier)
        if data is not None:
            self._keep(identifier, data)
        return data

    def _keep(self, identifier: str, content: bytes) -> None:
        if identifier not in self._recent:
            self._size += len(content)
        self._recent[identifier] = content
        while self._size > self._BUDGET and len(self._recent) > 1:
            oldest = next(iter(self._recent))
            self._size -= len(self._recent.pop(oldest))


def _without_content(outcome: FileOutcome) -> FileOutcome:
    return FileOutcome(outcome.file, None, outcome.blob_id, outcome.hunks, None)


def _blocked(outcome: FileOutcome, obstacle: bytes) -> FileOutcome:
    from dsv4port.patch.quote import display_path

    reason = f"`{display_path(obstacle)}` is in the way of the new file"
    return FileOutcome(outcome.file, None, None, outcome.hunks, reason)


def _applied(outcomes: list[FileOutcome]) -> PatchOutcome:
    moved = any(
        hunk.outcome is HunkOutcome.OFFSET for outcome in outcomes for hunk in outcome.hunks
    )
    return PatchOutcome.OFFSET if moved else PatchOutcome.EXACT


def _refused(outcomes: list[FileOutcome]) -> PatchOutcome:
    misplaced = any(
        hunk.outcome is HunkOutcome.MISPLACED for outcome in outcomes for hunk in outcome.hunks
    )
    return PatchOutcome.MISPLACED if misplaced else PatchOutcome.CONFLICT


def apply_series(
    reader: ObjectReader, sink: ObjectSink, base_commit: str, items: Iterable[SeriesItem]
) -> SeriesReport:
    """Apply `items` in order on `base_commit`, stopping at the first that is refused."""
    engine = Engine(reader, sink, base_commit)
    for item in items:
        if not engine.apply(item).outcome.applied:
            break
    return engine.report()
