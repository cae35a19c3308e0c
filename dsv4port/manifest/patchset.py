"""``patchsets/<name>/patchset.yaml``: one topic, and all that must be known to carry it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import (
    FieldError,
    Name,
    PullRequest,
    check_filled,
    check_name,
    check_pull_requests,
    check_relative_path,
    check_unique,
    shown,
)

PATCHSET_FORMAT = 1

_MARKER = re.compile(r"[a-z_][a-z0-9_]*")


class Written(Enum):
    """How a patchset came to be."""

    HERE = "here"
    """Written in this project from a description of what it must do."""
    ADAPTED = "adapted"
    """Adapted from a change that is public elsewhere."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a patchset comes from: ``seed`` is the collection that asked for it."""

    written: Written
    seed: str | None = None
    prs: tuple[PullRequest, ...] = ()
    author: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        check_pull_requests("prs", self.prs)


@dataclass(frozen=True, slots=True)
class _Relation:
    patchset: Name
    reason: str
    breaks: str

    def __post_init__(self) -> None:
        check_name("patchset", self.patchset)
        check_filled("reason", self.reason)
        check_filled("breaks", self.breaks)


@dataclass(frozen=True, slots=True)
class Requirement(_Relation):
    """A patchset that must come earlier in the stack; ``breaks`` says what fails without it."""


@dataclass(frozen=True, slots=True)
class Conflict(_Relation):
    """A patchset that must not be in the stack; ``breaks`` says what fails with it."""


@dataclass(frozen=True, slots=True)
class Companion(_Relation):
    """A patchset that should be in the stack; ``breaks`` says what suffers without it."""


class ProbeKind(Enum):
    """What a probe asks about a path of the pin's tree."""

    EXISTS = "exists"
    """The path is there."""
    ABSENT = "absent"
    """The path is not there."""
    CONTAINS = "contains"
    """The path is there and its content has the needle."""
    LACKS = "lacks"
    """The path is there and its content does not have the needle."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One fact about the pin's tree that a patchset relies on.

    ``needle`` is literal text, or a regular expression in multi-line mode when ``regex`` is
    true; None for EXISTS and ABSENT. An empty ``pins`` means every pin.
    """

    path: str
    kind: ProbeKind
    why: str
    needle: str | None = None
    regex: bool = False
    pins: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        check_relative_path("path", self.path)
        check_filled("why", self.why)
        for pin in self.pins:
            check_name("pins", pin)
        if self.kind in (ProbeKind.EXISTS, ProbeKind.ABSENT):
            if self.needle is not None:
                raise FieldError(self.kind.value, "asks about the path only")
            if self.regex:
                raise FieldError("regex", f"means nothing with `{self.kind.value}`")
            return
        if not self.needle:
            raise FieldError(self.kind.value, "must not be empty")
        if self.regex:
            try:
                re.compile(self.needle.encode())
            except re.error as error:
                raise FieldError(self.kind.value, f"is no regular expression: {error}") from error

    def applies_to(self, pin: str) -> bool:
        """Whether the probe counts for ``pin``."""
        return not self.pins or pin in self.pins


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Text by which a change is recognised in a tree."""

    path: str
    contains: str

    def __post_init__(self) -> None:
        check_relative_path("path", self.path)
        check_filled("contains", self.contains)


@dataclass(frozen=True, slots=True)
class Upstreamed:
    """From ``pin`` on upstream has the change itself.

    ``fingerprint`` recognises it in the tree. ``companion`` recognises what has to be there
    beside it: with the first and without the second, upstream has the change but not safely.
    """

    pin: Name
    prs: tuple[PullRequest, ...] = ()
    fingerprint: Fingerprint | None = None
    companion: Fingerprint | None = None

    def __post_init__(self) -> None:
        check_name("pin", self.pin)
        check_pull_requests("prs", self.prs)


@dataclass(frozen=True, slots=True)
class Hazard:
    """What can go wrong with the patchset applied: when, how, and how that is known."""

    condition: str
    effect: str
    evidence: str

    def __post_init__(self) -> None:
        check_filled("condition", self.condition)
        check_filled("effect", self.effect)
        check_filled("evidence", self.evidence)


@dataclass(frozen=True, slots=True)
class Guard:
    """The contract that switches the patchset on: ``module`` implements it in the tree.

    ``fields`` documents what the contract looks at: name of the field, what it must be.
    """

    name: str
    module: str
    summary: str
    fields: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_filled("name", self.name)
        check_relative_path("module", self.module)
        check_filled("summary", self.summary)


@dataclass(frozen=True, slots=True)
class RegressionTest:
    """One test file under the patchset's folder.

    ``fix`` says that the test must fail on the tree without the patchset.
    """

    path: str
    covers: str
    markers: tuple[str, ...] = ()
    fix: bool = False

    def __post_init__(self) -> None:
        check_relative_path("path", self.path)
        check_filled("covers", self.covers)
        for marker in self.markers:
            if _MARKER.fullmatch(marker) is None:
                raise FieldError("markers", f"holds {shown(marker)}, which is no marker name")
        check_unique("markers", self.markers)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Native sources of the patchset that are built for some architectures."""

    name: Name
    sources: tuple[str, ...]
    architectures: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        for source in self.sources:
            check_relative_path("sources", source)
        if not self.sources:
            raise FieldError("sources", "must not be empty")
        if not self.architectures:
            raise FieldError("architectures", "must not be empty")


@dataclass(frozen=True, slots=True)
class NotRun:
    """Something that was never run or measured in this project, and why."""

    what: str
    why: str

    def __post_init__(self) -> None:
        check_filled("what", self.what)
        check_filled("why", self.why)


@dataclass(frozen=True, slots=True)
class Excluded:
    """A part of the original change that is deliberately not carried."""

    item: str
    reason: str

    def __post_init__(self) -> None:
        check_filled("item", self.item)
        check_filled("reason", self.reason)


@dataclass(frozen=True, slots=True)
class Patchset:
    """One topic: its series, what it needs, what is known about it.

    ``series`` gives the folder of the series for each pin; ``refused`` gives the reason for each
    pin that the patchset must not be applied to.
    """

    name: Name
    title: str
    why: str
    origin: Origin
    series: Mapping[Name, str]
    requires: tuple[Requirement, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    companions: tuple[Companion, ...] = ()
    preconditions: tuple[Probe, ...] = ()
    upstreamed: tuple[Upstreamed, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    guard: Guard | None = None
    tests: tuple[RegressionTest, ...] = ()
    upstream_tests: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    refused: Mapping[Name, str] = field(default_factory=dict)


def load_patchset(project: Project, name: str, pins: Pins | None = None) -> Patchset:
    """Read one patchset manifest.

    Parameters:
        pins: when given, every pin that the manifest names must be one of them.

    Raises:
        BadInputError: there is no such patchset.
        ManifestError: the file is malformed, or names a test that is not there.
    """
    raise NotImplementedError
