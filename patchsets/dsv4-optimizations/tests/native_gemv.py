"""The CUDA library of ``kernels/fp8_gemv.cu`` through its C interface, by ctypes.

The library is what ``dsv4port build --kernels dsv4-optimizations`` made: the one that its receipt
names, or the file that ``DSV4PORT_FP8_GEMV`` names.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "DSV4PORT_FP8_GEMV"
RECEIPT = (
    Path(__file__).resolve().parents[3] / ".dsv4port/build/kernels/dsv4-optimizations/receipt.json"
)
K = 4096
QUANT_BLOCK = 128
MAX_TOKENS = 8
BAD_ABI, BAD_SHAPE, BAD_POINTER = -1, -2, -3

_STRIDES = (
    "a_stride_t", "a_stride_g", "a_scale_stride_t", "a_scale_stride_g", "a_scale_stride_k",
    "w_stride_g", "w_scale_stride_g", "w_scale_stride_n", "w_scale_stride_k", "out_stride_t",
    "out_stride_g",
)  # fmt: skip


class Call(ctypes.Structure):
    """``Dsv4portFp8Gemv`` of fp8_gemv.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("size", "tokens", "groups", "n", "k", "reserved")),
        *((name, ctypes.c_void_p) for name in ("a", "a_scale", "w", "w_scale", "out")),
        *((name, ctypes.c_int64) for name in _STRIDES),
    ]


def find_library() -> Path | None:
    """The library, or None where it was not built."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if not RECEIPT.is_file():
        return None
    rows = json.loads(RECEIPT.read_text())["artifacts"]
    files = [RECEIPT.with_name(row["file"]) for row in rows if row["kernel"] == "fp8-gemv"]
    return files[0] if files else None


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.dsv4port_fp8_gemv.argtypes = [ctypes.POINTER(Call), ctypes.c_void_p]
    library.dsv4port_fp8_gemv.restype = ctypes.c_int
    library.dsv4port_fp8_gemv_abi.restype = ctypes.c_int
    return library


def call_for(a: Any, a_scale: Any, w: Any, w_scale: Any, out: Any) -> Call:
    """The call for tensors: a [T, G, K], a_scale [T, G, K/128], w [G, N, K], w_scale
    [G, N/128, K/128], out [T, G, N]."""
    tokens, groups, k = a.shape
    assert a.stride(2) == w.stride(2) == out.stride(2) == 1 and w.stride(1) == k
    return Call(
        ctypes.sizeof(Call), tokens, groups, w.shape[1], k, 0,
        a.data_ptr(), a_scale.data_ptr(), w.data_ptr(), w_scale.data_ptr(), out.data_ptr(),
        a.stride(0), a.stride(1), *a_scale.stride(), w.stride(0), *w_scale.stride(),
        out.stride(0), out.stride(1),
    )  # fmt: skip
