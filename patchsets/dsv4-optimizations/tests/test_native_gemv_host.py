"""The CUDA GEMV's numbers and addresses on the host: its own source, with stand-ins for CUDA.

Two places of the source have no meaning outside of nvcc: the load instruction and the launch. They
are replaced, and the test fails where they are not what it expects.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from native_gemv import QUANT_BLOCK, K, call_for, load  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is missing"),
]

HERE = Path(__file__).parent
KERNELS = HERE.parent / "kernels"
N = 256

Gemv = Callable[..., None]


def on_the_host(source: str) -> str:
    before, _, rest = source.partition("  uint4 value;\n  asm volatile(")
    _, end, after = rest.partition("  return value;\n")
    assert before and end, "the load is not where it was"
    source = f"{before}  return host_load(address);\n{after}"
    launch = "gemv<Tokens><<<grid, kThreads, 0, stream>>>(call);"
    assert source.count(launch) == 1, "the launch is not where it was"
    return source.replace(launch, "host_launch(grid, [&] { gemv<Tokens>(call); });")


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Gemv:
    folder = tmp_path_factory.mktemp("host")
    for name in ("cuda_bf16", "cuda_fp16", "cuda_fp8", "cuda_runtime"):
        (folder / f"{name}.h").write_text(f'#include "{HERE}/host_cuda.h"\n')
    (folder / "gemv.cpp").write_text(on_the_host((KERNELS / "fp8_gemv.cu").read_text()))
    done = subprocess.run(
        ["g++", "-std=c++20", "-O2", "-w", "-shared", "-fPIC", "-pthread", f"-I{folder}",
         f"-I{KERNELS}", "-o", "gemv.so", "gemv.cpp"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    library = load(folder / "gemv.so")

    def run(*operands: Any) -> None:
        assert library.dsv4port_fp8_gemv(ctypes.byref(call_for(*operands)), None) == 0

    return run


def fp8(*shape: int) -> Any:
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x30  # The two NaNs.
    return codes.view(torch.float8_e4m3fn)


def operands(tokens: int, groups: int) -> tuple[Any, Any, Any, Any]:
    """The scales of the activation lie token by token next to each other, with room between."""
    torch.manual_seed(7)
    a_scale = torch.rand(groups, K // QUANT_BLOCK, tokens + 3).permute(2, 0, 1)[:tokens]
    w_scale = torch.rand(groups, N // QUANT_BLOCK, K // QUANT_BLOCK)
    return fp8(tokens, groups, K), a_scale + 0.1, fp8(groups, N, K), w_scale + 0.1


@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (2, 1), (3, 2), (4, 1), (5, 1), (8, 1)])
def test_numbers_strides_and_nothing_else_written(tokens: int, groups: int, native: Gemv) -> None:
    a, a_scale, w, w_scale = operands(tokens, groups)
    room = torch.full((tokens + 1, groups, N + 8), 7.0, dtype=torch.bfloat16)
    out = room[:tokens, :, :N]
    native(a, a_scale, w, w_scale, out)
    wide_a = a.double() * a_scale.repeat_interleave(QUANT_BLOCK, -1)
    by_row = w_scale.repeat_interleave(QUANT_BLOCK, -1).repeat_interleave(QUANT_BLOCK, -2)
    wide_w = w.double() * by_row
    reference = torch.einsum("tgk,gnk->tgn", wide_a, wide_w)
    magnitude = torch.einsum("tgk,gnk->tgn", wide_a.abs(), wide_w.abs())
    allowed = reference.abs() * 2.0**-8 + magnitude * 1e-6
    assert bool(((out.double() - reference).abs() <= allowed).all())
    assert bool((room[tokens:] == 7).all()) and bool((room[..., N:] == 7).all())


def test_nan_of_an_operand_is_seen(native: Gemv) -> None:
    a, a_scale, w, w_scale = operands(2, 1)
    a.view(torch.uint8)[1, 0, 77] = 0x7F
    out = torch.zeros(2, 1, N, dtype=torch.bfloat16)
    native(a, a_scale, w, w_scale, out)
    assert bool(out[1].isnan().all()) and not bool(out[0].isnan().any())
