"""``patchsets/<name>/resolutions/<key>.yaml``: what a person decided about one patch on one pin.

A resolution says what a patch becomes, and for exactly which content it says so: the patch's
stable id, and for each path the blob that the patch was written for and the blob that it met. The
change itself is a diff beside the file, so that a review reads it as it reads any patch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from dsv4port.errors import HashMismatchError, ManifestError
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.project import Project
from dsv4port.manifest.scalars import write_text
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_filled,
    check_name,
    check_object_id,
    check_patch_file,
    check_sha256,
    check_tree_path,
    shown,
)
from dsv4port.patch.quote import display_path, unquote
from dsv4port.quick_dataclass import dataclass

RESOLUTION_FORMAT = 1

FOLDER = "resolutions"

_ENTRY = re.compile(r"(100644|100755|120000|160000) ([0-9a-f]{40})")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Decided(Enum):
    """What a person decided."""

    RESOLVED = "resolved"
    """The patch becomes what the diff says."""
    LEFT_OUT = "left-out"
    """The patch has no place on this content; `why` says the reason."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """One path: ``<mode> <blob>`` before the patch (base), in the target (ours), and decided.

    None where there is no file.
    """

    path: bytes
    base: str | None
    ours: str | None
    result: str | None

    def __post_init__(self) -> None:
        check_tree_path("path", self.path)
        for field in ("base", "ours", "result"):
            value = getattr(self, field)
            if value is not None and _ENTRY.fullmatch(value) is None:
                raise FieldError(field, f"must be a git mode and a blob id, is {shown(value)}")


@dataclass(frozen=True, slots=True)
class Resolution:
    """One decision. ``diff`` is the change against what the patch met; empty for LEFT_OUT.

    ``old_pin`` and ``new_pin`` say on which occasion it was made; they are no part of the key.
    """

    patchset: Name
    patch: str
    patch_id: str
    old_pin: Name
    new_pin: Name
    author: str
    date: str
    decided: Decided
    paths: tuple[ResolvedPath, ...]
    diff: bytes = b""
    why: str | None = None

    def __post_init__(self) -> None:
        check_name("patchset", self.patchset)
        check_patch_file("patch", self.patch)
        check_object_id("patch_id", self.patch_id)
        check_name("from", self.old_pin)
        check_name("onto", self.new_pin)
        check_filled("author", self.author)
        if _DATE.fullmatch(self.date) is None:
            raise FieldError("date", f"must be a time in UTC, is {shown(self.date)}")
        paths = [one.path for one in self.paths]
        if not paths or paths != sorted(set(paths)):
            raise FieldError("files", "must name each path once, in order")
        if self.decided is Decided.LEFT_OUT:
            if not (self.why or "").strip():
                raise FieldError("why", "must say why the patch is left out")
            if self.diff or any(one.result != one.ours for one in self.paths):
                raise FieldError("files", "must keep what is there: the patch is left out")

    @property
    def key(self) -> str:
        """The name of its files: the patch's, and a digest of everything that must match."""
        parts = [self.patchset, self.patch_id]
        parts += [f"{display_path(one.path)} {one.base} {one.ours}" for one in self.paths]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"{self.patch.rpartition('.')[0]}-{digest[:12]}"

    @property
    def diff_name(self) -> str:
        """The name of the file with the diff. No ``.patch``: it is no part of a series."""
        return f"{self.key}.change"


def resolutions_folder(project: Project, patchset: str) -> Path:
    """Where a patchset keeps its resolutions."""
    return project.patchset_folder(patchset) / FOLDER


def encode_resolution(one: Resolution) -> bytes:
    """The text of the file; the diff is a file of its own."""
    rows = [
        "# Written by `dsv4port resolve`; used only where every blob below is the same.",
        f"format: {RESOLUTION_FORMAT}",
        f"patchset: {write_text(one.patchset)}",
        f"patch: {write_text(one.patch)}",
        f"patch_id: {write_text(one.patch_id)}",
        f"from: {write_text(one.old_pin)}",
        f"onto: {write_text(one.new_pin)}",
        f"author: {write_text(one.author)}",
        f"date: {write_text(one.date)}",
        f"decided: {one.decided.value}",
    ]
    if one.why is not None:
        rows.append(f"why: {write_text(one.why)}")
    if one.diff:
        rows.append(f"diff: {hashlib.sha256(one.diff).hexdigest()}")
    rows.append("files:")
    for path in one.paths:
        cells = {
            "path": display_path(path.path),
            "base": path.base,
            "ours": path.ours,
            "result": path.result,
        }
        texts = (f"{k}: {'null' if v is None else write_text(v)}" for k, v in cells.items())
        rows.append(f"- {{{', '.join(texts)}}}")
    return ("\n".join(rows) + "\n").encode()


def load_resolutions(project: Project, patchset: str) -> tuple[Resolution, ...]:
    """Every resolution of a patchset, by file name.

    Raises:
        ManifestError: a file is malformed, or lies under a name that is not its key's.
        HashMismatchError: a diff is not the one that was recorded: it was edited.
    """
    folder = resolutions_folder(project, patchset)
    if not folder.is_dir():
        return ()
    found = [_load(project, folder, file) for file in sorted(folder.glob("*.yaml"))]
    for one, file in found:
        if one.patchset != patchset:
            raise ManifestError(f"{project.label(file)}:1: is of the patchset {one.patchset}")
    return tuple(one for one, _ in found)


def _load(project: Project, folder: Path, file: Path) -> tuple[Resolution, Path]:
    label = project.label(file)
    root = load_document(file, label)
    root.require_format(RESOLUTION_FORMAT, update="resolve the patch again")
    sha256 = root.optional_text("diff")
    diff = b"" if sha256 is None else _read_diff(folder / f"{file.stem}.change", sha256, label)
    with root.located():
        check_sha256("diff", sha256)
        found = Resolution(
            root.name("patchset"), root.text("patch"), root.text("patch_id"),
            root.name("from"), root.name("onto"), root.text("author"), root.text("date"),
            root.choice("decided", Decided), tuple(map(_read_path, root.sequence("files"))),
            diff, root.optional_text("why"),
        )  # fmt: skip
    root.finish()
    if found.key != file.stem:
        raise ManifestError(
            f"{label}:1: says what belongs to the name {found.key}: it was edited or renamed",
            fix="restore the file, or remove it and resolve the patch again",
        )
    return found, file


def _read_diff(file: Path, sha256: str, label: str) -> bytes:
    try:
        diff = file.read_bytes()
    except OSError as error:
        raise ManifestError(
            f"{label}:1: its change {file.name} cannot be read: {error.strerror}",
            fix="restore the file, or remove both and resolve the patch again",
        ) from error
    if hashlib.sha256(diff).hexdigest() != sha256:
        raise HashMismatchError(
            f"{label}: {file.name} is not what was recorded: it was edited",
            fix="restore the file, or remove both and resolve the patch again",
        )
    return diff


def _read_path(node: Node) -> ResolvedPath:
    node.as_mapping()
    try:
        path = unquote(node.text("path").encode())
    except ValueError as error:
        raise node.child("path").failed(f"is not quoted the way git quotes: {error}") from error
    with node.located():
        found = ResolvedPath(
            path,
            node.optional_text("base"),
            node.optional_text("ours"),
            node.optional_text("result"),
        )
    node.finish()
    return found


def resolution_files(one: Resolution) -> Iterable[tuple[str, bytes]]:
    """Name and content of its files, in the order to write: the one that counts comes last."""
    if one.diff:
        yield one.diff_name, one.diff
    yield f"{one.key}.yaml", encode_resolution(one)
