"""What is to be ported: from the names on a command line to patchsets, pins and parsed patches."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4port.apply.engine import SeriesItem
from dsv4port.apply.inputs import read_patch_bytes
from dsv4port.errors import BadInputError, UsageError
from dsv4port.manifest.patchset import Patchset, load_patchset
from dsv4port.manifest.pins import Pins, load_pins
from dsv4port.manifest.project import Project
from dsv4port.manifest.resolution import Resolution, load_resolutions
from dsv4port.manifest.series import Series, load_series
from dsv4port.manifest.stack import load_stack
from dsv4port.manifest.values import shown, suggestion
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import Patch

ARTIFACTS = "port"
"""Folder of conflict artifacts in a project; :mod:`dsv4port.port.artifacts` fills it."""

REPORT = "report.json"
"""The file that every patchset with conflicts has there."""


@dataclass(frozen=True, slots=True)
class SeriesPatch:
    """One patch of a series: its file's name and bytes, and what it says."""

    patchset: str
    file: str
    data: bytes
    patch: Patch

    @property
    def key(self) -> str:
        """``<patchset>/<file>``, as everywhere."""
        return f"{self.patchset}/{self.file}"

    @property
    def item(self) -> SeriesItem:
        """As the strict engine takes it."""
        return SeriesItem(self.key, self.patch)


@dataclass(frozen=True, slots=True)
class Member:
    """A patchset with the series to port.

    ``asked`` is False for one that only comes along because an asked one requires it.
    """

    patchset: Patchset
    series: Series
    patches: tuple[SeriesPatch, ...]
    resolutions: tuple[Resolution, ...]
    asked: bool = True


@dataclass(frozen=True, slots=True)
class PortInput:
    """What is ported: the name it was asked for by, and patchsets in their order.

    ``stack`` is None where a patchset was asked for.
    """

    name: str
    stack: str | None
    old_pin: str
    members: tuple[Member, ...]


def find_input(
    project: Project, name: str, old_pin: str | None, new_pin: str, pins: Pins | None = None
) -> PortInput:
    """Everything to port under a name.

    Parameters:
        name: a patchset or stack; ``patchset:NAME`` or ``stack:NAME`` where both exist.
        old_pin: the pin to port from; None: of a stack its own, of a patchset the nearest one
            before the new pin that it has a series
            without conflicts left for.

    Raises:
        UsageError: the name is both, or the two pins are one.
        BadInputError: there is nothing of that name, no series, or the patchset refuses the pin.
    """
    pins = pins if pins is not None else load_pins(project)
    pins.pin(new_pin)
    kind, name = _kind(project, name)
    if kind == "stack":
        stack = load_stack(project, name)
        old_pin = old_pin or stack.pin
        names = [str(one) for one in stack.patchsets]
        asked = set(names)
    else:
        patchset = load_patchset(project, name, pins)
        old_pin = old_pin or _nearest(project, patchset, pins, new_pin)
        names, asked = _with_required(project, pins, patchset, old_pin), {name}
    pins.pin(old_pin)
    if old_pin == new_pin:
        raise UsageError(
            f"{name} is on {old_pin} already", fix="name another pin with --onto, or with --from"
        )
    members = tuple(
        read_member(project, load_patchset(project, one, pins), old_pin, asked=one in asked)
        for one in names
    )
    for member in members:
        reason = member.patchset.refused.get(pins.pin(new_pin).name)
        if reason is not None:
            raise BadInputError(
                f"{member.patchset.name} must not be applied to {new_pin}: {reason}",
                fix="port it to another pin, or take the pin out of `refused` if that is over",
            )
    return PortInput(name, name if kind == "stack" else None, old_pin, members)


def read_member(project: Project, patchset: Patchset, pin: str, *, asked: bool = True) -> Member:
    """A patchset with its series for a pin, read and parsed."""
    series = load_series(project, patchset, pin)
    patches = []
    for path in series.paths:
        data = read_patch_bytes(path)
        parsed = parse_patch(data, project.label(path))
        patches.append(SeriesPatch(patchset.name, path.name, data, parsed))
    resolutions = load_resolutions(project, patchset.name)
    return Member(patchset, series, tuple(patches), resolutions, asked)


def _kind(project: Project, name: str) -> tuple[str, str]:
    stated, colon, rest = name.partition(":")
    if colon and stated in ("stack", "patchset"):
        return stated, rest
    stacks, patchsets = project.stack_names(), project.patchset_names()
    if name in stacks and name in patchsets:
        raise UsageError(
            f"{name} is a stack and a patchset", fix=f"say stack:{name} or patchset:{name}"
        )
    if name in stacks:
        return "stack", name
    if name not in patchsets:
        raise BadInputError(
            f"there is no patchset or stack {shown(name)}{suggestion(name, patchsets + stacks)}",
            fix="see `dsv4port list` for what there is",
        )
    return "patchset", name


def _nearest(project: Project, patchset: Patchset, pins: Pins, new_pin: str) -> str:
    here = pins.position(new_pin)
    # A series with conflicts left lacks patches; ported on, they would be lost without a word.
    whole = [
        pin
        for pin in patchset.series
        if not any((project.root / ARTIFACTS).glob(f"*-{pin}/{patchset.name}/{REPORT}"))
    ]
    earlier = [pin for pin in whole if pins.position(pin) < here]
    if earlier:
        return max(earlier, key=pins.position)
    later = [pin for pin in whole if pins.position(pin) > here]
    if later:
        return min(later, key=pins.position)
    raise UsageError(
        f"{patchset.name} has a series for {new_pin} only", fix="name another pin with --onto"
    )


def _with_required(project: Project, pins: Pins, patchset: Patchset, pin: str) -> list[str]:
    """The patchset, and before it those it requires that have patches for the pin."""
    order: list[str] = []

    def add(one: Patchset) -> None:
        for requirement in one.requires:
            other = load_patchset(project, requirement.patchset, pins)
            if pin in other.series and other.name not in order:
                add(other)
        order.append(one.name)

    add(patchset)
    return order
