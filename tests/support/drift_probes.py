"""Small series made from a description of edits, and what drift says about them.

A probe is a mapping: ``from`` and ``to`` name pins, ``files`` has new files by path, ``edits`` is
a list of changes of files of the older tree: ``path`` with either ``after`` (a line that stands
there once) and ``add``, or ``old`` and ``new`` text. ``delete`` lists files to delete.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from dsv4port.apply.engine import SeriesItem
from dsv4port.patch.mailbox import parse_patch

Read = Callable[[str], bytes]


def probe_patch(probe: Mapping[str, Any], read: Read) -> bytes:
    """The diff that a probe describes; `read` gives files of the older tree."""
    parts = [_diff(None, path, b"", text.encode()) for path, text in probe.get("files", {}).items()]
    edited: dict[str, tuple[bytes, bytes]] = {}
    for edit in probe.get("edits", []):
        path = edit["path"]
        before, now = edited.get(path, (read(path), read(path)))
        edited[path] = before, _edit(now, edit)
    parts += [_diff(path, path, before, after) for path, (before, after) in edited.items()]
    parts += [_diff(path, None, read(path), b"") for path in probe.get("delete", [])]
    return b"".join(parts)


def probe_items(probe: Mapping[str, Any], read: Read) -> list[SeriesItem]:
    """The series that a probe describes: one patch."""
    return [SeriesItem("probe.patch", parse_patch(probe_patch(probe, read), "probe.patch"))]


def _edit(content: bytes, edit: Mapping[str, Any]) -> bytes:
    if "after" in edit:
        lines = content.decode().splitlines(keepends=True)
        wanted = edit["after"].strip("\n")
        places = [number for number, line in enumerate(lines) if line.rstrip("\n") == wanted]
        assert len(places) == 1 or "nth" in edit, (edit["path"], wanted, len(places))
        at = places[edit.get("nth", 1) - 1] + 1
        return "".join([*lines[:at], *edit["add"].splitlines(keepends=True), *lines[at:]]).encode()
    old, new = edit["old"].encode(), edit["new"].encode()
    assert content.count(old) == 1, (edit["path"], edit["old"], content.count(old))
    return content.replace(old, new)


def _diff(old: str | None, new: str | None, before: bytes, after: bytes) -> bytes:
    path = new or old
    head = [f"diff --git a/{path} b/{path}\n"]
    if old is None:
        head.append("new file mode 100644\n")
    if new is None:
        head.append("deleted file mode 100644\n")
    body = difflib.unified_diff(
        before.decode().splitlines(keepends=True),
        after.decode().splitlines(keepends=True),
        f"a/{old}" if old else "/dev/null",
        f"b/{new}" if new else "/dev/null",
    )
    lines = [*head]
    for line in body:
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines).encode()
