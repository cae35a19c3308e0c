"""On the GPU, at the sizes of the model: bytes, numbers, and graphs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import INV_ROPE, NVIDIA_OPS, SPARSE_PREFILL, KernelTree  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.fix, pytest.mark.usefixtures("gpu")]

FLASH_MLA = "DSV4PORT_FLASH_MLA"  # The library that registers torch.ops._flashmla_C.
TOKENS = (1, 2, 3, 4, 5, 7, 8, 10, 16, 20, 31, 32, 40, 63, 64)
HEADS = [(8, 1), (64, 8)]  # Of one rank of eight, and of one rank alone.


@pytest.fixture(scope="module")
def quant(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(INV_ROPE)


@pytest.fixture(scope="module")
def gemv(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(f"{NVIDIA_OPS}.small_m_gemv")


@pytest.fixture(scope="module")
def swiglu(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(f"{NVIDIA_OPS}.swiglu_fp8_quant")


@pytest.fixture(scope="module")
def deep_gemm(gpu: str) -> ModuleType:
    import replaced_paths

    module = replaced_paths.deep_gemm()
    if module is None:
        pytest.skip(f"no DeepGEMM: ${replaced_paths.DEEP_GEMM} is not set")
    return module


@pytest.fixture(scope="module")
def upstream_ops(gpu: str) -> Any:
    import replaced_paths

    ops = replaced_paths.upstream_ops()
    if ops is None:
        pytest.skip(f"no CUDA operators of vLLM: ${replaced_paths.UPSTREAM_OPS} is not set")
    return ops


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(20261130)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.float() - expected).norm() / expected.norm())


def o_proj_rows(kernel_module: Callable[[str], ModuleType]) -> list[tuple[Any, Any]]:
    table = kernel_module(f"{NVIDIA_OPS}.o_proj_tile_table").O_PROJ_TILES
    return list(table.items())


# --- inverse RoPE --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["mn_major", "k_major"])
@pytest.mark.parametrize(("heads", "groups"), HEADS)
@pytest.mark.parametrize("warps", [2, 4])
def test_more_warps_give_upstreams_bytes(
    quant: ModuleType,
    heads: int,
    groups: int,
    layout: str,
    warps: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from problems import Attention

    monkeypatch.setattr(quant, "CHUNK_PARALLEL_WARPS", ((max(TOKENS), warps),))
    for tokens in TOKENS:
        case = Attention.of(tokens, heads, groups)
        case.o[0, 0, 128:256] = 0
        case.o[-1, -1] = 0
        case.o[0, -1] *= 1e6
        fp8, scale = quant.fused_inv_rope_fp8_quant(*case.arguments())
        new_fp8, new_scale = quant.fused_inv_rope_fp8_quant(
            *case.arguments(), chunk_parallel=True, scale_layout=layout
        )
        assert same_bytes(new_fp8, fp8), tokens
        assert torch.equal(new_scale, scale), tokens


def test_the_bytes_are_those_of_a_torch_reference(quant: ModuleType) -> None:
    from problems import Attention

    case = Attention.of(16)
    fp8, scale = quant.fused_inv_rope_fp8_quant(*case.arguments(), chunk_parallel=True)
    x = case.o.double()
    cos, sin = case.cache[case.positions].double().chunk(2, dim=-1)
    even, odd = x[..., 448::2].clone(), x[..., 449::2].clone()
    x[..., 448::2] = even * cos[:, None] + odd * sin[:, None]
    x[..., 449::2] = odd * cos[:, None] - even * sin[:, None]
    chunks = x.unflatten(-1, (4, 128))
    absmax = chunks.abs().amax(dim=-1).clamp(min=1e-10)
    expected_scale = torch.exp2(torch.ceil(torch.log2(absmax / 448.0)))
    # A maximum within rounding of a power of two times 448 may fall on either side.
    assert (scale.flatten() == expected_scale.float().flatten()).float().mean() > 0.99
    values = chunks / scale.reshape(16, 8, 4, 1).double()
    expected = values.clamp(-448, 448).float().to(torch.float8_e4m3fn).view(16, 1, 4096)
    same = fp8.contiguous().view(torch.uint8) == expected.view(torch.uint8)
    assert same.float().mean() > 0.9999


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("layout", ["mn_major", "k_major"])
def test_inverse_rope_in_a_graph(quant: ModuleType, layout: str, chunked: bool) -> None:
    from problems import Attention

    case = Attention.of(5)
    options = {"chunk_parallel": chunked, "scale_layout": layout}
    quant.fused_inv_rope_fp8_quant(*case.arguments(), **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fp8, scale = quant.fused_inv_rope_fp8_quant(*case.arguments(), **options)
    for _ in range(3):
        case.o.copy_(torch.randn_like(case.o))
        case.positions.random_(0, 4096)
        fp8.view(torch.uint8).fill_(0x7F)
        scale.fill_(float("nan"))
        graph.replay()
        expected_fp8, expected_scale = quant.fused_inv_rope_fp8_quant(*case.arguments())
        assert same_bytes(fp8, expected_fp8)
        assert torch.equal(scale, expected_scale)


# --- GEMV ----------------------------------------------------------------------------------------


def product(
    a: torch.Tensor, a_scale: torch.Tensor | None, w: torch.Tensor, w_scale: torch.Tensor
) -> torch.Tensor:
    full_a = a.double()
    if a_scale is not None:
        full_a = full_a * a_scale.double().repeat_interleave(128, dim=2)
    full_w = w.double() * w_scale.double().repeat_interleave(128, dim=1).repeat_interleave(
        128, dim=2
    )
    return torch.einsum("tgk,gnk->tgn", full_a, full_w).float()


TILES = [
    ("simt", 1, 8, 4, 4),
    ("simt", 1, 2, 32, 4),
    ("simt", 4, 8, 2, 4),
    ("mma", 16, 16, 4, 4),
    ("mma", 16, 32, 2, 4),
]


@pytest.mark.parametrize("shape", TILES, ids=str)
@pytest.mark.parametrize("tokens", [1, 3, 8, 17])
def test_gemv_at_the_models_sizes(
    gemv: ModuleType, record_property: Callable[..., None], tokens: int, shape: tuple[Any, ...]
) -> None:
    from problems import O_PROJ, fp8, scales

    n, k = O_PROJ
    a, a_scale = fp8(tokens, 1, k), scales(tokens, 1, k // 128)
    w, w_scale = fp8(1, n, k), scales(1, n // 128, k // 128)
    out = torch.full((tokens, 1, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    gemv.small_m_gemv(a, a_scale, w, w_scale, out, gemv.Tile(*shape))
    error = relative_error(out, product(a, a_scale, w, w_scale))
    record_property("relative_error", error)
    assert error < 2**-8


def test_every_tile_of_the_table(
    gemv: ModuleType,
    kernel_module: Callable[[str], ModuleType],
    record_property: Callable[..., None],
) -> None:
    from problems import fp8, scales

    rows = o_proj_rows(kernel_module)
    if not rows:
        pytest.skip("the table is empty: nothing was measured to be faster")
    errors = {}
    for shape, tile in rows:
        a, a_scale = fp8(shape.m, 1, shape.k), scales(shape.m, 1, shape.k // 128)
        w, w_scale = fp8(1, shape.n, shape.k), scales(1, shape.n // 128, shape.k // 128)
        out = torch.full((shape.m, 1, shape.n), float("nan"), dtype=torch.bfloat16, device="cuda")
        gemv.small_m_gemv(a, a_scale, w, w_scale, out, tile)
        errors[shape.m] = relative_error(out, product(a, a_scale, w, w_scale))
    record_property("relative_errors", errors)
    assert max(errors.values()) < 2**-8


@pytest.mark.parametrize("shape", [TILES[0], TILES[3]], ids=str)
def test_several_groups_into_a_strided_buffer(gemv: ModuleType, shape: tuple[Any, ...]) -> None:
    from problems import O_PROJ, fp8, scales

    n, k = O_PROJ
    groups, tokens = 8, 4
    a, a_scale = fp8(groups, tokens, k).transpose(0, 1), scales(tokens, groups, k // 128)
    w, w_scale = fp8(groups, n, k), scales(groups, n // 128, k // 128)
    buffer = torch.full((tokens, groups, n + 64), 77.0, dtype=torch.bfloat16, device="cuda")
    out = buffer[..., 32 : 32 + n]
    gemv.small_m_gemv(a, a_scale, w, w_scale, out, gemv.Tile(*shape))
    assert relative_error(out, product(a, a_scale, w, w_scale)) < 2**-8
    out.fill_(77.0)
    assert (buffer == 77.0).all()


def test_gate_up_gemv_at_the_models_size(
    gemv: ModuleType, record_property: Callable[..., None]
) -> None:
    from problems import GATE_UP, fp8, scales

    n, k = GATE_UP
    x = torch.randn(1, 1, k, device="cuda").bfloat16()
    w, w_scale = fp8(1, n, k), scales(1, n // 128, k // 128)
    out = torch.full((1, 1, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    gemv.small_m_gemv(x, None, w, w_scale, out, gemv.Tile("simt", 1, 4, 4, 4))
    error = relative_error(out, product(x, None, w, w_scale))
    record_property("relative_error", error)
    assert error < 2**-8


def test_gemv_in_a_graph(gemv: ModuleType) -> None:
    from problems import O_PROJ, fp8, scales

    n, k = O_PROJ
    a, a_scale = fp8(2, 1, k), scales(2, 1, k // 128)
    w, w_scale = fp8(1, n, k), scales(1, n // 128, k // 128)
    out = torch.empty(2, 1, n, dtype=torch.bfloat16, device="cuda")
    for shape in (TILES[0], TILES[3]):
        tile = gemv.Tile(*shape)
        gemv.small_m_gemv(a, a_scale, w, w_scale, out, tile)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemv.small_m_gemv(a, a_scale, w, w_scale, out, tile)
        for _ in range(3):
            a.copy_(fp8(2, 1, k))
            out.fill_(float("nan"))
            graph.replay()
            assert relative_error(out, product(a, a_scale, w, w_scale)) < 2**-8


@pytest.mark.parametrize("tokens", [1, 2, 4, 5, 8, 16, 64])
def test_the_o_projection_with_and_without_gemv(
    kernel_module: Callable[[str], ModuleType],
    kernels: KernelTree,
    deep_gemm: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    """The function of the layer, with DeepGEMM on the one side."""
    from problems import Attention, fp8, scales

    o_proj = kernel_module(f"{NVIDIA_OPS}.o_proj")
    chooser = kernel_module(f"{NVIDIA_OPS}.o_proj_gemv")
    tiles = kernel_module(f"{NVIDIA_OPS}.small_m_gemv_tiles")
    row = tiles.GemvShape(tokens, 1024, 4096, 1, (9, 0), "float32")
    tile = dict(chooser.O_PROJ_TILES).get(row, tiles.Tile("simt", 1, 8, 4, 4))
    monkeypatch.setattr(chooser, "O_PROJ_TILES", {row: tile})
    kernels.einsum = deep_gemm.fp8_einsum
    case = Attention.of(tokens)
    wo_a = SimpleNamespace(weight=fp8(1, 1024, 4096), weight_scale_inv=scales(1, 8, 32))

    def run(**options: Any) -> torch.Tensor:
        return o_proj.deep_gemm_fp8_o_proj(
            case.o,
            case.positions,
            case.cache,
            wo_a,
            lambda z: z,
            n_groups=1,
            heads_per_group=8,
            nope_dim=448,
            rope_dim=64,
            o_lora_rank=1024,
            einsum_recipe=(1, 128, 128),
            tma_aligned_scales=False,
            **options,
        )

    kernels.einsum_calls.clear()
    upstream = run()
    assert len(kernels.einsum_calls) == 1
    ours = run(chunk_parallel=True, gemv_capability=(9, 0))
    assert len(kernels.einsum_calls) == 1
    difference = relative_error(ours, upstream.float())
    record_property("relative_difference", difference)
    # DeepGEMM accumulates FP8 products with fewer bits than FP32.
    assert difference < 2**-6


# --- SwiGLU --------------------------------------------------------------------------------------


def edge_values(tokens: int) -> torch.Tensor:
    gate_up = torch.randn(tokens, 512, device="cuda") * 6
    edges = [math.nan, math.inf, -math.inf, 10.0, 10.0625, -10.0, 0.0, -0.0, 1e-30, 3e38, -3e38]
    for place, value in enumerate(edges):
        gate_up[0, place] = value
        gate_up[-1, 256 + 2 * place] = value
    gate_up[0, 128:256] = 0
    return gate_up.bfloat16()


@pytest.mark.parametrize("ue8m0", [False, True])
@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 4100])
def test_fused_swiglu_gives_the_bytes_of_vllms_operators(
    swiglu: ModuleType, upstream_ops: Any, tokens: int, ue8m0: bool
) -> None:
    from replaced_paths import column_scales, quantize

    gate_up = edge_values(tokens)
    activated = torch.empty(tokens, 256, dtype=torch.bfloat16, device="cuda")
    upstream_ops.silu_and_mul_with_clamp(activated, gate_up, 10.0, 1.0, 0.0)
    expected = torch.empty(tokens, 256, dtype=torch.float8_e4m3fn, device="cuda")
    expected_scale = column_scales(tokens, 2, "cuda")
    quantize(upstream_ops, activated, expected, expected_scale, ue8m0)
    q, scale = swiglu.swiglu_fp8_quant(gate_up, 10.0, ue8m0, True)
    assert torch.equal(scale, expected_scale)
    assert same_bytes(q, expected)
    assert scale.stride() == expected_scale.stride()


def test_fused_swiglu_in_a_graph(swiglu: ModuleType) -> None:
    gate_up = edge_values(4)
    swiglu.swiglu_fp8_quant(gate_up, 10.0, False, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        q, scale = swiglu.swiglu_fp8_quant(gate_up, 10.0, False, True)
    for _ in range(3):
        gate_up.copy_(torch.randn(4, 512, device="cuda") * 6)
        q.view(torch.uint8).fill_(0x7F)
        scale.fill_(float("nan"))
        graph.replay()
        expected, expected_scale = swiglu.swiglu_fp8_quant(gate_up, 10.0, False, True)
        assert same_bytes(q, expected)
        assert torch.equal(scale, expected_scale)


# --- sparse prefill ------------------------------------------------------------------------------


def test_flash_mla_keeps_the_contract(kernel_module: Callable[[str], ModuleType]) -> None:
    library = os.environ.get(FLASH_MLA)
    if not library:
        pytest.skip(f"no FlashMLA: ${FLASH_MLA} is not set")
    torch.ops.load_library(library)
    prefill = kernel_module(SPARSE_PREFILL)

    def provider(**launch: Any) -> Any:
        return torch.ops._flashmla_C.sparse_prefill_fwd(
            launch["q"],
            launch["kv"],
            launch["indices"],
            launch["sm_scale"],
            512,
            launch["attn_sink"],
            launch["topk_length"],
            launch.get("out"),
        )

    tokens, heads, keys, topk = 9, 64, 700, 640
    q = torch.randn(tokens, heads, 512, device="cuda").bfloat16()
    launch = {
        "kv": torch.randn(keys, 1, 512, device="cuda").bfloat16(),
        "indices": torch.randint(0, keys, (tokens, 1, topk), device="cuda", dtype=torch.int32),
        "sm_scale": 512**-0.5,
        "attn_sink": torch.zeros(heads, device="cuda"),
        "topk_length": torch.full((tokens,), topk, device="cuda", dtype=torch.int32),
    }
    buffer = torch.full((tokens + 2, heads, 512), 77.0, device="cuda").bfloat16()
    out = buffer[1:-1]
    prefill.sparse_prefill_into(out, provider=provider, takes_out=True, checked=True, q=q, **launch)
    copied = torch.empty_like(q)
    prefill.sparse_prefill_into(
        copied, provider=provider, takes_out=False, checked=True, q=q, **launch
    )
    assert torch.equal(out, copied)
    assert torch.isfinite(out.float()).all()
    assert (buffer[0] == 77.0).all()
    assert (buffer[-1] == 77.0).all()
