"""A remembered manifest is the manifest; with anything wrong in the memory, it is parsed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4port.errors import ManifestError
from dsv4port.manifest import parsed, yaml_gate
from dsv4port.manifest.document import load_document
from dsv4port.manifest.parsed import ParsedFiles
from dsv4port.manifest.scalars import Word

TEXT = "title: Words\ncount: 3\nnull_one: ~\nquoted: '3'\nrows: [{a: yes, '': x}, no, plain]\n"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    file = tmp_path / "m.yaml"
    file.write_text(TEXT)
    return file


def load(file: Path) -> object:
    return load_document(file, "folder/m.yaml", state=file.parent / "state").value


def kinds(value: object) -> object:
    """The value with the class of every scalar."""
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    if isinstance(value, list):
        return [kinds(item) for item in value]
    return type(value), value


@pytest.fixture
def unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(label: str, text: str) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(yaml_gate, "_Builder", refuse)


def test_the_second_time_nothing_is_parsed(manifest: Path, request: pytest.FixtureRequest) -> None:
    first = load(manifest)
    request.getfixturevalue("unparsed")
    assert kinds(load(manifest)) == kinds(first)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "list", "reader", "source", "value"])
def test_a_damaged_memory_is_no_memory(manifest: Path, damage: str) -> None:
    first = load(manifest)
    (kept,) = (manifest.parent / "state" / "parsed").iterdir()
    digest, _, text = kept.read_bytes().partition(b"\n")
    values = json.loads(text)
    match damage:
        case "cut":
            kept.write_bytes(digest + b"\n" + text[:-3])
        case "flip":
            kept.write_bytes(digest + b"\n" + text.replace(b"Words", b"words"))
        case "empty":
            kept.write_bytes(b"")
        case _:
            forged = {
                "list": [],
                "reader": ["0/0", values[1], {"title": "tforged"}],
                "source": [values[0], "0" * 64, {"title": "tforged"}],
                "value": [values[0], values[1], {"title": "forged"}],
            }[damage]
            text = json.dumps(forged).encode()
            kept.write_bytes(parsed._digest(text) + b"\n" + text)
    assert kinds(load(manifest)) == kinds(first)


def test_a_changed_manifest_is_read_anew(manifest: Path) -> None:
    load(manifest)
    manifest.write_text("title: other\n")
    assert load(manifest) == {"title": "other"}
    manifest.write_text(TEXT + "title: twice\n")
    with pytest.raises(ManifestError, match=r'folder/m.yaml:6: the key "title" is there twice'):
        load(manifest)


def test_errors_of_a_remembered_manifest_name_the_line(manifest: Path) -> None:
    load(manifest)
    root = load_document(manifest, "folder/m.yaml", state=manifest.parent / "state")
    with pytest.raises(ManifestError, match=r"folder/m.yaml:2: count: must be text, but 3"):
        root.text("count")


def test_nothing_is_kept_where_there_is_no_state(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(TEXT)
    load_document(file, "m.yaml", state=tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["m.yaml"]


def test_a_state_that_cannot_be_written_is_no_fault(manifest: Path) -> None:
    (manifest.parent / "state" / "parsed").write_text("a file in the way")
    assert kinds(load(manifest)) == kinds(load(manifest))


scalars = st.text(max_size=5) | st.text(max_size=5).map(Word)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@settings(deadline=None)
@given(content=st.dictionaries(st.text(max_size=4), values))
def test_any_content_comes_back(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    files = ParsedFiles(tmp_path_factory.mktemp("state") / "parsed", Word)
    files.keep("x/y.yaml", b"data", content)
    assert kinds(files.find("x/y.yaml", b"data")) == kinds(content)
    assert files.find("x/y.yaml", b"other") is None
    assert files.find("x/z.yaml", b"data") is None
