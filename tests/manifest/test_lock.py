"""Locks: canonical text, nothing lost, fast enough to be read by every command."""

from __future__ import annotations

from hashlib import sha1, sha256

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.errors import BadInputError, ManifestError
from dsv4port.manifest import lock_lines, yaml_gate
from dsv4port.manifest.lock import (
    Lock,
    LockedFile,
    LockedPatch,
    SourceKind,
    dump_lock,
    load_lock,
    parse_lock,
    write_lock,
)
from dsv4port.manifest.project import Project
from dsv4port.manifest.values import Name
from dsv4port.patch.paths import unsafe_reason

hex_digits = st.sampled_from(["0", "1", "9", "a", "e", "f"])


def hexes(length: int) -> st.SearchStrategy[str]:
    # Few different digits, so that ids that look like numbers do come up.
    return (
        st.text(hex_digits, min_size=length, max_size=length)
        | st.just("1" * length)
        | (st.just("1e" + "5" * (length - 2)))
    )


ids = hexes(40)
names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,6}", fullmatch=True).map(Name)
patches = st.builds(
    LockedPatch,
    patchset=names,
    file=st.from_regex(r"[0-9]{1,4}-[A-Za-z0-9_.+@-]{0,8}\.patch", fullmatch=True),
    sha256=hexes(64),
    patch_id=st.none() | ids,
    commit=ids,
    tree=ids,
)
paths = (
    st.binary(min_size=1, max_size=12) | st.text(min_size=1, max_size=12).map(str.encode)
).filter(lambda path: unsafe_reason(path) is None)
entries = st.none() | st.tuples(st.sampled_from([0o100644, 0o100755, 0o120000, 0o160000]), ids)


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    locked = draw(st.lists(patches, max_size=4, unique_by=lambda patch: patch.key))
    base = (draw(ids), draw(ids))
    files = []
    if locked:
        for path in sorted(draw(st.sets(paths, max_size=5))):
            mode_before, before = draw(entries) or (None, None)
            mode, after = draw(entries) or (None, None)
            has_content = after is not None and mode != 0o160000
            touching = draw(st.sets(st.integers(0, len(locked) - 1), min_size=1))
            files.append(
                LockedFile(
                    path,
                    mode_before,
                    before,
                    mode,
                    after,
                    draw(hexes(64)) if has_content else None,
                    tuple(locked[index].key for index in sorted(touching)),
                )
            )
    return Lock(
        tool=draw(st.sampled_from(["0.1.0", "1.0", "10", "0.1.0.dev1+g12"])),
        stack=draw(names),
        pin=draw(names),
        source=draw(st.sampled_from(SourceKind)),
        base_tree=base[0],
        base_commit=base[1],
        tree=locked[-1].tree if locked else base[0],
        commit=locked[-1].commit if locked else base[1],
        patches=tuple(locked),
        files=tuple(files),
    )


def digest(number: int) -> str:
    return sha1(b"%d" % number).hexdigest()


def big_lock(patch_count: int, file_count: int) -> Lock:
    locked = tuple(
        LockedPatch(
            Name("graph-staging"),
            f"{number:04}-a-name-of-usual-length.patch",
            sha256(b"%d" % number).hexdigest(),
            digest(number),
            digest(number + 1000),
            digest(number + 2000),
        )
        for number in range(1, patch_count + 1)
    )
    files = tuple(
        LockedFile(
            b"vllm/model_executor/layers/file_%04d.py" % number,
            0o100644,
            digest(number),
            0o100644,
            digest(-number),
            sha256(b"%d" % number).hexdigest(),
            (locked[number % patch_count].key,),
        )
        for number in range(file_count)
    )
    return Lock(
        "0.1.0", Name("big"), Name("v0.26.0"), SourceKind.SDIST, digest(1), digest(2),
        locked[-1].tree, locked[-1].commit, locked, files,
    )  # fmt: skip


@given(locks())
@settings(max_examples=150)
def test_reading_gives_back_what_was_written(lock: Lock) -> None:
    text = dump_lock(lock)
    assert parse_lock(text.encode(), "x.lock.yaml") == lock
    assert dump_lock(parse_lock(text.encode(), "x.lock.yaml")) == text


def read_as_yaml(text: str) -> Lock | None:
    """What the YAML reader makes of a text, whoever else could read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock_lines, "read_canonical_lock", lambda text: None)
        try:
            return parse_lock(text.encode(), "x.lock.yaml")
        except BadInputError:
            return None


@given(locks())
@settings(max_examples=100, deadline=None)
def test_what_was_written_needs_no_yaml(lock: Lock) -> None:
    text = dump_lock(lock)
    assert read_as_yaml(text) == lock
    odd = any("\\x" in line or "\\u" in line.lower() for line in text.splitlines())
    assert lock_lines.read_canonical_lock(text) == lock or odd


@given(lock=locks(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_an_edited_lock_is_read_as_yaml_reads_it(lock: Lock, data: st.DataObject) -> None:
    text = dump_lock(lock)
    at = data.draw(st.integers(0, len(text) - 1))
    length = data.draw(st.integers(0, 3))
    inserted = data.draw(st.sampled_from(["", "'", "null", "0", " ", "\n", "- ", "{", ", ", "#"]))
    edited = text[:at] + inserted + text[at + length :]
    quick = lock_lines.read_canonical_lock(edited)
    assert quick is None or quick == read_as_yaml(edited)


@given(locks())
@settings(max_examples=50)
def test_any_yaml_reader_sees_the_same_ids(lock: Lock) -> None:
    plain = yaml.safe_load(dump_lock(lock))
    assert plain["base"] == {"tree": lock.base_tree, "commit": lock.base_commit}
    assert [row["tree"] for row in plain["patches"]] == [patch.tree for patch in lock.patches]
    assert [row["sha256"] for row in plain["files"]] == [file.sha256 for file in lock.files]


def test_the_canonical_text(project: Project) -> None:
    text = project.lock_file("musa").read_text()
    lock = load_lock(project, "musa")
    assert dump_lock(lock) == text
    removed, added = lock.files
    assert removed.path == b"vllm/caf\xe9.py"
    assert (removed.mode_before, removed.mode, removed.after) == (0o100644, None, None)
    assert (added.mode_before, added.before, added.mode) == (None, None, 0o100755)
    assert added.patches == ("arena/0001-plan.patch", "arena/0002-arena.patch")


def test_one_row_a_line(project: Project) -> None:
    lines = dump_lock(big_lock(20, 30)).splitlines()
    assert sum(line.startswith("- {patchset: ") for line in lines) == 20
    assert sum(line.startswith("- {path: ") for line in lines) == 30


def test_a_lock_edited_by_hand_is_still_read(project: Project) -> None:
    lock = load_lock(project, "musa")
    plain = yaml.safe_load(dump_lock(lock))
    plain["files"].reverse()
    reordered = dict(reversed(plain.items()))
    file = project.lock_file("musa")
    file.write_text(yaml.safe_dump(reordered, sort_keys=False, default_flow_style=False))
    assert load_lock(project, "musa") == lock


def test_writing(project: Project) -> None:
    lock = big_lock(3, 4)
    assert write_lock(project, lock) == project.lock_file("big")
    assert load_lock(project, "big") == lock


def test_a_stack_without_a_lock(project: Project) -> None:
    with pytest.raises(BadInputError, match="stack sm120 has no lock") as raised:
        load_lock(project, "sm120")
    assert raised.value.fix is not None
    assert "dsv4port lock sm120" in raised.value.fix


def test_a_merge_conflict_left_in_a_lock(project: Project) -> None:
    file = project.lock_file("musa")
    file.write_text("<<<<<<< ours\n" + file.read_text())
    with pytest.raises(ManifestError, match=r"\Amanifests/locks/musa.lock.yaml:[1-4]: "):
        load_lock(project, "musa")


def test_a_stack_of_no_patches_comes_out_as_its_base() -> None:
    def lock(tree: str) -> Lock:
        return Lock("1", Name("s"), Name("p"), SourceKind.GIT, digest(1), digest(2), tree,
                    digest(2), (), ())  # fmt: skip

    assert parse_lock(dump_lock(lock(digest(1))).encode(), "x") == lock(digest(1))
    with pytest.raises(BadInputError, match="is not what the last patch gives"):
        lock(digest(3))


def test_a_large_lock_is_read_without_the_yaml_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = big_lock(180, 700)
    text = dump_lock(lock)

    def refuse(*_: object) -> None:
        raise AssertionError("the YAML parser was asked")

    monkeypatch.setattr(yaml_gate, "plain_values", refuse)
    assert parse_lock(text.encode(), "x") == lock
    # Any other form is for the parser.
    with pytest.raises(AssertionError, match="was asked"):
        parse_lock(text.encode() + b"# more\n", "x")
