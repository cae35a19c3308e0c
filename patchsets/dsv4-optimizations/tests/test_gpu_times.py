"""Each optimization against the path it replaces: measured in turn, recorded, not judged.

What a time decides is decided where it is written into the patch: in the tables, and in the
constants that switch a path on. A test here fails only if something does not run.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import INV_ROPE, NVIDIA_OPS  # noqa: E402
from test_gpu_bytes import deep_gemm, upstream_ops  # noqa: E402, F401

pytestmark = [pytest.mark.gpu, pytest.mark.torch, pytest.mark.usefixtures("gpu")]

TOKENS = (1, 2, 4, 5, 8, 10, 16, 20, 32, 40, 64)


def record(
    record_property: Callable[..., None],
    replaced: str,
    times: dict[str, Any],
    enabled: object,
    **more: object,
) -> None:
    """``times`` holds at least ours and theirs; the ratio is ours to theirs, below 1 is faster."""
    record_property("replaced_path", replaced)
    record_property("on_by_default", enabled)
    record_property("microseconds", {name: vars(timing) for name, timing in times.items()})
    record_property("ratio", round(times["ours"].median / times["theirs"].median, 4))
    for name, value in more.items():
        record_property(name, value)


@pytest.mark.parametrize("tokens", TOKENS)
def test_time_of_inverse_rope(
    kernel_module: Callable[[str], ModuleType],
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    from measuring import compare
    from problems import Attention

    quant = kernel_module(INV_ROPE)
    enabled = tokens <= max(largest for largest, _ in quant.CHUNK_PARALLEL_WARPS)
    arguments = Attention.of(tokens).arguments()
    times = compare(
        {
            "theirs": lambda _: quant.fused_inv_rope_fp8_quant(*arguments),
            "ours": lambda _: quant.fused_inv_rope_fp8_quant(*arguments, chunk_parallel=True),
        }
    )
    record(record_property, "upstream's launch with one warp a head", times, enabled)


def o_proj_tile(kernel_module: Callable[[str], ModuleType], tokens: int) -> tuple[Any, bool]:
    chooser = kernel_module(f"{NVIDIA_OPS}.o_proj_gemv")
    tiles = kernel_module(f"{NVIDIA_OPS}.small_m_gemv_tiles")
    tile = chooser.select_o_proj_tile(tokens, 1024, 4096, 1, (9, 0), "float32")
    # Without a row: what came nearest when the table was measured.
    return tile or tiles.Tile("mma", 16, 8, 16, 4), tile is not None


@pytest.mark.parametrize("tokens", TOKENS)
def test_time_of_the_o_projection(
    kernel_module: Callable[[str], ModuleType],
    deep_gemm: ModuleType,  # noqa: F811
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    """The product alone, weights outside the cache."""
    from measuring import compare
    from problems import O_PROJ, Weights, fp8, scales
    from replaced_paths import column_scales, einsum

    n, k = O_PROJ
    gemv = kernel_module(f"{NVIDIA_OPS}.small_m_gemv")
    tile, enabled = o_proj_tile(kernel_module, tokens)
    weights = Weights.of(n, k)
    a = fp8(1, tokens, k).transpose(0, 1)
    by_token = scales(tokens, 1, k // 128)
    by_block = column_scales(tokens, k // 128, "cuda").copy_(by_token[:, 0]).unsqueeze(1)
    out = torch.empty(tokens, 1, n, device="cuda", dtype=torch.bfloat16)
    times = compare(
        {
            "theirs": lambda i: einsum(deep_gemm, a, by_block, *weights[i], out),
            "ours": lambda i: gemv.small_m_gemv(a, by_token, *weights[i], out, tile),
            # The same GEMV with upstream's order of the scales: what the other order is worth.
            "ours, mn_major scales": lambda i: gemv.small_m_gemv(
                a, by_block, *weights[i], out, tile
            ),
        }
    )
    record(record_property, "DeepGEMM fp8_einsum", times, enabled, tile=str(tile))


@pytest.mark.parametrize("tokens", TOKENS)
def test_time_of_inverse_rope_and_o_projection_together(
    kernel_module: Callable[[str], ModuleType],
    deep_gemm: ModuleType,  # noqa: F811
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    from measuring import compare
    from problems import O_PROJ, Attention, Weights
    from replaced_paths import einsum

    n, k = O_PROJ
    gemv = kernel_module(f"{NVIDIA_OPS}.small_m_gemv")
    quant = kernel_module(INV_ROPE)
    tile, enabled = o_proj_tile(kernel_module, tokens)
    weights = Weights.of(n, k)
    arguments = Attention.of(tokens).arguments()
    out = torch.empty(tokens, 1, n, device="cuda", dtype=torch.bfloat16)

    def theirs(number: int) -> None:
        a, a_scale = quant.fused_inv_rope_fp8_quant(*arguments)
        einsum(deep_gemm, a, a_scale, *weights[number], out)

    def ours(number: int) -> None:
        a, a_scale = quant.fused_inv_rope_fp8_quant(
            *arguments, chunk_parallel=True, scale_layout="k_major"
        )
        gemv.small_m_gemv(a, a_scale, *weights[number], out, tile)

    times = compare({"theirs": theirs, "ours": ours})
    record(
        record_property,
        "upstream's launch with one warp a head, then DeepGEMM fp8_einsum",
        times,
        enabled,
    )


@pytest.mark.parametrize("tokens", [1, 4, 16, 64])
def test_time_of_the_o_projection_against_upstreams_triton_kernel(
    kernel_module: Callable[[str], ModuleType],
    vllm_tree: Any,
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    """For scale: what upstream runs where DeepGEMM is missing, with its default launch shape."""
    from measuring import compare
    from problems import O_PROJ, Weights, fp8, scales
    from upstream_kernels import FP8_UTILS, extract

    n, k = O_PROJ
    name = "_w8a8_triton_block_scaled_mm"
    kernel = getattr(extract(vllm_tree, FP8_UTILS, name), name)
    gemv = kernel_module(f"{NVIDIA_OPS}.small_m_gemv")
    tile, enabled = o_proj_tile(kernel_module, tokens)
    weights = Weights.of(n, k)
    a, a_scale = fp8(tokens, 1, k), scales(tokens, 1, k // 128)
    out = torch.empty(tokens, 1, n, device="cuda", dtype=torch.bfloat16)

    def theirs(number: int) -> None:
        weight, w_scale = weights[number]
        kernel[(-(-tokens // 64) * (n // 128),)](
            *(a, weight, out, a_scale, w_scale),
            *(tokens, n, k, 128, 128),
            *(k, 1, 1, k, n, 1),
            *(k // 128, 1, 1, k // 128),
            BLOCK_SIZE_M=64,
            BLOCK_SIZE_N=128,
            BLOCK_SIZE_K=128,
            GROUP_SIZE_M=32,
            num_warps=4,
            num_stages=2,
        )

    times = compare(
        {
            "theirs": theirs,
            "ours": lambda i: gemv.small_m_gemv(a, a_scale, *weights[i], out, tile),
        }
    )
    record(record_property, "upstream's Triton block-FP8 GEMM", times, enabled)


@pytest.mark.parametrize("ue8m0", [False, True])
def test_time_of_the_shared_gate_up(
    kernel_module: Callable[[str], ModuleType],
    deep_gemm: ModuleType,  # noqa: F811
    upstream_ops: Any,  # noqa: F811
    record_property: Callable[..., None],
    ue8m0: bool,
) -> None:
    from measuring import compare
    from problems import GATE_UP, Weights
    from replaced_paths import column_scales, quantize

    n, k = GATE_UP
    gemv = kernel_module(f"{NVIDIA_OPS}.small_m_gemv")
    table = kernel_module(f"{NVIDIA_OPS}.gate_up_tile_table").GATE_UP_TILES
    tile = next(iter(table.values()), gemv.Tile("simt", 1, 4, 4, 4))
    weights = Weights.of(n, k)
    x = torch.randn(1, k, device="cuda").bfloat16()
    q = torch.empty(1, k, device="cuda", dtype=torch.float8_e4m3fn)
    scale = column_scales(1, k // 128, "cuda")
    out = torch.empty(1, n, device="cuda", dtype=torch.bfloat16)

    def theirs(number: int) -> None:
        weight, w_scale = weights[number]
        quantize(upstream_ops, x, q, scale, ue8m0)
        deep_gemm.fp8_gemm_nt((q, scale), (weight[0], w_scale[0]), out, disable_ue8m0_cast=True)

    def ours(number: int) -> None:
        gemv.small_m_gemv(x.unsqueeze(1), None, *weights[number], out.unsqueeze(1), tile)

    times = compare({"theirs": theirs, "ours": ours})
    record(
        record_property,
        "vLLM's per_token_group_fp8_quant, then DeepGEMM fp8_gemm_nt",
        times,
        bool(table),
        tile=str(tile),
    )


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 256, 4100])
def test_time_of_shared_swiglu(
    kernel_module: Callable[[str], ModuleType],
    upstream_ops: Any,  # noqa: F811
    record_property: Callable[..., None],
    tokens: int,
) -> None:
    from measuring import compare
    from replaced_paths import column_scales, quantize

    swiglu = kernel_module(f"{NVIDIA_OPS}.swiglu_fp8_quant")
    enabled = kernel_module(f"{NVIDIA_OPS}.shared_swiglu").MEASURED_FASTER
    gate_up = (torch.randn(tokens, 512, device="cuda") * 6).bfloat16()

    def theirs(_: int) -> None:
        activated = torch.empty(tokens, 256, dtype=torch.bfloat16, device="cuda")
        upstream_ops.silu_and_mul_with_clamp(activated, gate_up, 10.0, 1.0, 0.0)
        q = torch.empty(tokens, 256, dtype=torch.float8_e4m3fn, device="cuda")
        quantize(upstream_ops, activated, q, column_scales(tokens, 2, "cuda"), False)

    times = compare(
        {
            "theirs": theirs,
            "ours": lambda _: swiglu.swiglu_fp8_quant(gate_up, 10.0, False, True),
        }
    )
    record(
        record_property,
        "vLLM's silu_and_mul_with_clamp, then per_token_group_fp8_quant",
        times,
        enabled,
    )
