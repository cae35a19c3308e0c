"""``dsv4port show``: everything the manifests say about one pin, patchset, patch or stack."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply
from dsv4port.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from dsv4port.manifest.project import Project


class Kind(str, Enum):
    """What a name can name."""

    PIN = "pin"
    """An upstream state."""
    PATCHSET = "patchset"
    """A topic."""
    STACK = "stack"
    """An ordered list of patchsets on a pin."""


def command(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="PIN, PATCHSET, STACK, or PATCHSET/[PIN/]PATCH."),
    ],
    kind: Annotated[
        Kind | None, typer.Option(help="What NAME names, where several things have the name.")
    ] = None,
) -> Reply:
    """Show a pin, patchset, stack or patch."""
    project = Run.of(context).project
    if "/" in name:
        if kind is not None:
            raise UsageError("--kind does not go with a patch", fix="leave it out")
        from dsv4port.cli.show_patch import show_patch

        return show_patch(project, name)
    chosen = kind or _only_kind(project, name)
    if chosen is Kind.PIN:
        from dsv4port.cli.show_manifest import show_pin

        return show_pin(project, name)
    if chosen is Kind.PATCHSET:
        from dsv4port.cli.show_manifest import show_patchset

        return show_patchset(project, name)
    from dsv4port.cli.show_manifest import show_stack

    return show_stack(project, name)


def _only_kind(project: Project, name: str) -> Kind:
    from dsv4port.manifest.pins import load_pins
    from dsv4port.manifest.values import shown, suggestion

    known: dict[Kind, Sequence[str]] = {
        Kind.STACK: project.stack_names(),
        Kind.PATCHSET: project.patchset_names(),
        Kind.PIN: list(load_pins(project)),
    }
    kinds = [kind for kind, names in known.items() if name in names]
    if len(kinds) > 1:
        raise UsageError(
            f"{shown(name)} is the name of a {' and of a '.join(kind.value for kind in kinds)}",
            fix=f"say which with --kind {kinds[0].value}",
        )
    if not kinds:
        every = [other for names in known.values() for other in names]
        raise BadInputError(
            f"there is no pin, patchset or stack {shown(name)}{suggestion(name, every)}",
            fix="see `dsv4port list` for what there is",
        )
    return kinds[0]
