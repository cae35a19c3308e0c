"""Series files: byte for byte, in order, complete, and inside their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.errors import BadInputError, ManifestError
from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.project import Project
from dsv4port.manifest.series import Series, load_series, new_series, write_series
from dsv4port.manifest.values import Name

file_names = st.from_regex(r"[0-9]{4}-[a-z]{1,8}\.patch", fullmatch=True)
remarks = st.lists(st.sampled_from(["", "# why", "  # indented", "   ", "#"]), max_size=3)


@st.composite
def series(draw: st.DrawFn) -> Series:
    lines: list[str] = []
    for entry in draw(st.lists(file_names, min_size=1, max_size=6, unique=True)):
        lines += [*draw(remarks), entry + draw(st.sampled_from(["", " "]))]
    lines += draw(st.sampled_from([[], [""], ["# end", ""], ["", ""]]))
    return Series(Name("arena"), Name("v0.26.0"), Path("/nowhere"), tuple(lines))


def load(project: Project) -> Series:
    return load_series(project, load_patchset(project, "arena"), "v0.26.0")


def arena(project: Project) -> Path:
    return project.patchset_folder("arena") / "v0.26.0"


def test_a_series_knows_its_patches(project: Project) -> None:
    found = load(project)
    assert found.entries == ("0001-plan.patch", "0002-arena.patch")
    assert found.paths == tuple(arena(project) / entry for entry in found.entries)
    assert found.encode() == (arena(project) / "series").read_bytes()


def test_one_folder_can_serve_two_pins(project: Project) -> None:
    wiring = load_patchset(project, "wiring")
    assert load_series(project, wiring, "v0.28.0").paths == (
        load_series(project, wiring, "v0.26.0").paths
    )


def test_a_pin_without_a_series(project: Project) -> None:
    with pytest.raises(BadInputError, match=r'arena has no series for "v0.27.0"'):
        load_series(project, load_patchset(project, "arena"), "v0.27.0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r":1: names no patch"),
        (b"# nothing yet\n\n", r":1: names no patch"),
        (b"0001-plan.patch\n0003-x.patch\n", r':2: "0003-x.patch" does not exist'),
        (
            b"0001-plan.patch\n\n0001-plan.patch\n",
            r':3: names "0001-plan.patch" again, after line 1',
        ),
        (b"0001-plan.patch\n", r':1: "0002-arena.patch" lies in the folder but is not named'),
        (
            b"../v0.26.0/0001-plan.patch\n",
            r":1: \"../v0.26.0/0001-plan.patch\" is no name of a file in this folder",
        ),
        (b"/etc/x.patch\n", r":1: \"/etc/x.patch\" is no name of a file in this folder"),
        (b"..\\x.patch\n", r":1: .* is no name of a file in this folder"),
        (b"series\n", r":1: names \"series\"; a patch file"),
        (b"0001-plan.patch -p1\n", r":1: has \"-p1\" after the file name"),
        (b"0001-plan.patch # why\n", r":1: has \"# why\" after the file name"),
        (b"0001-plan.patch\r\n0002-arena.patch\r\n", r":1: has a carriage return"),
        (b"0001-plan.patch\n# caf\xe9\n", r":2: is not UTF-8"),
    ],
)
def test_malformed_series(content: bytes, message: str, project: Project) -> None:
    (arena(project) / "series").write_bytes(content)
    with pytest.raises(ManifestError, match=r"\Apatchsets/arena/v0.26.0/series" + message):
        load(project)


def test_a_missing_series_file(project: Project) -> None:
    (arena(project) / "series").unlink()
    with pytest.raises(ManifestError, match=r"\Apatchsets/arena/v0.26.0/series:1: cannot be read"):
        load(project)


def test_a_link_is_no_patch_file(project: Project, tmp_path: Path) -> None:
    outside = tmp_path / "outside.patch"
    outside.touch()
    (arena(project) / "0001-plan.patch").unlink()
    (arena(project) / "0001-plan.patch").symlink_to(outside)
    with pytest.raises(ManifestError, match=r'series:3: "0001-plan.patch" is not a regular file'):
        load(project)


def test_a_folder_is_no_patch_file(project: Project) -> None:
    (arena(project) / "0001-plan.patch").unlink()
    (arena(project) / "0001-plan.patch").mkdir()
    with pytest.raises(ManifestError, match="is not a regular file"):
        load(project)


@given(series())
def test_an_unchanged_series_is_written_byte_for_byte(found: Series) -> None:
    again = found.with_entries(found.entries)
    assert again.encode() == found.encode() == "\n".join(found.lines).encode()


@given(series(), st.data())
def test_comments_outlive_any_change_of_entries(found: Series, data: st.DataObject) -> None:
    pool = st.one_of(st.sampled_from(found.entries), file_names)
    entries = data.draw(st.lists(pool, min_size=1, max_size=6, unique=True))
    changed = found.with_entries(entries)
    assert list(changed.entries) == entries

    def comments(lines: tuple[str, ...]) -> list[str]:
        return sorted(line for line in lines if line.strip().startswith("#"))

    assert comments(changed.lines) == comments(found.lines)


def test_comments_stay_with_their_entries(project: Project) -> None:
    changed = load(project).with_entries(["0002-arena.patch", "0003-new.patch", "0001-plan.patch"])
    assert changed.encode() == (
        b"# the arena\n\n# needs the plan\n0002-arena.patch\n0003-new.patch\n0001-plan.patch\n"
    )


def test_writing_and_reading_again(project: Project) -> None:
    changed = load(project).with_entries(["0001-plan.patch", "0003-new.patch", "0002-arena.patch"])
    (arena(project) / "0003-new.patch").touch()
    write_series(changed)
    assert load(project) == changed


def test_a_new_series() -> None:
    made = new_series(Name("arena"), Name("v0.26.0"), Path("/nowhere"), ["a.patch", "b.diff"])
    assert made.encode() == b"a.patch\nb.diff\n"
    for entries in ([], ["a.patch", "a.patch"], ["../a.patch"], ["a\n.patch"], [" "]):
        with pytest.raises(BadInputError):
            new_series(Name("arena"), Name("v0.26.0"), Path("/nowhere"), entries)
