"""``patchsets/<name>/patchset.yaml``: one topic, and all that must be known to carry it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from dsv4port.errors import BadInputError
from dsv4port.manifest.document import Node, load_document, parse_document
from dsv4port.manifest.pins import Pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.scalars import Word
from dsv4port.manifest.values import (
    FieldError,
    Name,
    PullRequest,
    check_filled,
    check_name,
    check_patch_file,
    check_pull_requests,
    check_relative_path,
    check_unique,
    shown,
    suggestion,
)
from dsv4port.quick_dataclass import dataclass, field

PATCHSET_FORMAT = 1

T = TypeVar("T")

_MARKER = re.compile(r"[a-z_][a-z0-9_]*")
# What a kernel may ask of nvcc. Outputs, architectures and search paths are not among it: they
# are the build's own, and must be the same everywhere.
_FLAG = re.compile(
    r"-D[A-Za-z_]\w*(=\w+)?|--use_fast_math|--fmad=(true|false)|--maxrregcount=\d+"
    r"|--expt-(relaxed-constexpr|extended-lambda)"
)
_KERNEL_WORDS = (
    (
        "architectures",
        re.compile(r"[1-9][0-9]{1,2}[af]?"),
        "an architecture is a compute capability without the dot, such as 90 or 100a",
    ),
    ("exports", re.compile(r"[A-Za-z_]\w*"), "an export is the name of a C function"),
    ("flags", _FLAG, "only -D…, --use_fast_math, --fmad=, --maxrregcount= and --expt-… are taken"),
)


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

    def find(self, content: bytes) -> int | None:
        """Where in ``content`` the needle begins, in bytes from 0, None when it is not there."""
        assert self.needle is not None
        if self.regex:
            match = re.search(self.needle.encode(), content, re.MULTILINE)
            return None if match is None else match.start()
        at = content.find(self.needle.encode())
        return None if at < 0 else at


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
    ``patches`` limits it to some files of the series; without it upstream has the whole patchset.
    ``proof`` says how that was found out.
    """

    pin: Name
    prs: tuple[PullRequest, ...] = ()
    fingerprint: Fingerprint | None = None
    companion: Fingerprint | None = None
    patches: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("pin", self.pin)
        check_pull_requests("prs", self.prs)
        for patch in self.patches:
            check_patch_file("patches", patch)
        check_unique("patches", self.patches)
        for text in self.proof:
            check_filled("proof", text)


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


class KernelLanguage(Enum):
    """What a kernel is written in, which says how it is built."""

    CUDA = "cuda"
    """CUDA C++ with a C ABI: nvcc makes a shared library of it."""
    TRITON = "triton"
    """Triton kernels of the patched tree: the source is a program that compiles them as a check."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Native sources of the patchset that are built for some architectures.

    ``architectures`` are compute capabilities without the dot, such as ``90`` or ``100a``.
    ``exports`` are the C functions of the library, ``flags`` go to nvcc.
    """

    name: Name
    sources: tuple[str, ...]
    architectures: tuple[str, ...]
    language: KernelLanguage = KernelLanguage.CUDA
    headers: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if not self.sources:
            raise FieldError("sources", "must not be empty")
        for field_name in ("sources", "headers"):
            for path in getattr(self, field_name):
                check_relative_path(field_name, path)
            check_unique(field_name, getattr(self, field_name))
        if not self.architectures:
            raise FieldError("architectures", "must not be empty")
        check_unique("architectures", self.architectures)
        for field_name, pattern, what in _KERNEL_WORDS:
            for word in getattr(self, field_name):
                if pattern.fullmatch(word) is None:
                    raise FieldError(field_name, f"holds {shown(word)}; {what}")
        check_unique("exports", self.exports)
        if self.language is KernelLanguage.TRITON:
            if len(self.sources) != 1:
                raise FieldError("sources", "must be the one program that compiles the kernels")
            for field_name in ("headers", "exports", "flags"):
                if getattr(self, field_name):
                    raise FieldError(field_name, "has no meaning for Triton kernels")


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

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_filled("title", self.title)
        check_filled("why", self.why)
        for pin, folder in self.series.items():
            check_name("series", pin)
            check_name("series", folder)
        if not self.series:
            raise FieldError("series", "must name at least one pin")
        for pin in self.refused:
            check_name("refused", pin)
            if pin in self.series:
                raise FieldError("refused", f"names {pin}, which `series` has patches for")
        for key in ("requires", "conflicts", "companions"):
            others = [relation.patchset for relation in getattr(self, key)]
            if self.name in others:
                raise FieldError(key, "names the patchset itself")
            check_unique(key, others)
        required = {relation.patchset for relation in self.requires}
        for conflict in self.conflicts:
            if conflict.patchset in required:
                raise FieldError("conflicts", f"names {conflict.patchset}, which is required too")
        check_unique("tests", (test.path for test in self.tests))
        for path in self.upstream_tests:
            check_relative_path("upstream_tests", path)
        check_unique("upstream_tests", self.upstream_tests)
        check_unique("upstreamed", (entry.pin for entry in self.upstreamed if not entry.patches))
        check_unique("kernels", (kernel.name for kernel in self.kernels))
        # Read-only, so that a frozen patchset is frozen all through.
        object.__setattr__(self, "series", MappingProxyType(dict(self.series)))
        object.__setattr__(self, "refused", MappingProxyType(dict(self.refused)))


def load_patchset(project: Project, name: str, pins: Pins | None = None) -> Patchset:
    """Read one patchset manifest.

    Parameters:
        pins: when given, every pin that the manifest names must be one of them.

    Raises:
        BadInputError: there is no such patchset.
        ManifestError: the file is malformed, or names a test that is not there.
    """
    folder, file = project.patchset_folder(name), project.patchset_file(name)
    if not file.is_file():
        raise BadInputError(
            f"there is no patchset {shown(name)}{suggestion(name, project.patchset_names())}",
            fix=f"make {project.label(file)}, or see `dsv4port list` for what there is",
        )
    root = load_document(file, project.label(file), state=project.state_folder)
    return _read_patchset(root, folder, pins)


def parse_patchset(project: Project, name: str, data: bytes, pins: Pins) -> Patchset:
    """Like :func:`load_patchset`, from bytes that are not written yet."""
    root = parse_document(data, project.label(project.patchset_file(name)))
    return _read_patchset(root, project.patchset_folder(name), pins)


def _read_patchset(root: Node, folder: Path, pins: Pins | None) -> Patchset:
    root.require_format(PATCHSET_FORMAT, update="see docs/manifests.md for the present format")
    stated = root.name("name")
    if stated != folder.name:
        raise root.child("name").failed(f"is {stated}, but the folder is {folder.name}")
    with root.located():
        patchset = Patchset(
            name=stated,
            title=root.text("title"),
            why=root.text("why"),
            origin=_read_origin(root.mapping("origin")),
            series=_read_series_folders(root.mapping("series")),
            requires=_read_relations(root, "requires", Requirement),
            conflicts=_read_relations(root, "conflicts", Conflict),
            companions=_read_relations(root, "companions", Companion),
            preconditions=_read_list(root, "preconditions", _read_probe),
            upstreamed=_read_list(root, "upstreamed", _read_upstreamed),
            hazards=_read_list(root, "hazards", _read_hazard),
            guard=_read_guard(root.optional_mapping("guard")),
            tests=_read_list(root, "tests", _read_test),
            upstream_tests=root.optional_texts("upstream_tests"),
            kernels=_read_list(root, "kernels", _read_kernel),
            not_run=_read_list(root, "not_run", _read_not_run),
            excluded=_read_list(root, "excluded", _read_excluded),
            refused=_read_refused(root.optional_mapping("refused")),
        )
    root.finish()
    _check_files(root, folder, patchset)
    if pins is not None:
        _check_pins(root, patchset, pins)
    return patchset


def _read_list(root: Node, key: str, read: Callable[[Node], T]) -> tuple[T, ...]:
    values = []
    for node in root.optional_sequence(key):
        node.as_mapping()
        with node.located():
            values.append(read(node))
        node.finish()
    return tuple(values)


def _read_pull_requests(node: Node) -> tuple[PullRequest, ...]:
    return tuple(
        item.as_integer() if isinstance(item.value, Word) else item.as_text()
        for item in node.optional_sequence("prs")
    )


def _read_origin(node: Node) -> Origin:
    with node.located():
        origin = Origin(
            written=node.choice("written", Written),
            seed=node.optional_text("seed"),
            prs=_read_pull_requests(node),
            author=node.optional_text("author"),
            note=node.optional_text("note"),
        )
    node.finish()
    return origin


def _read_series_folders(node: Node) -> dict[Name, str]:
    folders: dict[Name, str] = {}
    for pin, entry in node.entries():
        with entry.located():
            folders[Name(pin)] = Name(pin) if entry.is_null else entry.as_name()
    return folders


def _read_relations(root: Node, key: str, kind: Callable[[Name, str, str], T]) -> tuple[T, ...]:
    return _read_list(
        root,
        key,
        lambda node: kind(node.name("patchset"), node.text("reason"), node.text("breaks")),
    )


def _read_probe(node: Node) -> Probe:
    asked = [kind for kind in ProbeKind if node.optional(kind.value) is not None]
    if len(asked) != 1:
        choices = ", ".join(f"`{kind.value}`" for kind in ProbeKind)
        raise node.failed(f"must have exactly one of {choices}, has {len(asked)}")
    kind = asked[0]
    about_path = kind in (ProbeKind.EXISTS, ProbeKind.ABSENT)
    if about_path and not node.boolean(kind.value):
        raise node.child(kind.value).failed("must be true; use the opposite probe instead of false")
    return Probe(
        path=node.text("path"),
        kind=kind,
        why=node.text("why"),
        needle=None if about_path else node.text(kind.value),
        regex=node.optional_boolean("regex"),
        pins=node.optional_names("pins"),
    )


def _read_upstreamed(node: Node) -> Upstreamed:
    return Upstreamed(
        pin=node.name("pin"),
        prs=_read_pull_requests(node),
        fingerprint=_read_fingerprint(node.optional_mapping("fingerprint")),
        companion=_read_fingerprint(node.optional_mapping("companion")),
        patches=node.optional_texts("patches"),
        proof=node.optional_texts("proof"),
    )


def _read_fingerprint(node: Node | None) -> Fingerprint | None:
    if node is None:
        return None
    with node.located():
        fingerprint = Fingerprint(node.text("path"), node.text("contains"))
    node.finish()
    return fingerprint


def _read_hazard(node: Node) -> Hazard:
    return Hazard(node.text("condition"), node.text("effect"), node.text("evidence"))


def _read_guard(node: Node | None) -> Guard | None:
    if node is None:
        return None
    fields = node.optional_mapping("fields")
    with node.located():
        guard = Guard(
            name=node.text("name"),
            module=node.text("module"),
            summary=node.text("summary"),
            fields=()
            if fields is None
            else tuple((key, entry.as_text()) for key, entry in fields.entries()),
        )
    node.finish()
    return guard


def _read_test(node: Node) -> RegressionTest:
    return RegressionTest(
        path=node.text("path"),
        covers=node.text("covers"),
        markers=node.optional_texts("markers"),
        fix=node.optional_boolean("fix"),
    )


def _read_kernel(node: Node) -> Kernel:
    return Kernel(
        name=node.name("name"),
        sources=node.texts("sources"),
        architectures=node.texts("architectures"),
        language=KernelLanguage.CUDA
        if node.optional("language") is None
        else node.choice("language", KernelLanguage),
        headers=node.optional_texts("headers"),
        exports=node.optional_texts("exports"),
        flags=node.optional_texts("flags"),
    )


def _read_not_run(node: Node) -> NotRun:
    return NotRun(node.text("what"), node.text("why"))


def _read_excluded(node: Node) -> Excluded:
    return Excluded(node.text("item"), node.text("reason"))


def _read_refused(node: Node | None) -> dict[Name, str]:
    reasons: dict[Name, str] = {}
    if node is not None:
        for pin, entry in node.entries():
            with entry.located():
                reasons[Name(pin)] = entry.as_text()
                check_filled("reason", reasons[Name(pin)])
    return reasons


def _check_files(root: Node, folder: Path, patchset: Patchset) -> None:
    for path in sorted(folder.glob("*/series")):
        if path.parent.name not in patchset.series.values():
            raise root.child("series").failed(
                f"does not name {path.parent.name}, whose folder has a series: patches nobody "
                "applies",
                fix="add the pin, or take the folder away",
            )
    for node, test in zip(root.optional_sequence("tests"), patchset.tests, strict=True):
        if not (folder / test.path).is_file():
            raise node.child("path").failed(f"there is no file {shown(test.path)} in the patchset")
    for node, kernel in zip(root.optional_sequence("kernels"), patchset.kernels, strict=True):
        named = [*node.sequence("sources"), *node.optional_sequence("headers")]
        for item, source in zip(named, (*kernel.sources, *kernel.headers), strict=True):
            if not (folder / source).is_file():
                raise item.failed(f"there is no file {shown(source)} in the patchset")


def _check_pins(root: Node, patchset: Patchset, pins: Pins) -> None:
    def check(pin: str, node: Node) -> None:
        if pin not in pins:
            raise node.failed(
                f"unknown pin {shown(pin)}{suggestion(pin, pins)}",
                fix=f"{pins.label} has {', '.join(pins)}",
            )

    for key in ("series", "refused"):
        mapping = root.optional_mapping(key)
        for pin, node in () if mapping is None else mapping.entries():
            check(pin, node)
    for node in root.optional_sequence("upstreamed"):
        check(node.text("pin"), node.child("pin"))
    for node in root.optional_sequence("preconditions"):
        for item in node.optional_sequence("pins"):
            check(item.as_text(), item)
