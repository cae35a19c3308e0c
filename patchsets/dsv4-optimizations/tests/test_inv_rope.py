"""Inverse RoPE with FP8 quantization: a warp for each chunk, and the order of the scales."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import INV_ROPE, KernelTree  # noqa: E402

pytestmark = pytest.mark.torch

ROPE, NOPE, HEAD = 64, 448, 512
POSITIONS = 97
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1), (1, 2), (3, 2)]


@pytest.fixture(scope="module")
def quant(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(INV_ROPE)


@pytest.fixture
def dirty_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fresh buffer starts as NaN, so that what is not written is seen."""
    empty = torch.empty

    def filled(*args: object, **kwargs: object) -> torch.Tensor:
        buffer = empty(*args, **kwargs)
        if buffer.dtype == torch.float8_e4m3fn:
            buffer.view(torch.uint8).fill_(0x7F)
        elif buffer.dtype.is_floating_point:
            buffer.fill_(float("nan"))
        return buffer

    monkeypatch.setattr(torch, "empty", filled)


def inputs(
    tokens: int, groups: int, device: str, heads_per_group: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Attention output as a slice of a padded buffer, with a chunk and a token of zeros."""
    generator = torch.Generator().manual_seed(7 * tokens + groups)
    heads = groups * heads_per_group
    padded = torch.randn(tokens, heads + 3, HEAD, generator=generator)
    # Twelve orders of magnitude, below and above what FP8 holds.
    padded *= torch.logspace(-6, 6, heads + 3)[None, :, None]
    padded[0, 0, 128:256] = 0
    padded[-1] = 0
    positions = torch.randint(0, POSITIONS, (tokens,), generator=generator)
    cache = torch.randn(POSITIONS, ROPE, generator=generator)
    o = padded.to(torch.bfloat16).to(device)[:, :heads]
    return o, positions.to(device), cache.to(device)


def run(
    quant: ModuleType, tokens: int, groups: int, device: str, **options: object
) -> tuple[torch.Tensor, torch.Tensor]:
    o, positions, cache = inputs(tokens, groups, device)
    return quant.fused_inv_rope_fp8_quant(
        o, positions, cache, groups, o.shape[1] // groups, **options
    )


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def whole_storage(scale: torch.Tensor) -> torch.Tensor:
    """The scales with their padding rows, [group, token, block]."""
    group_stride = scale.stride(1)
    aligned = group_stride // scale.shape[2]
    by_token = scale.transpose(0, 1)
    return by_token.as_strided(
        (by_token.shape[0], aligned, by_token.shape[2]),
        (group_stride, by_token.stride(1), by_token.stride(2)),
    )


@pytest.mark.fix
@pytest.mark.parametrize("layout", ["mn_major", "k_major"])
@pytest.mark.parametrize(("tokens", "groups"), SHAPES)
def test_warps_and_layouts_do_not_change_a_byte(
    quant: ModuleType, device: str, tokens: int, groups: int, layout: str
) -> None:
    fp8, scale = run(quant, tokens, groups, device)
    for chunked in (False, True):
        new_fp8, new_scale = run(
            quant, tokens, groups, device, chunk_parallel=chunked, scale_layout=layout
        )
        assert same_bytes(new_fp8, fp8)
        assert torch.equal(new_scale, scale)
        assert new_fp8.stride() == fp8.stride()


@pytest.mark.fix
@pytest.mark.usefixtures("dirty_memory")
@pytest.mark.parametrize("layout", ["mn_major", "k_major"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5])
def test_every_scale_is_written_and_padding_rows_are_zero(
    quant: ModuleType, device: str, tokens: int, chunked: bool, layout: str
) -> None:
    fp8, scale = run(quant, tokens, 2, device, chunk_parallel=chunked, scale_layout=layout)
    storage = whole_storage(scale)
    assert storage.shape[1] == -(-tokens // 4) * 4
    assert torch.isfinite(storage).all()
    assert (storage[:, :tokens] > 0).all()
    assert (storage[:, tokens:] == 0).all()
    assert not torch.isnan(fp8.float()).any()


@pytest.mark.fix
@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_layouts_differ_in_strides_only(quant: ModuleType, device: str, tokens: int) -> None:
    aligned = -(-tokens // 4) * 4
    _, mn_major = run(quant, tokens, 2, device)
    _, k_major = run(quant, tokens, 2, device, scale_layout="k_major")
    blocks = mn_major.shape[2]
    assert mn_major.shape == k_major.shape == (tokens, 2, blocks)
    assert mn_major.stride() == (1, blocks * aligned, aligned)
    assert k_major.stride() == (blocks, blocks * aligned, 1)
    assert mn_major.untyped_storage().nbytes() == k_major.untyped_storage().nbytes()
    assert k_major[:, 0].is_contiguous()


@pytest.mark.fix
def test_defaults_are_upstreams_path(quant: ModuleType) -> None:
    parameters = inspect.signature(quant.fused_inv_rope_fp8_quant).parameters
    assert parameters["chunk_parallel"].default is False
    assert parameters["scale_layout"].default == "mn_major"


@pytest.mark.fix
def test_an_unknown_layout_and_packed_scales_in_k_major_are_refused(
    quant: ModuleType, device: str
) -> None:
    with pytest.raises(ValueError, match="scale_layout must be one of"):
        run(quant, 1, 1, device, scale_layout="row_major")
    with pytest.raises(ValueError, match="no k_major layout"):
        run(quant, 1, 1, device, scale_layout="k_major", tma_aligned_scales=True)


FITTING = {
    "num_tokens": 1,
    "quant_group_size": 128,
    "chunks_per_head": 4,
    "rope_start": 64,
    "half_rope": 32,
    "tma_aligned_scales": False,
    "chunk_parallel": True,
}


@pytest.mark.fix
@pytest.mark.parametrize(
    ("tokens", "warps"), [(1, 4), (16, 4), (17, 2), (32, 2), (33, 1), (64, 1), (8192, 1)]
)
def test_few_tokens_get_more_warps(quant: ModuleType, tokens: int, warps: int) -> None:
    assert quant._num_warps(**FITTING | {"num_tokens": tokens}) == warps


@pytest.mark.fix
@pytest.mark.parametrize(
    "change",
    [
        {"chunk_parallel": False},
        {"quant_group_size": 64},
        {"chunks_per_head": 2},
        {"rope_start": 0},
        {"half_rope": 16},
        {"tma_aligned_scales": True},
    ],
    ids=str,
)
def test_anything_else_keeps_upstreams_one_warp(
    quant: ModuleType, change: dict[str, object]
) -> None:
    assert quant._num_warps(**FITTING | change) == 1


@pytest.mark.fix
@pytest.mark.parametrize(
    ("options", "tokens", "warps"),
    [
        ({"chunk_parallel": False}, 1, 1),
        ({"chunk_parallel": True}, 1, 4),
        ({"chunk_parallel": True}, 20, 2),
        ({"chunk_parallel": True}, 40, 1),
        ({"chunk_parallel": True, "tma_aligned_scales": True}, 1, 1),
    ],
)
def test_how_the_kernel_is_launched(
    quant: ModuleType,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, bool],
    tokens: int,
    warps: int,
) -> None:
    launched = []

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*_: object, **meta: object) -> None:
                launched.append((grid, meta["num_warps"], "launch_pdl" in meta))

            return launch

    monkeypatch.setattr(quant, "_fused_inv_rope_fp8_quant_per_head", Kernel())
    run(quant, tokens, 1, device, **options)
    assert launched == [((-(-tokens // 4) * 4, 2), warps, True)]


@pytest.mark.fix
def test_the_fake_op_has_the_strides_of_the_real_one(
    quant: ModuleType, kernels: KernelTree, device: str
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for layout in ("mn_major", "k_major"):
        fp8, scale = run(quant, 5, 2, device, scale_layout=layout)
        o, positions, cache = inputs(5, 2, device)
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(value) for value in (o, positions, cache)]
            fake_fp8, fake_scale = quant.fused_inv_rope_fp8_quant(*fakes, 2, 2, scale_layout=layout)
        assert (fake_fp8.shape, fake_fp8.stride()) == (fp8.shape, fp8.stride())
        assert (fake_scale.shape, fake_scale.stride()) == (scale.shape, scale.stride())
