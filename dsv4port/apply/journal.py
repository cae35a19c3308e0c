"""The journal: what a publish is about to do, so that whoever comes next can finish it."""

from __future__ import annotations

import json
from pathlib import Path

from dsv4port.apply.receipt import Receipt, receipt_from_json
from dsv4port.errors import BadInputError, RefusedError
from dsv4port.git.checkout import Checkout
from dsv4port.manifest.files import write_atomically
from dsv4port.quick_dataclass import dataclass

_NAME = "journal.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Journal:
    """What an unfinished publish was going to do; ``discarded`` paths are saved already."""

    old: str
    receipt: Receipt
    discarded: tuple[bytes, ...]
    saved: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.old, str) or not isinstance(self.saved, str | None):
            raise TypeError("a value is no text")

    def write(self, checkout: Checkout) -> None:
        """Write it; from here on the publish will be finished."""
        data = {
            "format": _FORMAT,
            "old": self.old,
            "receipt": self.receipt.to_json(),
            "discarded": [path.hex() for path in self.discarded],
            "saved": self.saved,
        }
        write_atomically(checkout.state / _NAME, json.dumps(data).encode())

    @classmethod
    def read(cls, checkout: Checkout) -> Journal | None:
        """The journal of a checkout; None when nothing was interrupted."""
        file = checkout.state / _NAME
        try:
            data = json.loads(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _unreadable(file, error) from error
        if not isinstance(data, dict):
            raise _unreadable(file, "not an object")
        if data.get("format") != _FORMAT:
            raise RefusedError(
                f"{file} was written by another version of dsv4port",
                fix="finish with the version that was interrupted",
            )
        try:
            return cls(
                data["old"],
                receipt_from_json(data["receipt"], str(file)),
                tuple(bytes.fromhex(path) for path in data["discarded"]),
                data["saved"],
            )
        except (KeyError, TypeError, ValueError, BadInputError) as error:
            raise _unreadable(file, error) from error


def _unreadable(file: Path, why: object) -> BadInputError:
    return BadInputError(
        f"{file} is no journal: {why}",
        fix="move it away, look at the checkout with `dsv4port status`, then run `dsv4port apply "
        "STACK --force`: it saves what is there first",
    )


def interrupted(checkout: Checkout) -> bool:
    """Whether a publish was begun and not finished."""
    return (checkout.state / _NAME).exists()


def remove_journal(checkout: Checkout) -> None:
    """The publish is done."""
    (checkout.state / _NAME).unlink()
