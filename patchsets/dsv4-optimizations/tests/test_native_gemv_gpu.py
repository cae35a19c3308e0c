"""The CUDA GEMV on the GPU: its numbers against FP32, and its time beside the Triton GEMV's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import NVIDIA_OPS  # noqa: E402
from native_gemv import QUANT_BLOCK, VARIABLE, K, call_for, find_library, load  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("gpu")]

N = 1024
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8)
BUILT_FOR = {(9, 0), (12, 0)}

Gemv = Callable[..., None]


@pytest.fixture(scope="module")
def native(gpu: str) -> Gemv:
    """The library's product, on torch's current stream."""
    path = find_library()
    if path is None:
        pytest.skip(f"not built: `dsv4port build --kernels dsv4-optimizations`, or set {VARIABLE}")
    capability = torch.cuda.get_device_capability()
    if capability not in BUILT_FOR:
        pytest.skip(f"the library has no code for capability {capability}")
    library = load(path)

    def run(a: Any, a_scale: Any, w: Any, w_scale: Any, out: Any) -> None:
        call = call_for(a, a_scale, w, w_scale, out)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = library.dsv4port_fp8_gemv(ctypes.byref(call), stream)
        assert code == 0, code

    return run


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(7)


def operands(tokens: int, groups: int) -> tuple[Any, Any, Any, Any]:
    """Random operands; every finite FP8 value is among the codes."""

    def fp8(*shape: int) -> Any:
        codes = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0x30  # The two NaNs.
        return codes.view(torch.float8_e4m3fn)

    def scales(*shape: int) -> Any:
        return torch.rand(*shape, device="cuda") * 0.02 + 1e-3

    return (
        fp8(tokens, groups, K),
        scales(tokens, groups, K // QUANT_BLOCK),
        fp8(groups, N, K),
        scales(groups, N // QUANT_BLOCK, K // QUANT_BLOCK),
    )


def dequantized(a: Any, a_scale: Any, w: Any, w_scale: Any) -> tuple[Any, Any]:
    wide_a = a.float() * a_scale.repeat_interleave(QUANT_BLOCK, -1)
    by_row = w_scale.repeat_interleave(QUANT_BLOCK, -1).repeat_interleave(QUANT_BLOCK, -2)
    return wide_a, w.float() * by_row


def assert_close(out: Any, a: Any, a_scale: Any, w: Any, w_scale: Any) -> None:
    """Within half a unit of bf16, and of what FP32 sums of so many products may differ."""
    wide_a, wide_w = dequantized(a, a_scale, w, w_scale)
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = torch.einsum("tgk,gnk->tgn", wide_a, wide_w)
    magnitude = torch.einsum("tgk,gnk->tgn", wide_a.abs(), wide_w.abs())
    allowed = reference.abs() * 2.0**-8 + magnitude * 1e-5
    error = (out.float() - reference).abs()
    assert bool((error <= allowed).all()), float((error / allowed).max())


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("tokens", TOKENS)
def test_numbers(tokens: int, groups: int, native: Gemv) -> None:
    given = operands(tokens, groups)
    out = torch.full((tokens, groups, N), float("nan"), device="cuda", dtype=torch.bfloat16)
    native(*given, out)
    assert_close(out, *given)


@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_strides_and_nothing_else_written(tokens: int, native: Gemv) -> None:
    """Scales token by token next to each other, operands cut out of wider buffers."""
    groups = 2
    a, a_scale, w, w_scale = operands(tokens, groups)
    wide = torch.zeros(tokens, groups, K + 64, device="cuda", dtype=torch.uint8)
    wide[..., :K] = a.view(torch.uint8)
    a_cut = wide.view(torch.float8_e4m3fn)[..., :K]
    by_token = torch.empty(groups, K // QUANT_BLOCK, tokens + 3, device="cuda")
    scale_cut = by_token.permute(2, 0, 1)[:tokens]
    scale_cut.copy_(a_scale)
    room = torch.full((tokens + 1, groups, N + 8), 7.0, device="cuda", dtype=torch.bfloat16)
    out = room[:tokens, :, :N]
    native(a_cut, scale_cut, w, w_scale, out)
    assert_close(out, a, a_scale, w, w_scale)
    assert bool((room[tokens:] == 7).all()) and bool((room[..., N:] == 7).all())


def test_nan_of_an_operand_is_seen(native: Gemv) -> None:
    a, a_scale, w, w_scale = operands(2, 1)
    a.view(torch.uint8)[1, 0, 77] = 0x7F
    out = torch.zeros(2, 1, N, device="cuda", dtype=torch.bfloat16)
    native(a, a_scale, w, w_scale, out)
    assert bool(out[1].isnan().all()) and not bool(out[0].isnan().any())


@pytest.mark.parametrize("tokens", [1, 8])
def test_captured_and_replayed(tokens: int, native: Gemv) -> None:
    given = operands(tokens, 1)
    out = torch.zeros(tokens, 1, N, device="cuda", dtype=torch.bfloat16)
    native(*given, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        native(*given, out)
    for new, old in zip(operands(tokens, 1), given, strict=True):
        old.view(torch.uint8).copy_(new.view(torch.uint8))
    out.fill_(float("nan"))
    graph.replay()
    assert_close(out, *given)


@pytest.mark.parametrize("tokens", TOKENS)
def test_time_beside_the_triton_gemv(
    tokens: int,
    native: Gemv,
    kernel_module: Callable[[str], ModuleType],
    record_property: Callable[..., None],
) -> None:
    from measuring import compare
    from problems import Weights

    gemv = kernel_module(f"{NVIDIA_OPS}.small_m_gemv")
    table = kernel_module(f"{NVIDIA_OPS}.o_proj_tile_table").O_PROJ_TILES
    capability = torch.cuda.get_device_capability()
    tiles = {shape.m: tile for shape, tile in table.items() if shape.capability == capability}
    if tokens not in tiles:
        pytest.skip(f"the Triton GEMV has no measured tile for {tokens} tokens at {capability}")
    a, a_scale, _, _ = operands(tokens, 1)
    weights = Weights.of(N, K)
    out = torch.empty(tokens, 1, N, device="cuda", dtype=torch.bfloat16)
    times = compare(
        {
            "triton": lambda i: gemv.small_m_gemv(a, a_scale, *weights[i], out, tiles[tokens]),
            "cuda": lambda i: native(a, a_scale, *weights[i], out),
        }
    )
    record_property("microseconds", {name: vars(timing) for name, timing in times.items()})
    record_property("ratio", round(times["cuda"].median / times["triton"].median, 4))
