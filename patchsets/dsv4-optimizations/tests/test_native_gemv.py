"""The CUDA GEMV's C interface: what it refuses, without a GPU and without torch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from native_gemv import BAD_ABI, BAD_POINTER, BAD_SHAPE, VARIABLE, Call, find_library, load


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    path = find_library()
    if path is None:
        pytest.skip(f"not built: `dsv4port build --kernels dsv4-optimizations`, or set {VARIABLE}")
    return load(path)


def call(**changed: Any) -> Call:
    """A call that only lacks memory on a device."""
    values = {
        "size": ctypes.sizeof(Call), "tokens": 1, "groups": 1, "n": 1024, "k": 4096,
        "a": 0x1000, "a_scale": 0x2000, "w": 0x3000, "w_scale": 0x4000, "out": 0x5000,
        "a_stride_t": 4096, "a_stride_g": 4096, "w_stride_g": 1024 * 4096,
    }  # fmt: skip
    return Call(**{**values, **changed})


def test_the_version_and_size_of_the_interface(library: ctypes.CDLL) -> None:
    assert library.dsv4port_fp8_gemv_abi() == 1
    assert ctypes.sizeof(Call) == 6 * 4 + 16 * 8


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({"size": 0}, BAD_ABI),
        ({"size": 160}, BAD_ABI),
        ({"tokens": 0}, BAD_SHAPE),
        ({"tokens": 9}, BAD_SHAPE),
        ({"tokens": -1}, BAD_SHAPE),
        ({"groups": 0}, BAD_SHAPE),
        ({"groups": 65536}, BAD_SHAPE),
        ({"n": 0}, BAD_SHAPE),
        ({"n": 1000}, BAD_SHAPE),
        ({"k": 2048}, BAD_SHAPE),
        ({"a": None}, BAD_POINTER),
        ({"out": None}, BAD_POINTER),
        ({"a_scale": None}, BAD_POINTER),
        ({"w_scale": None}, BAD_POINTER),
        ({"a": 0x1008}, BAD_POINTER),
        ({"w": 0x3001}, BAD_POINTER),
        ({"a_stride_t": 4100}, BAD_POINTER),
        ({"w_stride_g": 8}, BAD_POINTER),
    ],
)
def test_what_is_refused(changed: dict[str, Any], answer: int, library: ctypes.CDLL) -> None:
    assert library.dsv4port_fp8_gemv(ctypes.byref(call(**changed)), None) == answer


def test_no_call_at_all(library: ctypes.CDLL) -> None:
    assert library.dsv4port_fp8_gemv(None, None) == BAD_ABI
