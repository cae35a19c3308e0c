"""Where two locks of a stack differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from dsv4port.apply.locking import LockDifference
from dsv4port.manifest.lock import Lock, LockedFile
from dsv4port.patch.quote import display_path

Row = TypeVar("Row")

_ABSENT = "nothing"


def lock_differences(old: Lock, new: Lock) -> list[LockDifference]:
    """Differences from `old` to `new`; the version of the tool that wrote them is none."""
    rows = list(_fields("lock", old, new, ("pin", "source")))
    rows += _fields("pin", old, new, ("base_tree", "base_commit"))
    before = {patch.key: patch for patch in old.patches}
    after = {patch.key: patch for patch in new.patches}
    for key, one, other in _pairs(before, after):
        if one is None or other is None:
            rows.append(_presence(key, "patch", one))
        else:
            rows += _fields(key, one, other, ("sha256", "patch_id", "commit", "tree"))
    order = [key for key in before if key in after]
    found = [key for key in after if key in before]
    if order != found:
        rows.append(LockDifference("patches", "order", ", ".join(order), ", ".join(found)))
    rows += _files(old.files, new.files)
    rows += _fields("result", old, new, ("tree", "commit"))
    return rows


def _files(old: Iterable[LockedFile], new: Iterable[LockedFile]) -> Iterator[LockDifference]:
    before = {file.path: file for file in old}
    after = {file.path: file for file in new}
    names = ("mode_before", "before", "mode", "after", "sha256", "patches")
    for path, one, other in _pairs(before, after):
        subject = display_path(path)
        if one is None or other is None:
            yield _presence(subject, "file", one)
        else:
            yield from _fields(subject, one, other, names)


Key = TypeVar("Key")


def _pairs(
    before: Mapping[Key, Row], after: Mapping[Key, Row]
) -> Iterator[tuple[Key, Row | None, Row | None]]:
    for key in {**before, **after}:
        yield key, before.get(key), after.get(key)


def _presence(subject: str, what: str, old: object | None) -> LockDifference:
    there = "there"
    return LockDifference(
        subject, what, _ABSENT if old is None else there, there if old is None else _ABSENT
    )


def _fields(
    subject: str, old: object, new: object, names: Iterable[str]
) -> Iterator[LockDifference]:
    for name in names:
        one, other = getattr(old, name), getattr(new, name)
        if one != other:
            yield LockDifference(subject, name, _text(one), _text(other))


def _text(value: object) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, int):
        return f"{value:06o}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(getattr(value, "value", value))
