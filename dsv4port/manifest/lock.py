"""``manifests/locks/<stack>.lock.yaml``: what a stack must come out as, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dsv4port.manifest.project import Project
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_filled,
    check_name,
    check_object_id,
    check_sha256,
    check_tree_path,
    shown,
)

LOCK_FORMAT = 1

_MODES = frozenset((0o100644, 0o100755, 0o120000, 0o160000))
_GITLINK = 0o160000


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
        check_filled("file", self.file)
        if "/" in self.file or "\0" in self.file:
            raise FieldError("file", f"must be a plain file name, is {shown(self.file)}")
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
        check_filled("tool", self.tool)
        check_name("stack", self.stack)
        check_name("pin", self.pin)
        for field in ("base_tree", "base_commit", "tree", "commit"):
            check_object_id(field, getattr(self, field))


def dump_lock(lock: Lock) -> str:
    """The canonical text of a lock: stable order, one row a line, so that diffs review well."""
    raise NotImplementedError


def parse_lock(data: bytes, label: str) -> Lock:
    """Read a lock from bytes; ``label`` is the file name for messages. Raises ManifestError."""
    raise NotImplementedError


def load_lock(project: Project, stack: str) -> Lock:
    """Read the lock of a stack.

    Raises:
        BadInputError: the stack has no lock.
        ManifestError: the file is malformed or of another format.
    """
    raise NotImplementedError


def write_lock(project: Project, lock: Lock) -> None:
    """Write the lock of its stack, atomically."""
    raise NotImplementedError
