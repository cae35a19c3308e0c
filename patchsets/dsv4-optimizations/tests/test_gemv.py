"""The small-M block-FP8 GEMV: numbers, and what it writes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import NVIDIA_OPS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]

N, K = 256, 512
TILES = [
    ("simt", 1, 16, 1, 1),
    ("simt", 1, 32, 4, 4),
    ("simt", 2, 16, 2, 2),
    ("simt", 4, 128, 1, 4),
    ("mma", 16, 8, 2, 2),
    ("mma", 16, 32, 4, 4),
]


@pytest.fixture(scope="module")
def gemv(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(f"{NVIDIA_OPS}.small_m_gemv")


def operands(tokens: int, groups: int, device: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(31 * tokens + groups)

    def fp8(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).mul(40).to(torch.float8_e4m3fn).to(device)

    def positive(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator).add(0.1).to(device)

    return {
        "a": fp8(groups, tokens, K).transpose(0, 1),
        "a_scale": positive(tokens, groups, K // 128),
        "weight": fp8(groups, N, K),
        "weight_scale": positive(groups, N // 128, K // 128),
    }


def reference(operands: dict[str, torch.Tensor | None]) -> torch.Tensor:
    """The same product with every scale applied in FP32."""
    a = operands["a"].float()
    if operands["a_scale"] is not None:
        a = a * operands["a_scale"].repeat_interleave(128, dim=2)
    scale = operands["weight_scale"].repeat_interleave(128, dim=1).repeat_interleave(128, dim=2)
    return torch.einsum("tgk,gnk->tgn", a, operands["weight"].float() * scale)


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize(("tokens", "groups"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("shape", TILES, ids=str)
def test_the_product_is_right_and_every_element_is_written(
    gemv: ModuleType, device: str, shape: tuple[object, ...], tokens: int, groups: int
) -> None:
    values = operands(tokens, groups, device)
    out = torch.full((tokens, groups, N), float("nan"), dtype=torch.bfloat16, device=device)
    gemv.small_m_gemv(**values, out=out, tile=gemv.Tile(*shape))
    # One rounding to bf16; the interpreter truncates instead.
    assert relative_error(out, reference(values)) < 2**-7


def test_scales_may_have_any_strides(gemv: ModuleType, device: str) -> None:
    values = operands(3, 2, device)
    tile = gemv.Tile("simt", 1, 32, 2, 1)
    expected = torch.empty((3, 2, N), dtype=torch.bfloat16, device=device)
    gemv.small_m_gemv(**values, out=expected, tile=tile)
    by_block = values["a_scale"].permute(2, 1, 0).contiguous().permute(2, 1, 0)
    weight_by_block = values["weight_scale"].transpose(1, 2).contiguous().transpose(1, 2)
    out = torch.empty_like(expected)
    gemv.small_m_gemv(
        **values | {"a_scale": by_block, "weight_scale": weight_by_block}, out=out, tile=tile
    )
    assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [("simt", 1, 32, 2, 1), ("mma", 16, 16, 2, 2)], ids=str)
def test_a_strided_output_is_filled_and_its_surroundings_stay(
    gemv: ModuleType, device: str, shape: tuple[object, ...]
) -> None:
    values = operands(3, 2, device)
    tile = gemv.Tile(*shape)
    packed = torch.empty((3, 2, N), dtype=torch.bfloat16, device=device)
    gemv.small_m_gemv(**values, out=packed, tile=tile)
    buffer = torch.full((5, 4, N + 16), 77.0, dtype=torch.bfloat16, device=device)
    out = buffer[1:4, 1:3, 8 : 8 + N]
    gemv.small_m_gemv(**values, out=out, tile=tile)
    assert torch.equal(out, packed)
    out.fill_(77.0)
    assert (buffer == 77.0).all()


def test_no_other_buffer_is_allocated_and_nothing_is_returned(
    gemv: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = operands(1, 1, device)
    out = torch.empty((1, 1, N), dtype=torch.bfloat16, device=device)
    address = out.data_ptr()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a buffer was allocated")

    for name in ("empty", "zeros", "empty_like", "empty_strided"):
        monkeypatch.setattr(torch, name, refuse)
    tile = gemv.Tile("simt", 1, 32, 2, 1)
    assert gemv.small_m_gemv(**values, out=out, tile=tile) is None
    assert out.data_ptr() == address
    monkeypatch.undo()
    assert relative_error(out, reference(values)) < 2**-7


def test_bf16_activations_need_no_scale(gemv: ModuleType, device: str) -> None:
    values = operands(2, 1, device)
    values |= {"a": values["a"].float().mul(0.37).to(torch.bfloat16), "a_scale": None}
    out = torch.full((2, 1, N), float("nan"), dtype=torch.bfloat16, device=device)
    gemv.small_m_gemv(**values, out=out, tile=gemv.Tile("simt", 1, 32, 2, 1))
    assert relative_error(out, reference(values)) < 2**-7


@pytest.mark.parametrize(
    "fault",
    [
        "out of another dtype",
        "out of another shape",
        "out not contiguous in its last dimension",
        "out shares memory",
        "packed weight scale",
        "weight not contiguous",
        "activation without a scale",
        "tile too long",
    ],
)
def test_operands_that_do_not_fit_are_refused(gemv: ModuleType, device: str, fault: str) -> None:
    values: dict[str, object] = dict(operands(2, 1, device))
    out = torch.empty((2, 1, N), dtype=torch.bfloat16, device=device)
    tile = gemv.Tile("simt", 1, 32, 2, 1)
    if fault == "out of another dtype":
        out = out.float()
    elif fault == "out of another shape":
        out = out[:1]
    elif fault == "out not contiguous in its last dimension":
        out = torch.empty((2, 1, 2 * N), dtype=torch.bfloat16, device=device)[..., ::2]
    elif fault == "out shares memory":
        shared = torch.empty(2 * K, dtype=torch.uint8, device=device)
        values["a"] = shared.view(torch.float8_e4m3fn).view(2, 1, K)
        out = shared.view(torch.bfloat16)[: 2 * N].view(2, 1, N)
    elif fault == "packed weight scale":
        values["weight_scale"] = values["weight_scale"].int()  # type: ignore[attr-defined]
    elif fault == "weight not contiguous":
        wide = torch.zeros((1, N, 2 * K), device=device).to(torch.float8_e4m3fn)
        values["weight"] = wide[..., :K]
    elif fault == "activation without a scale":
        values["a_scale"] = None
    else:
        tile = gemv.Tile("simt", 1, 32, 8, 1)
    with pytest.raises(AssertionError):
        gemv.small_m_gemv(**values, out=out, tile=tile)
