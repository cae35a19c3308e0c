"""Tables and cells in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Text that stays inside of its cell and is not read as markup of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table; nothing where there are no rows."""
    body = [f"| {' | '.join(cell(one) for one in row)} |" for row in rows]
    if not body:
        return []
    return [f"| {' | '.join(map(cell, head))} |", f"|{'---|' * len(head)}", *body, ""]


def code(text: str) -> list[str]:
    """A block of code."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, *text.rstrip("\n").split("\n"), fence, ""]
