"""Clamped SwiGLU with FP8 quantization in one kernel: numbers, edges, and what is written.

The interpreter narrows to bf16 by truncation, narrows to FP8 with a lost carry, and lets NaN pass
through min and max. So there scales are compared with a reference that truncates too, codes with
those of upstream's quantization kernel, and NaN not at all. On a GPU the
reference rounds as the hardware does and every byte is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import NVIDIA_OPS  # noqa: E402
from upstream_kernels import FP8_UTILS, extract  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]

LIMIT = 10.0
WIDTH = 256


@pytest.fixture(scope="module")
def swiglu(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(f"{NVIDIA_OPS}.swiglu_fp8_quant")


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Narrow as the device under test does, and widen again."""
    if x.is_cuda:
        return x.to(torch.bfloat16).float()
    truncated = x.contiguous().view(torch.int32) & -65536
    return truncated.view(torch.float32)


def reference_activation(gate_up: torch.Tensor) -> torch.Tensor:
    """What ``silu_and_mul_with_clamp`` writes, [T, I], as FP32."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    limit = torch.full_like(gate, LIMIT)
    # fmin and fmax return the operand that is a number, as the CUDA kernels do.
    gate = to_bf16(torch.fmin(gate, limit))
    up = to_bf16(torch.fmax(torch.fmin(up, limit), -limit)) + 0.0
    return to_bf16(to_bf16(gate / (1.0 + torch.exp(-gate))) * up)


def reference(gate_up: torch.Tensor, ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Values before the FP8 cast [T, I] and scales [T, I // 128]: upstream's two kernels."""
    groups = reference_activation(gate_up).unflatten(-1, (-1, 128))
    absmax = torch.nan_to_num(groups.abs(), nan=0.0, posinf=math.inf).amax(dim=-1)
    absmax = absmax.clamp(min=1e-10)
    # Division by a tensor: torch turns division by a number into a multiplication.
    scale = absmax / torch.full_like(absmax, 448.0)
    if ue8m0:
        scale = torch.exp2(torch.ceil(torch.log2(scale.clamp(min=1e-10))))
    bound = torch.full_like(groups, 448.0)
    values = torch.fmin(torch.fmax(groups / scale.unsqueeze(-1), -bound), bound)
    return values.flatten(-2), scale


def inputs(tokens: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    gate_up = torch.randn(tokens, 2 * WIDTH, generator=generator) * 6
    gate_up[0, :128] = 0
    return gate_up.to(torch.bfloat16).to(device)


@pytest.mark.parametrize("ue8m0", [False, True])
@pytest.mark.parametrize("tokens", [1, 3, 5])
def test_scales_and_on_a_gpu_codes_are_those_of_the_unfused_path(
    swiglu: ModuleType, device: str, tokens: int, ue8m0: bool
) -> None:
    gate_up = inputs(tokens, device)
    q, scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, ue8m0, True)
    values, expected_scale = reference(gate_up, ue8m0)
    assert torch.equal(scale, expected_scale)
    if device == "cuda":
        expected = values.to(torch.float8_e4m3fn)
        assert torch.equal(q.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("ue8m0", [False, True])
def test_codes_are_those_of_upstreams_quantization_kernel(
    swiglu: ModuleType, device: str, vllm_tree: Path, ue8m0: bool
) -> None:
    """Whatever FP8 narrowing the device has, both kernels go through it."""
    name = "_per_token_group_quant_fp8_colmajor"
    upstream = getattr(extract(vllm_tree, FP8_UTILS, name), name)
    tokens = 4
    gate_up = inputs(tokens, device)
    activated = reference_activation(gate_up).to(torch.bfloat16)
    expected = torch.empty(tokens, WIDTH, dtype=torch.float8_e4m3fn, device=device)
    expected_scale = torch.empty(WIDTH // 128, tokens, device=device).t()
    upstream[(tokens * WIDTH // 128,)](
        activated,
        expected,
        expected_scale,
        128,
        WIDTH,
        WIDTH,
        expected_scale.stride(1),
        1e-10,
        fp8_min=-448.0,
        fp8_max=448.0,
        use_ue8m0=ue8m0,
        BLOCK=128,
        num_warps=1,
    )
    q, scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, ue8m0, False)
    # This kernel multiplies by 1 / 448 where upstream's CUDA kernel, and ours, divides, and has
    # no lower bound of its own for a group of zeros.
    assert torch.allclose(scale[1:], expected_scale[1:], rtol=2**-22, atol=0)
    same = q.view(torch.uint8) == expected.view(torch.uint8)
    assert same.float().mean() > 0.98


def test_a_group_of_zeros_has_the_smallest_scale(swiglu: ModuleType, device: str) -> None:
    gate_up = inputs(1, device)
    q, scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, False)
    smallest = torch.tensor(1e-10) / torch.tensor(448.0)
    assert scale[0, 0] == smallest.to(device)
    assert (q[0, :128].float() == 0).all()


@pytest.mark.parametrize(
    ("gate", "up", "expected"),
    [
        (math.nan, 1.0, LIMIT / (1 + math.exp(-LIMIT))),
        (math.inf, 1.0, LIMIT / (1 + math.exp(-LIMIT))),
        (20.0, 1.0, LIMIT / (1 + math.exp(-LIMIT))),
        (10.0, 1.0, LIMIT / (1 + math.exp(-LIMIT))),
        (-20.0, 1.0, -20.0 / (1 + math.exp(20.0))),
        (1.0, 20.0, LIMIT / (1 + math.exp(-1.0))),
        (1.0, -20.0, -LIMIT / (1 + math.exp(-1.0))),
        (1.0, math.inf, LIMIT / (1 + math.exp(-1.0))),
        (1.0, -math.inf, -LIMIT / (1 + math.exp(-1.0))),
        (1.0, math.nan, LIMIT / (1 + math.exp(-1.0))),
        (0.0, math.nan, 0.0),
    ],
)
def test_values_at_and_beyond_the_limit(
    swiglu: ModuleType, device: str, gate: float, up: float, expected: float
) -> None:
    if device == "cpu" and (math.isnan(gate) or math.isnan(up)):
        pytest.skip("the interpreter lets NaN pass through min and max")
    gate_up = torch.zeros(1, 2 * WIDTH)
    gate_up[0, 5], gate_up[0, WIDTH + 5] = gate, up
    q, scale = swiglu.swiglu_fp8_quant(gate_up.to(torch.bfloat16).to(device), LIMIT, False, False)
    found = float(q[0, 5].float() * scale[0, 0])
    # Alone in its group the value is the largest, so FP8 adds nothing to bf16's two roundings.
    assert math.isclose(found, expected, rel_tol=2**-6, abs_tol=1e-9)
    assert int((q.float() != 0).sum()) == (expected != 0)


def test_a_gate_of_minus_infinity_ends_at_the_lower_bound(swiglu: ModuleType, device: str) -> None:
    gate_up = torch.ones(1, 2 * WIDTH)
    gate_up[0, 5] = -math.inf
    q, scale = swiglu.swiglu_fp8_quant(gate_up.to(torch.bfloat16).to(device), LIMIT, False, False)
    # The interpreter's lost carry makes -384 of it.
    assert float(q[0, 5].float()) == -448.0 if device == "cuda" else -384.0
    assert torch.isfinite(scale).all()


@pytest.mark.parametrize("tokens", [9, 16])
def test_programs_of_several_tokens_give_the_same_bytes(
    swiglu: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    gate_up = inputs(tokens, device)
    q, scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    monkeypatch.setattr(swiglu, "ONE_TOKEN_PROGRAMS", 8)
    several_q, several_scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    assert torch.equal(several_q.view(torch.uint8), q.view(torch.uint8))
    assert torch.equal(several_scale, scale)


@pytest.mark.parametrize(("tokens", "aligned"), [(1, 4), (4, 4), (5, 8)])
def test_scales_lie_as_the_consumer_reads_them(
    swiglu: ModuleType, device: str, tokens: int, aligned: int
) -> None:
    gate_up = inputs(tokens, device)
    q, padded = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    _, packed = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, False)
    assert q.shape == (tokens, WIDTH)
    assert q.is_contiguous()
    assert padded.shape == packed.shape == (tokens, WIDTH // 128)
    assert padded.stride() == (1, aligned)
    assert packed.stride() == (1, tokens)
    assert torch.equal(padded, packed)


def test_everything_is_written(
    swiglu: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate_up = inputs(3, device)
    expected_q, expected_scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    empty, empty_strided = torch.empty, torch.empty_strided

    def dirty_codes(*args: object, **kwargs: object) -> torch.Tensor:
        buffer = empty(*args, **kwargs)
        buffer.view(torch.uint8).fill_(0x7F)
        return buffer

    monkeypatch.setattr(torch, "empty", dirty_codes)
    monkeypatch.setattr(
        torch, "empty_strided", lambda *a, **k: empty_strided(*a, **k).fill_(float("nan"))
    )
    q, scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    assert torch.equal(q.view(torch.uint8), expected_q.view(torch.uint8))
    assert torch.equal(scale, expected_scale)


def test_rows_of_a_wider_buffer_serve(swiglu: ModuleType, device: str) -> None:
    gate_up = inputs(3, device)
    wide = torch.zeros(3, 2 * WIDTH + 64, dtype=torch.bfloat16, device=device)
    wide[:, : 2 * WIDTH] = gate_up
    q, scale = swiglu.swiglu_fp8_quant(wide[:, : 2 * WIDTH], LIMIT, False, True)
    expected_q, expected_scale = swiglu.swiglu_fp8_quant(gate_up, LIMIT, False, True)
    assert torch.equal(q.view(torch.uint8), expected_q.view(torch.uint8))
    assert torch.equal(scale, expected_scale)


def test_no_tokens_is_no_launch(swiglu: ModuleType, device: str) -> None:
    q, scale = swiglu.swiglu_fp8_quant(
        torch.empty(0, 2 * WIDTH, dtype=torch.bfloat16, device=device), LIMIT, False, True
    )
    assert q.shape == (0, WIDTH)
    assert scale.shape == (0, 2)
