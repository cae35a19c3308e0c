"""``manifests/locks/<stack>.lock.yaml``: what a stack must come out as, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.manifest.document import MAX_BYTES, Node, load_document, parse_document
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.project import Project
from dsv4port.manifest.scalars import write_text
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_name,
    check_object_id,
    check_patch_file,
    check_sha256,
    check_tree_path,
    shown,
)
from dsv4port.patch.quote import display_path, unquote
from dsv4port.quick_dataclass import dataclass

LOCK_FORMAT = 1

_MODES = frozenset((0o100644, 0o100755, 0o120000, 0o160000))
_GITLINK = 0o160000
_MODE = re.compile(r"[0-7]{6}")
_TOOL = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_!-]{0,99}")


class SourceKind(Enum):
    """Which source of the pin the base tree came from (their trees differ)."""

    SDIST = "sdist"
    """The source distribution."""
    GIT = "git"
    """The tagged commit."""


@dataclass(frozen=True, slots=True)
class LockedPatch:
    """One patch as it was locked.

    ``sha256`` is of the patch file, ``patch_id`` what ``git patch-id --stable`` gives (None
    where git gives none), ``commit`` and ``tree`` are the state after it.
    """

    patchset: Name
    file: str
    sha256: str
    patch_id: str | None
    commit: str
    tree: str

    def __post_init__(self) -> None:
        check_name("patchset", self.patchset)
        check_patch_file("file", self.file)
        check_sha256("sha256", self.sha256)
        check_object_id("patch_id", self.patch_id)
        check_object_id("commit", self.commit)
        check_object_id("tree", self.tree)

    @property
    def key(self) -> str:
        """``<patchset>/<file>``, unique in a stack."""
        return f"{self.patchset}/{self.file}"


@dataclass(frozen=True, slots=True)
class LockedFile:
    """One path that the stack touches: what it was on the pin and what it comes out as.

    ``mode_before`` and ``before`` (blob id) are None where the pin lacks the path; ``mode``,
    ``after`` (blob id) and ``sha256`` (of the content; of the target for a symlink) are None
    where the result lacks it. ``patches`` are the keys of the patches that touch it, in order.
    """

    path: bytes
    mode_before: int | None
    before: str | None
    mode: int | None
    after: str | None
    sha256: str | None
    patches: tuple[str, ...]

    def __post_init__(self) -> None:
        check_tree_path("path", self.path)
        for field, mode, blob in (
            ("before", self.mode_before, self.before),
            ("after", self.mode, self.after),
        ):
            if (mode is None) != (blob is None):
                raise FieldError(field, "must have both a mode and a blob id, or neither")
            if mode is not None and mode not in _MODES:
                raise FieldError(field, f"has the mode {mode:o}, which git does not know")
            check_object_id(field, blob)
        if (self.sha256 is None) != (self.after is None or self.mode == _GITLINK):
            raise FieldError("sha256", "must be there exactly when the result has content here")
        check_sha256("sha256", self.sha256)
        if not self.patches:
            raise FieldError("patches", "must name the patches that touch the file")


@dataclass(frozen=True, slots=True)
class Lock:
    """What a stack must come out as.

    ``tool`` is the version of dsv4port that wrote it. ``base_tree`` and ``base_commit`` are the
    pin as imported, ``tree`` and ``commit`` the result. ``files`` is sorted by path.
    """

    tool: str
    stack: Name
    pin: Name
    source: SourceKind
    base_tree: str
    base_commit: str
    tree: str
    commit: str
    patches: tuple[LockedPatch, ...]
    files: tuple[LockedFile, ...]

    def __post_init__(self) -> None:
        if _TOOL.fullmatch(self.tool) is None:
            raise FieldError("tool", f"is {shown(self.tool)}, which is no version")
        check_name("stack", self.stack)
        check_name("pin", self.pin)
        for field in ("base_tree", "base_commit", "tree", "commit"):
            check_object_id(field, getattr(self, field))
        self._check_patches()
        self._check_files()

    def _check_patches(self) -> None:
        seen: set[str] = set()
        for row, patch in enumerate(self.patches):
            if patch.key in seen:
                raise FieldError("patches", f"names {patch.key} again", row=row)
            seen.add(patch.key)
        last = self.patches[-1] if self.patches else None
        tree, commit = (
            (self.base_tree, self.base_commit) if last is None else (last.tree, last.commit)
        )
        if (tree, commit) != (self.tree, self.commit):
            raise FieldError("result", "is not what the last patch gives")

    def _check_files(self) -> None:
        order = {patch.key: position for position, patch in enumerate(self.patches)}
        previous: bytes | None = None
        for row, file in enumerate(self.files):
            if previous is not None and file.path <= previous:
                problem = "is there twice" if file.path == previous else "is out of order"
                raise FieldError("files", f"{display_path(file.path)} {problem}", row=row)
            previous = file.path
            position = -1
            for key in file.patches:
                found = order.get(key)
                if found is None:
                    raise FieldError("files", f"names {shown(key)}, no patch of the lock", row=row)
                if found <= position:
                    raise FieldError("files", f"names {key} twice or out of order", row=row)
                position = found


def dump_lock(lock: Lock) -> str:
    """The canonical text of a lock: stable order, one row a line, so that diffs review well."""
    rows = [
        f"# Written by `dsv4port lock {lock.stack}`: what the stack must come out as.",
        "# File rows say: mode and blob on the pin (before) and in the result (after).",
        f"format: {LOCK_FORMAT}",
        f"tool: {write_text(lock.tool)}",
        f"stack: {write_text(lock.stack)}",
        f"pin: {write_text(lock.pin)}",
        f"source: {lock.source.value}",
        f"base: {_row(tree=lock.base_tree, commit=lock.base_commit)}",
        f"result: {_row(tree=lock.tree, commit=lock.commit)}",
    ]
    rows += _block("patches", map(_patch_row, lock.patches))
    rows += _block("files", map(_file_row, lock.files))
    return "\n".join(rows) + "\n"


def parse_lock(data: bytes, label: str) -> Lock:
    """Read a lock from bytes; ``label`` is the file name for messages. Raises ManifestError."""
    quick = _read_canonical(data)
    return quick if quick is not None else _read_lock(parse_document(data, label))


def _read_canonical(data: bytes) -> Lock | None:
    from dsv4port.manifest.lock_lines import read_canonical_lock

    try:
        return read_canonical_lock(data.decode())
    except UnicodeDecodeError:
        return None


def load_lock(project: Project, stack: str) -> Lock:
    """Read the lock of a stack.

    Raises:
        BadInputError: the stack has no lock.
        ManifestError: the file is malformed or of another format.
    """
    file = project.lock_file(stack)
    if not file.is_file():
        raise BadInputError(
            f"stack {stack} has no lock ({project.label(file)})",
            fix=f"run `dsv4port lock {stack}` and review what it writes",
        )
    quick = _read_canonical(file.read_bytes()) if file.stat().st_size <= MAX_BYTES else None
    if quick is not None and quick.stack == stack:
        return quick
    root = load_document(file, project.label(file))
    lock = _read_lock(root)
    if lock.stack != stack:
        raise root.child("stack").failed(f"is {lock.stack}, but the file is {file.name}")
    return lock


def write_lock(project: Project, lock: Lock) -> Path:
    """Write the lock of its stack, atomically, and return its path. Raises OSError."""
    file = project.lock_file(lock.stack)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, dump_lock(lock).encode())
    return file


def _row(**fields: str | None) -> str:
    cells = (
        f"{key}: {'null' if value is None else write_text(value)}" for key, value in fields.items()
    )
    return "{" + ", ".join(cells) + "}"


def _block(key: str, rows: Iterable[str]) -> list[str]:
    lines = [f"- {row}" for row in rows]
    return [f"{key}:", *lines] if lines else [f"{key}: []"]


def _patch_row(patch: LockedPatch) -> str:
    return _row(
        patchset=patch.patchset,
        file=patch.file,
        sha256=patch.sha256,
        patch_id=patch.patch_id,
        commit=patch.commit,
        tree=patch.tree,
    )


def _file_row(file: LockedFile) -> str:
    row = _row(
        path=display_path(file.path),
        before=_write_entry(file.mode_before, file.before),
        after=_write_entry(file.mode, file.after),
        sha256=file.sha256,
    )
    return f"{row[:-1]}, patches: [{', '.join(map(write_text, file.patches))}]}}"


def _write_entry(mode: int | None, blob: str | None) -> str | None:
    return None if mode is None else f"{mode:06o} {blob}"


def _read_lock(root: Node) -> Lock:
    # The format comes first: another one may have other keys.
    root.require_format(LOCK_FORMAT, update="write it again with `dsv4port lock STACK`")
    base, result = root.mapping("base"), root.mapping("result")
    patch_nodes = root.sequence("patches")
    patches = tuple(_read_patch(node) for node in patch_nodes)
    rows = [(_read_file(node), node) for node in root.sequence("files")]
    rows.sort(key=lambda row: row[0].path)
    try:
        lock = Lock(
            tool=root.text("tool"),
            stack=root.name("stack"),
            pin=root.name("pin"),
            source=root.choice("source", SourceKind),
            base_tree=_read_id(base, "tree"),
            base_commit=_read_id(base, "commit"),
            tree=_read_id(result, "tree"),
            commit=_read_id(result, "commit"),
            patches=patches,
            files=tuple(file for file, _ in rows),
        )
    except FieldError as error:
        if error.row is None:
            raise root.failed_value(error) from error
        node = patch_nodes[error.row] if error.field == "patches" else rows[error.row][1]
        raise node.failed(error.problem) from error
    for node in (base, result, root):
        node.finish()
    return lock


def _read_id(node: Node, key: str) -> str:
    with node.located():
        identifier = node.text(key)
        check_object_id(key, identifier)
    return identifier


def _read_patch(node: Node) -> LockedPatch:
    node.as_mapping()
    try:
        patch = LockedPatch(
            node.name("patchset"),
            node.text("file"),
            node.text("sha256"),
            node.optional_text("patch_id"),
            node.text("commit"),
            node.text("tree"),
        )
    except FieldError as error:
        raise node.failed_value(error) from error
    node.finish()
    return patch


def _read_file(node: Node) -> LockedFile:
    node.as_mapping()
    mode_before, before = _read_entry(node, "before")
    mode, after = _read_entry(node, "after")
    try:
        file = LockedFile(
            _read_path(node),
            mode_before,
            before,
            mode,
            after,
            node.optional_text("sha256"),
            node.texts("patches"),
        )
    except FieldError as error:
        raise node.failed_value(error) from error
    node.finish()
    return file


def _read_path(node: Node) -> bytes:
    try:
        return unquote(node.text("path").encode())
    except ValueError as error:
        raise node.child("path").failed(f"is not quoted the way git quotes: {error}") from error


def _read_entry(node: Node, key: str) -> tuple[int | None, str | None]:
    text = node.optional_text(key)
    if text is None:
        return None, None
    mode, _, blob = text.partition(" ")
    if _MODE.fullmatch(mode) is None:
        raise node.child(key).failed(f"must be a git mode and a blob id, is {shown(text)}")
    return int(mode, 8), blob
