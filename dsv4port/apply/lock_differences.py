"""Where two locks of one stack differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

from dsv4port.manifest.lock import Lock, LockedFile, LockedPatch, SourceKind


class LockPart(Enum):
    """Which part of a lock a difference is in."""

    LOCK = "lock"
    """What the lock is for: pin and source."""
    PIN = "pin"
    """What the pin is."""
    PATCH = "patch"
    """One patch; the name is its key."""
    ORDER = "order"
    """The order of the patches that both have."""
    FILE = "file"
    """One touched file; the name is its path."""
    RESULT = "result"
    """What the whole stack comes out as."""


class Presence(Enum):
    """Whether a lock has a patch or a file at all."""

    THERE = "there"
    """It has it."""
    ABSENT = "nothing"
    """It has none of that name."""


Value: TypeAlias = str | int | tuple[str, ...] | SourceKind | Presence | None
"""A value of a lock: an id or name, a mode, names in order, a source, or nothing."""


@dataclass(frozen=True, slots=True)
class LockChange:
    """One value that differs.

    Parameters:
        name: the key of the patch (text) or the path of the file (bytes); None for other parts.
        field: which value of it, as the lock's format calls it; None: whether it is there.
    """

    part: LockPart
    name: str | bytes | None
    field: str | None
    old: Value
    new: Value


_PATCH_FIELDS = ("sha256", "patch_id", "commit", "tree")
_FILE_FIELDS = ("mode_before", "before", "mode", "after", "sha256", "patches")

Row = TypeVar("Row", LockedPatch, LockedFile)
Key = TypeVar("Key", str, bytes)


def lock_differences(old: Lock, new: Lock) -> list[LockChange]:
    """Differences from `old` to `new`; the version of the tool that wrote them is none."""
    rows = list(_fields(LockPart.LOCK, None, old, new, ("pin", "source")))
    rows += _fields(LockPart.PIN, None, old, new, ("base_tree", "base_commit"))
    before = {patch.key: patch for patch in old.patches}
    after = {patch.key: patch for patch in new.patches}
    rows += _members(LockPart.PATCH, before, after, _PATCH_FIELDS)
    order = tuple(key for key in before if key in after)
    found = tuple(key for key in after if key in before)
    if order != found:
        rows.append(LockChange(LockPart.ORDER, None, None, order, found))
    rows += _members(
        LockPart.FILE,
        {file.path: file for file in old.files},
        {file.path: file for file in new.files},
        _FILE_FIELDS,
    )
    rows += _fields(LockPart.RESULT, None, old, new, ("tree", "commit"))
    return rows


def _members(
    part: LockPart, before: Mapping[Key, Row], after: Mapping[Key, Row], fields: Iterable[str]
) -> Iterator[LockChange]:
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        if one is None or other is None:
            yield LockChange(part, key, None, _presence(one), _presence(other))
        else:
            yield from _fields(part, key, one, other, fields)


def _presence(member: object | None) -> Presence:
    return Presence.ABSENT if member is None else Presence.THERE


def _fields(
    part: LockPart, name: str | bytes | None, old: object, new: object, fields: Iterable[str]
) -> Iterator[LockChange]:
    for field in fields:
        one, other = getattr(old, field), getattr(new, field)
        if one != other:
            yield LockChange(part, name, field, one, other)
