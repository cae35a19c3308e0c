"""Base85 lines and git deltas: both ways, and damaged."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.errors import PatchFormatError
from dsv4port.patch.binary import (
    apply_delta,
    apply_half,
    decode_lines,
    delta_half,
    encode_lines,
    inflate,
    literal_half,
    make_delta,
)


@given(st.binary(max_size=200))
def test_base85_lines(data: bytes) -> None:
    lines = encode_lines(data)
    assert decode_lines(lines) == data
    assert all(len(line) <= 1 + 65 + 1 for line in lines)


@pytest.mark.parametrize(
    "line",
    [b"\n", b"A\n", b"E00000\n", b"D0000\n", b"D00000", b"D00 00\n", b"D~~~~~\n", b"100000\n"],
)
def test_malformed_base85_lines(line: bytes) -> None:
    with pytest.raises(ValueError, match="binary data line"):
        decode_lines([line])


_content = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda size, byte: bytes([byte]) * size, st.integers(0, 140_000), st.integers(0, 255)
    ),
)


@given(_content, _content, _content)
def test_deltas(base: bytes, middle: bytes, tail: bytes) -> None:
    for new in (middle, base + middle + tail, base[:100] + middle + base[-50:]):
        assert apply_delta(base, make_delta(base, new)) == new
        assert apply_half(delta_half(base, new), base) == new
        assert apply_half(literal_half(new), base) == new


@given(st.binary(max_size=20), st.binary(max_size=12))
def test_any_delta_is_applied_or_refused(base: bytes, operations: bytes) -> None:
    for delta in (operations, bytes([len(base), 5]) + operations):
        try:
            result = apply_delta(base, delta)
        except PatchFormatError as error:
            assert error.fix
        else:
            assert len(result) < 128


@pytest.mark.parametrize(
    ("delta", "reason"),
    [
        (b"", "truncated"),
        (b"\x03", "truncated"),
        (b"\x80" * 12, "truncated"),
        (b"\x04\x01\x01x", "for a base of 4 bytes, not of 3"),
        (b"\x03\x01\x00", "reserved"),
        (b"\x03\x02\x02x", "truncated"),
        (b"\x03\x01\x81", "truncated"),
        (b"\x03\x03\x91\x01\x03", "beyond its base"),
        (b"\x03\x01\x02xy", "makes more"),
        (b"\x03\x03\x02xy", "makes less"),
        (b"\x03\xff\xff\xff\xff\x7f\x01x", "at most"),
    ],
)
def test_malformed_deltas(delta: bytes, reason: str) -> None:
    with pytest.raises(PatchFormatError, match=reason):
        apply_delta(b"abc", delta)


def test_inflation_is_exact() -> None:
    stream = zlib.compress(b"abc")
    assert inflate(stream, 3) == b"abc"
    assert inflate(zlib.compress(b""), 0) == b""
    for damaged, size in [(stream, 2), (stream, 4), (stream[:-1], 3), (stream + b"x", 3), (b"", 0)]:
        with pytest.raises(ValueError, match="binary data"):
            inflate(damaged, size)
