"""Which patch wrote which line, through several patches, renames and deletions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.synthetic import Change, make_patches, make_repository

from dsv4port.apply.engine import SeriesItem
from dsv4port.drift.applied import AppliedSeries, apply_to_pin
from dsv4port.git.reader import ObjectReader
from dsv4port.git.repository import open_repository
from dsv4port.patch.mailbox import parse_patch

BASE = {
    "a.py": b"".join(b"line_%d = %d\n" % (number, number) for number in range(60)),
    "gone.py": b"x = 1\ny = 2\n",
    "old/name.py": b"".join(b"name_%d = 0\n" % number for number in range(30)),
}


def edited(content: bytes, seed: int) -> bytes:
    """`content` with a few lines replaced, inserted and removed."""
    chance = random.Random(seed)
    lines = content.splitlines(keepends=True)
    for step in range(4):
        at = chance.randrange(len(lines) + 1)
        new = b"new_%d_%d = 1\n" % (seed, step)
        lines[at : at + chance.choice((0, 0, 1, 2))] = [new] * chance.choice((0, 1, 2))
    return b"".join(lines)


def applied(base: dict[str, bytes], patches: dict[str, bytes], folder: Path) -> AppliedSeries:
    commit = make_repository(folder, base)
    items = [SeriesItem(name, parse_patch(data, name)) for name, data in patches.items()]
    with ObjectReader(open_repository(folder).git) as reader:
        return apply_to_pin(items, reader, commit)


def check(found: AppliedSeries, patches: dict[str, bytes], base: dict[str, bytes]) -> int:
    """Every line that is said to be a patch's own stands there in the patch; all others are old."""
    count = 0
    for path, one in found.files.items():
        if one.content is None:
            continue
        lines = one.content.splitlines()
        assert len(one.lines) == len(lines)
        changed = one.changed()
        for number, where in changed.items():
            text = patches[where.patch].splitlines()[where.patch_line - 1]
            assert text == b"+" + lines[number - 1], (path, number)
            count += 1
        old = set(base.get(path, b"").splitlines()) | set(base["old/name.py"].splitlines())
        kept = [line for number, line in enumerate(lines, 1) if number not in changed]
        assert all(line in old for line in kept)
        assert all(line not in old for number, line in enumerate(lines, 1) if number in changed)
    return count


@pytest.mark.parametrize("seed", range(12))
def test_lines_are_followed_through_patches(tmp_path: Path, seed: int) -> None:
    content, changes = BASE["a.py"], []
    for step in range(4):
        content = edited(content, 10 * seed + step)
        changes.append(Change(f"Step {step}", {"a.py": content}))
    patches = make_patches(BASE, changes)
    found = applied(BASE, patches, tmp_path / "repository")
    assert found.files["a.py"].content == content
    assert check(found, patches, BASE) > 0


def test_added_deleted_and_renamed(tmp_path: Path) -> None:
    moved = BASE["old/name.py"].replace(b"name_7 = 0\n", b"other_7 = 0\n")
    changes = [
        Change("Add", {"new.py": b"first = 1\nsecond = 2\n"}),
        Change("Delete", {"gone.py": None}),
        Change("Rename", {"old/name.py": None, "new/name.py": moved}),
        Change("Edit", {"new.py": b"first = 1\nbetween = 3\nsecond = 2"}),
        Change("Edit the renamed", {"new/name.py": moved + b"last = 1\n"}),
    ]
    patches = make_patches(BASE, changes)
    found = applied(BASE, patches, tmp_path / "repository")
    assert {path for path, one in found.files.items() if one.content is None} == {
        "gone.py", "old/name.py",
    }  # fmt: skip
    assert [one.patch[:4] if one else None for one in found.files["new.py"].lines] == [
        "0001", "0004", "0004",
    ]  # fmt: skip
    renamed = found.files["new/name.py"].changed()
    assert [line.text for line in renamed.values()] == ["other_7 = 0", "last = 1"]
    assert found.files["new.py"].added and not found.files["gone.py"].added
