"""``manifests/pins.yaml``: the immutable upstream states that patches are written for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dsv4port.errors import BadInputError
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_name,
    check_object_id,
    check_sha256,
    shown,
    suggestion,
)
from dsv4port.quick_dataclass import dataclass

PINS_FORMAT = 1

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+_-]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*\.tar\.gz")
_COMMIT_PREFIX = re.compile(r"[0-9a-f]{7,40}")
_URL = re.compile(r"[^\s\x00-\x1f-][^\s\x00-\x1f]*")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")


@dataclass(frozen=True, slots=True)
class SdistSource:
    """A source distribution on a package index.

    ``sha256`` is of the archive; ``tree`` is the git tree id of its content without the top
    folder, None while it is not recorded yet. ``filename`` is only needed where the archive is
    not called ``<name>-<version>.tar.gz``.
    """

    name: str
    version: str
    sha256: str
    tree: str | None = None
    filename: str | None = None

    def __post_init__(self) -> None:
        if _DISTRIBUTION.fullmatch(self.name) is None:
            raise FieldError("name", f"is {shown(self.name)}, which names no distribution")
        if _VERSION.fullmatch(self.version) is None:
            raise FieldError("version", f"is {shown(self.version)}, which is no version")
        check_sha256("sha256", self.sha256)
        check_object_id("tree", self.tree)
        if self.filename is not None and _FILE_NAME.fullmatch(self.filename) is None:
            raise FieldError(
                "filename",
                f"must be a plain file name ending in .tar.gz, is {shown(self.filename)}",
            )

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return self.filename or f"{self.name}-{self.version}.tar.gz"


@dataclass(frozen=True, slots=True)
class GitSource:
    """One commit of a git repository, named by ``tag``, ``commit``, or both.

    ``commit_prefix`` is what is known of the commit where the full id is not: fetched commits
    must start with it. ``tree`` is None while it is not recorded yet.
    """

    url: str
    tag: str | None = None
    commit: str | None = None
    commit_prefix: str | None = None
    tree: str | None = None

    def __post_init__(self) -> None:
        # A leading dash would be read as an option by git.
        if _URL.fullmatch(self.url) is None:
            raise FieldError("url", f"is {shown(self.url)}, which is no repository URL")
        if self.tag is not None and (
            _TAG.fullmatch(self.tag) is None or ".." in self.tag or self.tag.endswith(("/", "."))
        ):
            raise FieldError("tag", f"is {shown(self.tag)}, which is no tag name")
        check_object_id("commit", self.commit)
        check_object_id("tree", self.tree)
        prefix = self.commit_prefix
        if prefix is not None:
            if _COMMIT_PREFIX.fullmatch(prefix) is None:
                raise FieldError(
                    "commit_prefix", f"must be 7 to 40 lower-case hex digits, is {shown(prefix)}"
                )
            if self.commit is not None and not self.commit.startswith(prefix):
                raise FieldError("commit_prefix", "is not how `commit` starts")
        if self.tag is None and self.commit is None:
            raise FieldError(
                "commit", "and `tag` are both missing; one of them must say what to fetch"
            )


@dataclass(frozen=True, slots=True)
class Pin:
    """One immutable upstream state, with at least one place to get it from."""

    name: Name
    sdist: SdistSource | None = None
    git: GitSource | None = None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.sdist is None and self.git is None:
            raise FieldError("sdist", "and `git` are both missing; a pin needs a source")


@dataclass(frozen=True, slots=True)
class Pins(Mapping[str, Pin]):
    """All pins by name, in the order of the file, which is the order of the releases."""

    label: str
    by_name: Mapping[str, Pin]

    def pin(self, name: str) -> Pin:
        """The pin of that name.

        Raises:
            BadInputError: there is none; the message names near matches.
        """
        found = self.by_name.get(name)
        if found is None:
            raise BadInputError(
                f"unknown pin {shown(name)}{suggestion(name, self.by_name)}",
                fix=f"{self.label} has {', '.join(self.by_name)}",
            )
        return found

    def position(self, name: str) -> int:
        """Place of the pin in the order of the releases, from 0. Raises BadInputError."""
        return list(self.by_name).index(self.pin(name).name)

    def __getitem__(self, name: str) -> Pin:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)


def load_pins(project: Project) -> Pins:
    """Read ``manifests/pins.yaml``.

    Raises:
        ManifestError: the file is malformed.
    """
    file = project.pins_file
    root = load_document(file, project.label(file), state=project.state_folder)
    root.require_format(PINS_FORMAT, update="see docs/manifests.md for the present format")
    by_name: dict[str, Pin] = {}
    archives: dict[str, str] = {}
    for key, node in root.mapping("pins").entries():
        with node.located():
            name = Name(key)
        pin = _read_pin(name, node.as_mapping())
        # Two pins with one archive come from copying an entry and forgetting to change it.
        if pin.sdist is not None:
            twin = archives.setdefault(pin.sdist.sha256, key)
            if twin != key:
                raise node.mapping("sdist").child("sha256").failed(f"is that of {twin} too")
        by_name[name] = pin
    root.finish()
    if not by_name:
        raise root.child("pins").failed("must hold at least one pin")
    return Pins(root.document.label, MappingProxyType(by_name))


def _read_pin(name: Name, node: Node) -> Pin:
    sdist, git = node.optional_mapping("sdist"), node.optional_mapping("git")
    with node.located():
        pin = Pin(
            name,
            sdist=None if sdist is None else _read_sdist(sdist),
            git=None if git is None else _read_git(git),
        )
    node.finish()
    return pin


def _read_sdist(node: Node) -> SdistSource:
    with node.located():
        source = SdistSource(
            name=node.text("name"),
            version=node.text("version"),
            sha256=node.text("sha256"),
            tree=node.optional_text("tree"),
            filename=node.optional_text("filename"),
        )
    node.finish()
    return source


def _read_git(node: Node) -> GitSource:
    with node.located():
        source = GitSource(
            url=node.text("url"),
            tag=node.optional_text("tag"),
            commit=node.optional_text("commit"),
            commit_prefix=node.optional_text("commit_prefix"),
            tree=node.optional_text("tree"),
        )
    node.finish()
    return source
