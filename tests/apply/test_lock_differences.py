"""Two locks are compared value by value; every difference names its part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.synthetic import SyntheticProject

from dsv4port.apply.lock_differences import LockChange, LockPart, Presence, lock_differences
from dsv4port.cli.lock_differences import difference_rows
from dsv4port.manifest.lock import Lock, SourceKind, load_lock
from dsv4port.manifest.project import Project

OTHER = "1" * 40


@pytest.fixture(scope="module")
def lock(locked_template: SyntheticProject) -> Lock:
    return load_lock(Project(locked_template.root), "demo")


def first_patch(lock: Lock, **changes: Any) -> Lock:
    return replace(lock, patches=(replace(lock.patches[0], **changes), *lock.patches[1:]))


def first_file(lock: Lock, **changes: Any) -> Lock:
    return replace(lock, files=(replace(lock.files[0], **changes), *lock.files[1:]))


def test_equal_locks_and_another_tool(lock: Lock) -> None:
    assert lock_differences(lock, lock) == []
    assert lock_differences(lock, replace(lock, tool="9.9")) == []


@pytest.mark.parametrize(
    ("change", "part", "field"),
    [
        (lambda lock: replace(lock, source=SourceKind.GIT), LockPart.LOCK, "source"),
        (lambda lock: replace(lock, pin="v9"), LockPart.LOCK, "pin"),
        (lambda lock: replace(lock, base_tree=OTHER), LockPart.PIN, "base_tree"),
        (lambda lock: replace(lock, base_commit=OTHER), LockPart.PIN, "base_commit"),
        (lambda lock: first_patch(lock, sha256="1" * 64), LockPart.PATCH, "sha256"),
        (lambda lock: first_patch(lock, patch_id=None), LockPart.PATCH, "patch_id"),
        (lambda lock: first_patch(lock, commit=OTHER), LockPart.PATCH, "commit"),
        (lambda lock: first_patch(lock, tree=OTHER), LockPart.PATCH, "tree"),
        (lambda lock: first_file(lock, after=OTHER), LockPart.FILE, "after"),
        (lambda lock: first_file(lock, mode=0o100755), LockPart.FILE, "mode"),
        (lambda lock: first_file(lock, sha256="1" * 64), LockPart.FILE, "sha256"),
    ],
)
def test_one_value_is_one_row(
    change: Callable[[Lock], Lock], part: LockPart, field: str, lock: Lock
) -> None:
    changed = change(lock)
    [row] = lock_differences(lock, changed)
    assert (row.part, row.field) == (part, field)
    assert row.old != row.new
    [back] = lock_differences(changed, lock)
    assert (back.old, back.new) == (row.new, row.old)
    name = {LockPart.PATCH: lock.patches[0].key, LockPart.FILE: lock.files[0].path}
    assert row.name == name.get(part)


def test_the_result(lock: Lock) -> None:
    last = replace(lock.patches[-1], commit=OTHER)
    changed = replace(lock, commit=OTHER, patches=(*lock.patches[:-1], last))
    rows = lock_differences(lock, changed)
    assert [(row.part, row.field) for row in rows] == [
        (LockPart.PATCH, "commit"), (LockPart.RESULT, "commit"),
    ]  # fmt: skip


def test_members_that_only_one_has_and_their_order(lock: Lock) -> None:
    *others, last = lock.patches
    alone = tuple(file for file in lock.files if file.patches == (last.key,))
    kept = tuple(file for file in lock.files if file not in alone)
    assert alone, "the last patch touches a file that no other one does"
    shorter = replace(
        lock, patches=tuple(others), files=kept, tree=others[-1].tree, commit=others[-1].commit
    )
    there, absent = Presence.THERE, Presence.ABSENT
    rows = lock_differences(lock, shorter)
    assert rows[:2] == [
        LockChange(LockPart.PATCH, last.key, None, there, absent),
        LockChange(LockPart.FILE, alone[0].path, None, there, absent),
    ]
    assert lock_differences(shorter, lock)[0] == LockChange(
        LockPart.PATCH, last.key, None, absent, there
    )
    swapped = replace(lock, patches=(lock.patches[1], lock.patches[0], *lock.patches[2:]))
    [row] = lock_differences(lock, swapped)
    assert (row.part, row.new) == (LockPart.ORDER, tuple(patch.key for patch in swapped.patches))


def test_rows_are_text(lock: Lock) -> None:
    changed = first_file(replace(lock, source=SourceKind.GIT), mode=0o100755)
    assert list(difference_rows(lock_differences(lock, changed))) == [
        {"subject": "lock", "what": "source", "expected": "sdist", "found": "git"},
        {
            "subject": lock.files[0].path.decode(), "what": "mode",
            "expected": "100644", "found": "100755",
        },
    ]  # fmt: skip
