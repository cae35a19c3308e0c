"""One patch file, as ``dsv4port show`` presents it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.render import Reply, columns, full_path
from dsv4port.errors import BadInputError, UsageError
from dsv4port.patch.quote import display_path, display_text

if TYPE_CHECKING:
    from dsv4port.manifest.patchset import Patchset
    from dsv4port.manifest.project import Project
    from dsv4port.patch.model import FilePatch, Identity, Patch


def show_patch(project: Project, name: str) -> Reply:
    """A patch: author, date, subject, message, files and ids.

    Parameters:
        name: ``PATCHSET/PATCH``, or ``PATCHSET/PIN/PATCH`` where several pins have the patch.
    """
    from dsv4port.apply.inputs import read_patch_bytes
    from dsv4port.manifest.patchset import load_patchset
    from dsv4port.manifest.pins import load_pins
    from dsv4port.patch.mailbox import parse_patch
    from dsv4port.patch.patch_id import patch_id

    parts = name.split("/")
    if len(parts) not in (2, 3):
        raise UsageError(
            "a patch is named PATCHSET/PATCH or PATCHSET/PIN/PATCH",
            fix="see `dsv4port show PATCHSET` for its patches",
        )
    patchset = load_patchset(project, parts[0], load_pins(project))
    pin, path = _find(project, patchset, parts[1:])
    data = read_patch_bytes(path)
    patch = parse_patch(data, project.label(path))
    row = {
        "patchset": patchset.name,
        "pin": pin,
        "file": path.name,
        "path": full_path(path),
        "author": None if patch.author is None else _author(patch.author),
        "date": None if patch.author is None else _date(patch.author),
        "subject": _subject(patch),
        "message": None if patch.message is None else display_text(patch.message),
        "sha256": hashlib.sha256(data).hexdigest(),
        "patch_id": patch_id(patch.files),
        "files": [_file_row(found) for found in patch.files],
    }
    return Reply({"kind": "patch", "patch": row}, list(_lines(row)))


def _find(project: Project, patchset: Patchset, parts: list[str]) -> tuple[str, Path]:
    """The pin and path of the one patch file that is meant."""
    from dsv4port.manifest.series import load_series
    from dsv4port.manifest.values import shown, suggestion

    *pins, wanted = parts
    chosen = [pin for pin in patchset.series if not pins or pin == pins[0]]
    if not chosen:
        raise BadInputError(
            f"patchset {patchset.name} has no series for {shown(pins[0])}",
            fix=f"it has {', '.join(patchset.series)}",
        )
    series = [load_series(project, patchset, pin) for pin in chosen]
    names = (wanted, f"{wanted}.patch")
    found = [
        (member.pin, path)
        for member in series
        for path in member.paths
        if path.name in names
    ]  # fmt: skip
    if len(found) > 1:
        raise UsageError(
            f"{shown(wanted)} is there for {' and '.join(pin for pin, _ in found)}",
            fix=f"name it as {patchset.name}/{found[0][0]}/{found[0][1].name}",
        )
    if not found:
        every = [entry for member in series for entry in member.entries]
        raise BadInputError(
            f"patchset {patchset.name} has no patch {shown(wanted)}{suggestion(wanted, every)}",
            fix=f"see `dsv4port show {patchset.name}` for what there is",
        )
    return found[0]


def _lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"patch {row['patchset']}/{row['file']} for {row['pin']}"
    known = ("author", "date", "subject", "sha256", "patch_id")
    yield from columns(((key, row[key]) for key in known if row[key] is not None), indent=2)
    body = (row["message"] or "").split("\n", 1)[1:]
    if body and body[0].strip():
        yield ""
        yield from (f"    {line}".rstrip() for line in body[0].strip("\n").split("\n"))
    yield ""
    yield from columns((_file_cells(found) for found in row["files"]), indent=2)


def _file_cells(found: dict[str, Any]) -> tuple[str, ...]:
    path = found["path"]
    if found["old_path"] is not None and found["old_path"] != path:
        path = f"{found['old_path']} → {path}"
    amount = "binary" if found["binary"] else f"+{found['added']} -{found['removed']}"
    modes = ""
    if found["old_mode"] and found["new_mode"] and found["old_mode"] != found["new_mode"]:
        modes = f"mode {found['old_mode']} → {found['new_mode']}"
    return found["change"], amount, path, modes


def _file_row(found: FilePatch) -> dict[str, Any]:
    return {
        "path": display_path(found.path),
        "old_path": None if found.old_path is None else display_path(found.old_path),
        "change": found.change.value,
        "old_mode": _mode(found.old_mode),
        "new_mode": _mode(found.new_mode),
        "hunks": len(found.hunks),
        "added": sum(hunk.kinds.count(b"+") for hunk in found.hunks),
        "removed": sum(hunk.kinds.count(b"-") for hunk in found.hunks),
        "binary": found.binary is not None,
    }


def _mode(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:06o}"


def _author(author: Identity) -> str:
    return display_text(b"%s <%s>" % (author.name, author.email)).replace("\n", "\\n")


def _date(author: Identity) -> str:
    """The date in its own zone, ISO 8601."""
    zone = author.zone.decode("ascii", "replace")
    minutes = int(zone[1:3]) * 60 + int(zone[3:5])
    offset = timezone(timedelta(minutes=-minutes if zone.startswith("-") else minutes))
    try:
        return datetime.fromtimestamp(author.timestamp, offset).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{author.timestamp} {zone}"


def _subject(patch: Patch) -> str | None:
    if patch.message is None:
        return None
    return display_text(patch.message.split(b"\n", 1)[0])
