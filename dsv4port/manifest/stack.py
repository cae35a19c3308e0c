"""``manifests/stacks/<name>.yaml``: which patchsets a release is cut from, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dsv4port.manifest.patchset import Companion, Patchset, Probe
from dsv4port.manifest.pins import Pin
from dsv4port.manifest.project import Project
from dsv4port.manifest.series import Series
from dsv4port.manifest.values import FieldError, Name, check_filled, check_name, check_unique

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
    raise NotImplementedError


def resolve_stack(project: Project, name: str) -> ResolvedStack:
    """Read a stack and all it names, and check that it makes sense as a whole.

    Raises:
        BadInputError: there is no such stack.
        ManifestError: a file is malformed; a patchset, series or pin is missing; a patchset
            refuses the pin; a requirement is absent or comes later; a conflict is present.
    """
    raise NotImplementedError


def probe_preconditions(
    patchset: Patchset, pin: str, read: Callable[[bytes], bytes | None]
) -> Iterator[PreconditionFailure]:
    """Try the preconditions of ``patchset`` that count for ``pin``.

    Parameters:
        read: gives the content of a path of the pin's tree, None when the path is absent.

    Yields:
        One failure per probe that does not hold.
    """
    raise NotImplementedError
