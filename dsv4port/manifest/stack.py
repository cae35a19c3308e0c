"""``manifests/stacks/<name>.yaml``: which patchsets a release is cut from, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.patchset import Companion, Patchset, Probe, ProbeKind, load_patchset
from dsv4port.manifest.pins import Pin, Pins, load_pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.series import Series, load_series
from dsv4port.manifest.values import (
    FieldError,
    Name,
    check_filled,
    check_name,
    check_unique,
    shown,
    suggestion,
)
from dsv4port.quick_dataclass import dataclass

STACK_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stack:
    """An ordered list of patchsets for one pin and one target."""

    name: Name
    title: str
    pin: Name
    target: Name
    patchsets: tuple[Name, ...]

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_filled("title", self.title)
        check_name("pin", self.pin)
        check_name("target", self.target)
        for patchset in self.patchsets:
            check_name("patchsets", patchset)
        if not self.patchsets:
            raise FieldError("patchsets", "must name at least one patchset")
        check_unique("patchsets", self.patchsets)


@dataclass(frozen=True, slots=True)
class StackMember:
    """A patchset of a stack with its series for the stack's pin."""

    patchset: Patchset
    series: Series


@dataclass(frozen=True, slots=True)
class StackPatch:
    """One patch of a stack: the names it is known by, and where its file lies."""

    patchset: Name
    file: str
    path: Path

    @property
    def key(self) -> str:
        """``<patchset>/<file>``, unique in a stack; locks and receipts name patches this way."""
        return f"{self.patchset}/{self.file}"


@dataclass(frozen=True, slots=True)
class MissingCompanion:
    """A patchset of the stack wants another one beside it, which the stack does not have."""

    patchset: Name
    companion: Companion


@dataclass(frozen=True, slots=True)
class ResolvedStack:
    """A stack with everything it names read and checked against each other."""

    stack: Stack
    pin: Pin
    members: tuple[StackMember, ...]
    missing_companions: tuple[MissingCompanion, ...]

    @property
    def patches(self) -> tuple[StackPatch, ...]:
        """All patches in the order of application."""
        return tuple(
            StackPatch(member.patchset.name, entry, member.series.folder / entry)
            for member in self.members
            for entry in member.series.entries
        )


@dataclass(frozen=True, slots=True)
class PreconditionFailure:
    """A probe that does not hold on a tree; ``found`` says what the tree has instead."""

    patchset: Name
    probe: Probe
    found: str


def load_stack(project: Project, name: str) -> Stack:
    """Read one stack manifest without the files it names.

    Raises:
        BadInputError: there is no such stack.
        ManifestError: the file is malformed.
    """
    return _read_stack(project, name)[0]


def resolve_stack(project: Project, name: str) -> ResolvedStack:
    """Read a stack and all it names, and check that it makes sense as a whole.

    Raises:
        BadInputError: there is no such stack.
        ManifestError: a file is malformed; a patchset, series or pin is missing; a patchset
            refuses the pin; a requirement is absent or comes later; a conflict is present.
    """
    stack, root = _read_stack(project, name)
    pins = load_pins(project)
    with root.child("pin").located():
        pin = pins.pin(stack.pin)
    members = []
    nodes = root.sequence("patchsets")
    for node, patchset_name in zip(nodes, stack.patchsets, strict=True):
        with node.located():
            patchset = load_patchset(project, patchset_name, pins)
            _check_pin(patchset, pins, stack.pin)
            members.append(StackMember(patchset, load_series(project, patchset, stack.pin)))
    upstream = partial(_is_upstream, project, pins, stack.pin)
    for position, node in enumerate(nodes):
        with node.located():
            _check_relations(stack, members[position].patchset, position, upstream)
    return ResolvedStack(stack, pin, tuple(members), _missing_companions(members, upstream))


def probe_preconditions(
    patchset: Patchset, pin: str, read: Callable[[bytes], bytes | None]
) -> Iterator[PreconditionFailure]:
    """Try the preconditions of ``patchset`` that count for ``pin``.

    Parameters:
        read: gives the content of a path of the pin's tree, None when the path is absent.

    Yields:
        One failure per probe that does not hold.
    """
    for probe in patchset.preconditions:
        if probe.applies_to(pin):
            found = _contradiction(probe, read(probe.path.encode()))
            if found is not None:
                yield PreconditionFailure(patchset.name, probe, found)


def _contradiction(probe: Probe, content: bytes | None) -> str | None:
    if probe.kind is ProbeKind.ABSENT:
        return None if content is None else "the path exists"
    if content is None:
        return "the path does not exist"
    if probe.needle is None:
        return None
    at = probe.find(content)
    if probe.kind is ProbeKind.CONTAINS:
        return None if at is not None else "the text is not there"
    if at is None:
        return None
    line = content.count(b"\n", 0, at) + 1
    return f"the text is there, in line {line}"


def _read_stack(project: Project, name: str) -> tuple[Stack, Node]:
    file = project.stack_file(name)
    if not file.is_file():
        raise BadInputError(
            f"there is no stack {shown(name)}{suggestion(name, project.stack_names())}",
            fix=f"make {project.label(file)}, or see `dsv4port list` for what there is",
        )
    root = load_document(file, project.label(file), state=project.state_folder)
    root.require_format(STACK_FORMAT, update="see docs/manifests.md for the present format")
    stated = root.optional_name("name")
    if stated is not None and stated != name:
        raise root.child("name").failed(f"is {stated}, but the file is {file.name}")
    with root.located():
        stack = Stack(
            name=Name(name),
            title=root.text("title"),
            pin=root.name("pin"),
            target=root.name("target"),
            patchsets=root.names("patchsets"),
        )
    root.finish()
    return stack, root


def _check_pin(patchset: Patchset, pins: Pins, pin: Name) -> None:
    reason = patchset.refused.get(pin)
    if reason is not None:
        raise BadInputError(
            f"{patchset.name} must not be applied to {pin}: {reason}",
            fix="take the patchset out of the stack, or use another pin",
        )
    if pin not in patchset.series and (since := _upstream_since(patchset, pins, pin)):
        raise BadInputError(
            f"{patchset.name} has no series for {pin}: upstream has the change since {since}",
            fix="take the patchset out of the stack",
        )


def _check_relations(
    stack: Stack, patchset: Patchset, position: int, upstream: Callable[[Name], bool]
) -> None:
    earlier = stack.patchsets[:position]
    for requirement in patchset.requires:
        other = requirement.patchset
        if other in earlier:
            continue
        because = f"{requirement.reason}; without it: {requirement.breaks}"
        if other in stack.patchsets:
            raise BadInputError(
                f"{patchset.name} requires {other} before it, which comes later ({because})",
                fix=f"move {other} up",
            )
        if not upstream(other):
            raise BadInputError(
                f"{patchset.name} requires {other}, which the stack does not have ({because})",
                fix=f"add {other} before {patchset.name}",
            )
    for conflict in patchset.conflicts:
        if conflict.patchset in stack.patchsets:
            raise BadInputError(
                f"{patchset.name} conflicts with {conflict.patchset} "
                f"({conflict.reason}; together: {conflict.breaks})",
                fix="take one of the two out of the stack",
            )


def _missing_companions(
    members: list[StackMember], upstream: Callable[[Name], bool]
) -> tuple[MissingCompanion, ...]:
    present = {member.patchset.name for member in members}
    return tuple(
        MissingCompanion(member.patchset.name, companion)
        for member in members
        for companion in member.patchset.companions
        if companion.patchset not in present and not upstream(companion.patchset)
    )


def _is_upstream(project: Project, pins: Pins, pin: Name, name: Name) -> bool:
    """Whether upstream itself has, at ``pin``, what the patchset ``name`` would bring."""
    if not project.patchset_file(name).is_file():
        return False
    return _upstream_since(load_patchset(project, name, pins), pins, pin) is not None


def _upstream_since(patchset: Patchset, pins: Pins, pin: Name) -> Name | None:
    here = pins.position(pin)
    since = [
        entry.pin
        for entry in patchset.upstreamed
        if not entry.patches and pins.position(entry.pin) <= here
    ]
    return since[0] if since else None
