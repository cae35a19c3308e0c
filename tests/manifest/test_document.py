"""The gate and the cursor: nothing but ManifestError, exact words, the right line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dsv4port.errors import ManifestError
from dsv4port.manifest import document, yaml_gate
from dsv4port.manifest.document import Node, load_document, parse_document
from dsv4port.manifest.scalars import write_text

CASES = Path(__file__).with_name("cases")
MESSAGE = re.compile(r"\Af\.yaml:[1-9][0-9]*: \S", re.DOTALL)

yaml_like = st.text(
    alphabet="ab01:-?,[]{}#&*!|>'\"%@` \n\t~<=.\\\ufeff\x07\x85\u2028é", max_size=60
)


def parse(text: str) -> Node:
    return parse_document(text.encode(), "f.yaml")


@given(st.one_of(st.binary(max_size=60), yaml_like.map(str.encode)))
@example(b"\xef\xbb\xbfa: b")
@example(b"a: \x00")
@example(b"a:\n  - ? x")
def test_any_bytes_give_a_mapping_or_a_located_error(data: bytes) -> None:
    try:
        assert isinstance(parse_document(data, "f.yaml").value, dict)
    except ManifestError as error:
        assert MESSAGE.match(str(error))


@given(st.text(max_size=40))
@example("0.30")
@example("1:30")
@example("on")
@example("2026-01-02")
@example("a: b")
@example("it's")
@example("x\u2028y")
@example("\ufeff")
def test_written_text_is_read_as_the_same_text_by_everyone(text: str) -> None:
    line = "{key: " + write_text(text) + "}\n"
    assert parse(line).text("key") == text
    assert yaml.safe_load(line) == {"key": text}
    assert line.count("\n") == 1


@pytest.mark.parametrize("word", ["2026-01-02", "v0.26.0", "a b", "0.26.0", "12ab", "x: y", "y"])
def test_words_that_every_reader_takes_for_text_need_no_quotes(word: str) -> None:
    text = f"'{word}'" if ":" in word else word
    assert parse(f"key: {text}").text("key") == word


@pytest.mark.parametrize(
    "word",
    [
        "0.30",
        "12",
        "-1",
        "1e5",
        "1_000",
        "0x1f",
        "0o17",
        "1:30",
        ".5",
        ".inf",
        "yes",
        "Off",
        "TRUE",
    ],
)
def test_words_with_another_reading_must_be_quoted(word: str) -> None:
    with pytest.raises(ManifestError, match="quote it"):
        parse(f"key: {word}").text("key")
    assert parse(f'key: "{word}"').text("key") == word


def test_block_text_is_text_whatever_it_looks_like() -> None:
    assert parse("key: |\n  12\n").text("key") == "12\n"


@pytest.mark.parametrize("word", ["", "~", "null", "Null", "NULL"])
def test_null_is_the_same_as_a_key_that_is_not_there(word: str) -> None:
    node = parse(f"key: {word}\n")
    for found in (node, parse("{}")):
        assert found.optional_text("key") is None
        assert found.optional_integer("key") is None
        assert found.optional_mapping("key") is None
        assert found.optional_sequence("key") == []
        assert found.optional_boolean("key", default=True) is True
    with pytest.raises(ManifestError, match="has no value"):
        node.text("key")
    with pytest.raises(ManifestError, match="missing key `key`"):
        parse("{}").text("key")


@pytest.mark.parametrize("word", ["1.5", "01", "1e3", "0x10", "'1'", "+1", "1_000", "9" * 30, "a"])
def test_integers_are_plain_decimals(word: str) -> None:
    assert parse("key: -17").integer("key") == -17
    with pytest.raises(ManifestError, match="whole number"):
        parse(f"key: {word}").integer("key")


@pytest.mark.parametrize("word", ["yes", "on", "True", "1", "'true'", "[]"])
def test_booleans_are_true_and_false_only(word: str) -> None:
    assert parse("key: false").boolean("key") is False
    with pytest.raises(ManifestError, match="must be true or false"):
        parse(f"key: {word}").boolean("key")


def test_errors_name_the_line_of_the_key_however_deep() -> None:
    text = "# one\ntop:\n  - first: 1\n  -\n    'a.b':\n      - x\n\n      - {deep: 12}\n"
    item = parse(text).sequence("top")[1].sequence("a.b")[1]
    with pytest.raises(ManifestError) as raised:
        item.text("deep")
    assert str(raised.value).startswith("f.yaml:8: top[1][a.b][1].deep: must be text")


def test_only_keys_nobody_asked_for_are_unknown() -> None:
    node = parse("a: 1\nb: 2\n")
    node.integer("a")
    with pytest.raises(ManifestError, match=r'\Af.yaml:2: unknown key "b", expected one of a\Z'):
        node.finish()
    node.optional_integer("b")
    node.finish()


def test_size_limit() -> None:
    with pytest.raises(ManifestError, match=r"\Af.yaml:1: is larger than 16 MiB"):
        parse_document(b"a: " + b"x" * document.MAX_BYTES, "f.yaml")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"\Af.yaml:1: cannot be read: no such file"):
        load_document(tmp_path / "f.yaml", "f.yaml")
    with pytest.raises(ManifestError, match=r"\Af.yaml:1: cannot be read: is a directory"):
        load_document(tmp_path, "f.yaml")


def test_nesting_up_to_the_limit_is_read() -> None:
    depth = yaml_gate.MAX_DEPTH - 1
    parse("a: " + "[" * depth + "]" * depth)
    with pytest.raises(ManifestError, match="nests deeper than 32 levels"):
        parse("a: " + "[" * (depth + 1) + "]" * (depth + 1))


@pytest.mark.parametrize(
    "case", sorted(path.parent for path in CASES.glob("*/*/input.yaml")), ids=lambda case: case.name
)
def test_the_slow_loader_reads_the_same(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> object:
        try:
            return parse_document((case / "input.yaml").read_bytes(), "f.yaml").value
        except ManifestError as error:
            # The two parsers find different words for a syntax error.
            return re.sub(r"(not valid YAML: ).*", r"\1", str(error))

    fast = outcome()
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert outcome() == fast
