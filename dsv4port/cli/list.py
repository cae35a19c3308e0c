"""``dsv4port list``: pins, patchsets and stacks of the project."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, safe_line

if TYPE_CHECKING:
    from dsv4port.manifest.pins import Pins
    from dsv4port.manifest.project import Project


class Section(str, Enum):
    """What to list."""

    PINS = "pins"
    """Upstream states."""
    PATCHSETS = "patchsets"
    """Topics."""
    STACKS = "stacks"
    """What is applied to what."""


def command(
    context: typer.Context,
    section: Annotated[
        Section | None, typer.Argument(metavar="[pins|patchsets|stacks]", help="Default: all.")
    ] = None,
) -> Reply:
    """List what the project has."""
    project = Run.of(context).project
    sections = list(Section) if section is None else [section]
    rows = {chosen.value: _ROWS[chosen](project) for chosen in sections}
    return Reply(rows, list(_lines(rows)))


def _lines(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    for number, (name, found) in enumerate(rows.items()):
        if number:
            yield ""
        yield f"{name}:" if found else f"{name}: none"
        yield from columns((_CELLS[name](row) for row in found), indent=2)


def _pin_rows(project: Project) -> list[dict[str, Any]]:
    from dsv4port.upstream.cache import Cache

    cache = Cache.locate()
    rows = []
    for name, pin in _pins(project).items():
        sources = [
            {"kind": kind, "tree": source.tree, "cached": cache.find(name, kind) is not None}
            for kind, source in (("sdist", pin.sdist), ("git", pin.git))
            if source is not None
        ]
        rows.append({"name": name, "sources": sources})
    return rows


def _patchset_rows(project: Project) -> list[dict[str, Any]]:
    from dsv4port.manifest.patchset import load_patchset

    pins = _pins(project)
    found = [load_patchset(project, name, pins) for name in project.patchset_names()]
    return [
        {"name": patchset.name, "title": patchset.title, "pins": list(patchset.series)}
        for patchset in found
    ]


def _stack_rows(project: Project) -> list[dict[str, Any]]:
    from dsv4port.manifest.stack import load_stack

    stacks = [load_stack(project, name) for name in project.stack_names()]
    return [
        {
            "name": stack.name,
            "title": stack.title,
            "pin": stack.pin,
            "target": stack.target,
            "patchsets": list(stack.patchsets),
            "locked": project.lock_file(stack.name).is_file(),
        }
        for stack in stacks
    ]


def _pins(project: Project) -> Pins:
    from dsv4port.manifest.pins import load_pins

    return load_pins(project)


_ROWS = {
    Section.PINS: _pin_rows,
    Section.PATCHSETS: _patchset_rows,
    Section.STACKS: _stack_rows,
}


def _pin_cells(row: dict[str, Any]) -> tuple[str, ...]:
    sources = [
        source["kind"] + (" (in the cache)" if source["cached"] else "")
        for source in row["sources"]
    ]
    return row["name"], ", ".join(sources)


def _patchset_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return row["name"], ", ".join(row["pins"]), safe_line(row["title"])


def _stack_cells(row: dict[str, Any]) -> tuple[str, ...]:
    lock = "locked" if row["locked"] else "no lock"
    return row["name"], row["pin"], lock, ", ".join(row["patchsets"]), safe_line(row["title"])


_CELLS = {"pins": _pin_cells, "patchsets": _patchset_cells, "stacks": _stack_cells}
