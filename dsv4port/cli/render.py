"""What the terminal sees: plain text on standard output, the rest on standard error.

Everything passes one gate here, so that no file name, subject or message of another program can
move the cursor, change colours or forge a line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from dsv4port.cli.exit_codes import Failure
from dsv4port.patch.quote import display_path, display_text
from dsv4port.quick_dataclass import dataclass, field

JSON_FORMAT = 1
"""Version of the objects that ``--json`` prints."""

_RED, _YELLOW = "31", "33"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command has to say.

    Parameters:
        fields: the command's own part of the JSON object.
        lines: the same for people.
        exit_code: 0, or 1 where the answer is no.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    exit_code: int = 0


def print_reply(reply: Reply) -> None:
    """Print a reply for people on standard output."""
    for line in reply.lines:
        print(safe_line(line))


def print_failure(failure: Failure) -> None:
    """Print an error: what happened, the details indented, what to do next."""
    _print_error(_painted("error:", _RED, sys.stderr), failure.what)
    for detail in failure.details:
        for line in detail.split("\n"):
            _print_error("  ", line, join="")
    if failure.fix is not None:
        _print_error("→", failure.fix)


def print_notice(text: str) -> None:
    """Print something worth knowing that is no error."""
    _print_error(_painted("note:", _YELLOW, sys.stderr), text)


def print_json(
    command: str | None,
    *,
    exit_code: int,
    notices: Sequence[str],
    fields: Mapping[str, Any],
    failure: Failure | None = None,
) -> None:
    """Print the one JSON object of a command."""
    answer: dict[str, Any] = {
        "command": command,
        "format": JSON_FORMAT,
        "ok": exit_code == 0,
        "exit_code": exit_code,
        "notices": list(notices),
    }
    if failure is not None:
        answer["error"] = {
            "kind": failure.kind,
            "what": failure.what,
            "fix": failure.fix,
            "details": list(failure.details),
        }
    answer.update((key, value) for key, value in fields.items() if key not in answer)
    print(json.dumps(_safe_value(answer)))


def safe_text(text: str) -> str:
    """`text` without anything a terminal would obey; line feeds and tabs stay."""
    return display_text(text.encode("utf-8", "surrogateescape"))


def safe_line(text: str) -> str:
    """Like `safe_text`, and certainly one line."""
    return safe_text(text).replace("\n", "\\n")


def shown_path(path: Path) -> str:
    """A path for people: relative where it lies below the current folder."""
    with suppress(ValueError, OSError):
        path = path.relative_to(Path.cwd())
    return full_path(path)


def full_path(path: Path) -> str:
    """A path for JSON, as it is; odd names in C-quotes, from which they can be had back."""
    return display_path(os.fsencode(path))


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 patch`` or ``3 patches``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def size(amount: int) -> str:
    """A number of bytes for people."""
    value = float(amount)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def columns(rows: Iterable[Sequence[str]], *, indent: int = 0) -> list[str]:
    """Rows as lines with aligned columns."""
    table = [[safe_line(cell) for cell in row] for row in rows]
    if not table:
        return []
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        " " * indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def paragraph(text: str, *, indent: int = 0, first: str | None = None) -> list[str]:
    """Text of a manifest, wrapped to the width of the terminal (at most 100 columns)."""
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size().columns, 100)
    margin = " " * indent
    lead = margin if first is None else first
    return textwrap.wrap(
        " ".join(safe_text(text).split()), width=max(width, indent + 20), initial_indent=lead,
        subsequent_indent=margin, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def plain(stream: TextIO) -> bool:
    """Whether `stream` gets neither colours nor bars."""
    return (
        not stream.isatty()
        or bool(os.environ.get("NO_COLOR"))
        or os.environ.get("TERM", "dumb") == "dumb"
    )


def _painted(text: str, colour: str, stream: TextIO) -> str:
    return text if plain(stream) else f"\x1b[1;{colour}m{text}\x1b[0m"


def _print_error(head: str, text: str, *, join: str = " ") -> None:
    print(f"{head}{join}{safe_line(text)}", file=sys.stderr, flush=True)


def _safe_value(value: Any) -> Any:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, Mapping):
        return {key: _safe_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe_value(item) for item in value]
    return value
