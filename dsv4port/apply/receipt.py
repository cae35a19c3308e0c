"""The receipt: what the last publish did to a checkout. Written by publish, read by all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.manifest.files import write_atomically
from dsv4port.quick_dataclass import dataclass, field_names

RECEIPT_FORMAT = 1
_NAME = "receipt.json"


_ID = re.compile(r"[0-9a-f]{40}")


def _check_id(text: object) -> None:
    if not isinstance(text, str) or _ID.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no object id")


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """One patch as it was applied. ``sha256`` is of the patch file."""

    patchset: str
    file: str
    sha256: str
    outcome: str
    commit: str
    tree: str

    def __post_init__(self) -> None:
        for text in (self.patchset, self.file, self.sha256, self.outcome):
            if not isinstance(text, str):
                raise TypeError("a value is no text")
        for identifier in (self.commit, self.tree):
            _check_id(identifier)

    @property
    def key(self) -> str:
        """``<patchset>/<file>``."""
        return f"{self.patchset}/{self.file}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a checkout was made to hold.

    ``stack`` is None for a bare pin. ``inputs`` are the project's files that decided the result,
    as (path relative to the project, sha256): while they are unchanged, so is the result.
    ``locked`` says whether the result was compared with a lock. ``time`` is in UTC, ISO 8601.
    """

    tool: str
    time: str
    pin: str
    source: str
    pin_commit: str
    stack: str | None
    commit: str
    tree: str
    locked: bool
    patches: tuple[AppliedPatch, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        texts = [self.tool, self.time, self.pin, self.source]
        texts += [word for row in self.inputs for word in row]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("a value is no text")
        if not isinstance(self.stack, str | None) or not isinstance(self.locked, bool):
            raise TypeError("a value is of another type")
        for identifier in (self.pin_commit, self.commit, self.tree):
            _check_id(identifier)

    def to_json(self) -> dict[str, Any]:
        """The receipt as JSON values."""
        values: dict[str, Any] = {name: getattr(self, name) for name in field_names(Receipt)}
        patches = [
            {name: getattr(patch, name) for name in field_names(AppliedPatch)}
            for patch in self.patches
        ]
        return {"format": RECEIPT_FORMAT, **values, "patches": patches}


def receipt_from_json(data: object, label: str) -> Receipt:
    """The receipt that `to_json` gave.

    Raises:
        BadInputError: it is of another format, or not a receipt.
    """
    values = dict(data) if isinstance(data, dict) else {}
    if values.pop("format", None) != RECEIPT_FORMAT:
        raise BadInputError(
            f"{label}: receipt of an unknown format",
            fix="run `dsv4port apply STACK` (or `reset`) to write it anew",
        )
    try:
        values["patches"] = tuple(AppliedPatch(**row) for row in values["patches"])
        values["inputs"] = tuple((path, digest) for path, digest in values["inputs"])
        return Receipt(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"{label}: not a receipt: {error}",
            fix="run `dsv4port apply STACK` (or `reset`) to write it anew",
        ) from error


def read_receipt(state: Path) -> Receipt | None:
    """The receipt of a checkout's state folder, None when nothing was published yet."""
    file = state / _NAME
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadInputError(
            f"{file}: not a receipt: {error}",
            fix="run `dsv4port apply STACK` (or `reset`) to write it anew",
        ) from error
    return receipt_from_json(data, str(file))


def readable_receipt(state: Path) -> Receipt | None:
    """The receipt, or None also when it cannot be read: for whoever is about to replace it."""
    try:
        return read_receipt(state)
    except BadInputError:
        return None


def write_receipt(state: Path, receipt: Receipt) -> None:
    """Replace the receipt, atomically."""
    text = json.dumps(receipt.to_json(), indent=1) + "\n"
    write_atomically(state / _NAME, text.encode())
