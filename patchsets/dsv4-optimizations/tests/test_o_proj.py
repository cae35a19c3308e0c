"""The O projection's two ways from the attention output to wo_b."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import NVIDIA_OPS, KernelTree  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]

RANK, HEAD, HEADS = 128, 512, 1
WIDTH = HEADS * HEAD
SM90 = (9, 0)


@pytest.fixture
def o_proj(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    kernel_module(f"{NVIDIA_OPS}.o_proj_gemv")  # On the bare pin: red for the right reason.
    return kernel_module(f"{NVIDIA_OPS}.o_proj")


@pytest.fixture
def one_tile(
    kernel_module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> tuple[ModuleType, Any]:
    """A table with one row, for two tokens of a small layer with two groups."""
    gemv = kernel_module(f"{NVIDIA_OPS}.o_proj_gemv")
    tiles = kernel_module(f"{NVIDIA_OPS}.small_m_gemv_tiles")
    tile = tiles.Tile("simt", 1, 32, 2, 1)
    row = tiles.GemvShape(2, RANK, WIDTH, 2, SM90, "float32")
    monkeypatch.setattr(gemv, "O_PROJ_TILES", {row: tile})
    return gemv, tile


def layer(device: str, groups: int = 2) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(groups, RANK, WIDTH, generator=generator).to(torch.float8_e4m3fn)
    scale = torch.rand(groups, RANK // 128, WIDTH // 128, generator=generator) + 0.1
    return SimpleNamespace(weight=weight.to(device), weight_scale_inv=scale.to(device))


def project(
    o_proj: ModuleType, wo_a: Any, device: str, tokens: int = 2, groups: int = 2, **options: Any
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(tokens)
    o = torch.randn(tokens, groups * HEADS, HEAD, generator=generator).to(torch.bfloat16)
    positions = torch.arange(tokens)
    cache = torch.randn(tokens, 64, generator=generator)
    seen: list[torch.Tensor] = []

    def wo_b(z: torch.Tensor) -> torch.Tensor:
        seen.append(z)
        return z

    result = o_proj.deep_gemm_fp8_o_proj(
        o.to(device),
        positions.to(device),
        cache.to(device),
        wo_a,
        wo_b,
        n_groups=groups,
        heads_per_group=HEADS,
        nope_dim=448,
        rope_dim=64,
        o_lora_rank=RANK,
        einsum_recipe=(1, 128, 128),
        **{"tma_aligned_scales": False} | options,
    )
    return result, seen


def einsum(
    equation: str, left: Any, right: Any, out: torch.Tensor, recipe: tuple[int, int, int]
) -> None:
    assert equation == "bhr,hdr->bhd"
    (a, a_scale), (w, w_scale) = left, right
    a_full = a.float() * a_scale.repeat_interleave(128, dim=2)
    w_full = w.float() * w_scale.repeat_interleave(128, dim=1).repeat_interleave(128, dim=2)
    out.copy_(torch.einsum("tgk,gnk->tgn", a_full, w_full))


@pytest.fixture
def einsum_calls(kernels: KernelTree) -> list[Any]:
    kernels.einsum_calls.clear()
    kernels.einsum = einsum
    return kernels.einsum_calls


def test_without_a_decision_of_the_layer_it_is_upstreams_path(
    o_proj: ModuleType, device: str, one_tile: Any, einsum_calls: list[Any]
) -> None:
    _, seen = project(o_proj, layer(device), device)
    ((arguments, options),) = einsum_calls
    scale = arguments[1][1]
    assert scale.stride(0) == 1
    assert options == {"recipe": (1, 128, 128)}
    assert seen[0].data_ptr() == arguments[3].data_ptr()


def test_a_measured_shape_runs_as_gemv_into_the_same_buffer(
    o_proj: ModuleType,
    device: str,
    one_tile: Any,
    einsum_calls: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, tile = one_tile
    wo_a = layer(device)
    expected, _ = project(o_proj, wo_a, device)
    einsum_calls.clear()
    calls = []
    run = o_proj.small_m_gemv

    def watched(*arguments: Any) -> None:
        calls.append(arguments)
        run(*arguments)

    monkeypatch.setattr(o_proj, "small_m_gemv", watched)
    result, seen = project(o_proj, wo_a, device, gemv_capability=SM90, chunk_parallel=True)
    assert not einsum_calls
    ((_, a_scale, weight, weight_scale, out, used),) = calls
    assert used is tile
    assert a_scale.stride(2) == 1
    assert weight is wo_a.weight
    assert weight_scale is wo_a.weight_scale_inv
    assert seen[0].data_ptr() == out.data_ptr()
    assert float((result.float() - expected.float()).norm() / expected.float().norm()) < 2**-6


@pytest.mark.parametrize(
    "case",
    [
        {"tokens": 1},
        {"tokens": 3},
        {"gemv_capability": (8, 9)},
        {"gemv_capability": (10, 0)},
        {"tma_aligned_scales": True},
    ],
    ids=str,
)
def test_any_other_shape_or_device_runs_as_einsum(
    o_proj: ModuleType,
    kernels: KernelTree,
    device: str,
    one_tile: Any,
    einsum_calls: list[Any],
    case: dict[str, Any],
) -> None:
    kernels.einsum = lambda *_, **__: None
    project(o_proj, layer(device), device, **{"gemv_capability": SM90} | case)
    assert len(einsum_calls) == 1


@pytest.mark.parametrize(
    "fault", ["packed scale", "flat weight", "flat scale", "bf16 weight", "no scale", "strided"]
)
def test_weights_in_another_form_have_no_tile(one_tile: Any, device: str, fault: str) -> None:
    gemv, tile = one_tile
    wo_a = layer(device)
    arguments = (2, 2, RANK, WIDTH, SM90)
    assert gemv.o_proj_tile(wo_a, *arguments) is tile
    if fault == "packed scale":
        wo_a.weight_scale_inv = wo_a.weight_scale_inv.int()
    elif fault == "flat weight":
        wo_a.weight = wo_a.weight.flatten(0, 1)
    elif fault == "flat scale":
        wo_a.weight_scale_inv = wo_a.weight_scale_inv.flatten(0, 1)
    elif fault == "bf16 weight":
        wo_a.weight = wo_a.weight.to(torch.bfloat16)
    elif fault == "no scale":
        del wo_a.weight_scale_inv
    else:
        wide = torch.zeros(2, RANK, 2 * WIDTH, device=device).to(torch.float8_e4m3fn)
        wo_a.weight = wide[..., :WIDTH]
    assert gemv.o_proj_tile(wo_a, *arguments) is None
