"""When the shared expert's activation is fused."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from contract_config import matching_config  # noqa: E402
from kernel_tree import NVIDIA_OPS, ClampedSwiglu, KernelTree, QuantKey  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]


@pytest.fixture
def shared(
    kernel_module: Callable[[str], ModuleType],
    kernels: KernelTree,
    monkeypatch: pytest.MonkeyPatch,
) -> ModuleType:
    """The module on an SM90 device, switched on: whether it ships so is for the measurement."""
    module = kernel_module(f"{NVIDIA_OPS}.shared_swiglu")
    monkeypatch.setattr(module, "MEASURED_FASTER", True)
    monkeypatch.setattr(kernels.platform, "capability", (9, 0))
    return module


@pytest.fixture
def environment(kernel_module: Callable[[str], ModuleType]) -> Any:
    return kernel_module("vllm.models.deepseek_v4.dsv4port_policy").Environment("cuda", None, False)


def down_proj(
    key: Any = QuantKey.FP8_DYNAMIC_128, column_major: bool = True, ue8m0: bool = False
) -> Any:
    quant = SimpleNamespace(
        column_major_scales=column_major, use_ue8m0=ue8m0, tma_aligned_scales=True
    )
    kernel = SimpleNamespace(input_quant_key=lambda: key, quant_fp8=quant)
    return SimpleNamespace(quant_method=SimpleNamespace(fp8_linear=kernel))


def build(shared: ModuleType, environment: Any, **change: Any) -> Any:
    case = {
        "act_fn": ClampedSwiglu(10.0),
        "down_proj": down_proj(),
        "vllm_config": matching_config(speculation=False),
        "environment": environment,
    }
    return shared.SharedSwiglu.for_layers(**case | change)


def test_the_layers_of_the_contract_get_the_path(shared: ModuleType, environment: Any) -> None:
    path = build(shared, environment, down_proj=down_proj(ue8m0=True))
    assert (path.limit, path.use_ue8m0, path.tma_aligned_scales) == (10.0, True, True)


@pytest.mark.parametrize("sequences", [1, 4, 16, 64])
def test_the_number_of_requests_plays_no_part(
    shared: ModuleType, environment: Any, sequences: int
) -> None:
    config = matching_config(speculation=False)
    config.scheduler_config.max_num_seqs = sequences
    config.compilation_config.cudagraph_capture_sizes = [1, 4, 16, 64]
    assert build(shared, environment, vllm_config=config) is not None


class Subclass(ClampedSwiglu):
    pass


@pytest.mark.parametrize(
    "change",
    [
        {"act_fn": object()},
        {"act_fn": Subclass(10.0)},
        {"act_fn": ClampedSwiglu(10.0, alpha=1.702)},
        {"act_fn": ClampedSwiglu(10.0, beta=1.0)},
        {"act_fn": ClampedSwiglu(10.01)},
        {"down_proj": down_proj(key=None)},
        {"down_proj": down_proj(key=QuantKey.OTHER)},
        {"down_proj": down_proj(column_major=False)},
        {"down_proj": SimpleNamespace()},
        {"down_proj": SimpleNamespace(quant_method=SimpleNamespace(fp8_linear=object()))},
        {"vllm_config": matching_config(speculation=True)},
        {"vllm_config": None},
    ],
    ids=range(12),
)
def test_any_other_layers_get_none(
    shared: ModuleType, environment: Any, change: dict[str, Any]
) -> None:
    assert build(shared, environment, **change) is None


@pytest.mark.parametrize("capability", [None, (8, 0), (10, 0), (12, 0)])
def test_another_device_gets_none(
    shared: ModuleType,
    environment: Any,
    kernels: KernelTree,
    monkeypatch: pytest.MonkeyPatch,
    capability: Any,
) -> None:
    monkeypatch.setattr(kernels.platform, "capability", capability)
    assert build(shared, environment) is None


def test_batch_invariant_mode_gets_none(
    shared: ModuleType, kernel_module: Callable[[str], ModuleType]
) -> None:
    policy = kernel_module("vllm.models.deepseek_v4.dsv4port_policy")
    for mode in (True, None):
        assert build(shared, policy.Environment("cuda", None, mode)) is None


def test_it_is_off_unless_it_was_measured_faster(
    shared: ModuleType, environment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MEASURED_FASTER", False)
    assert build(shared, environment) is None


def test_the_result_is_what_a_linear_layer_expects(
    shared: ModuleType, environment: Any, device: str
) -> None:
    path = build(shared, environment)
    x = torch.randn(5, 512, generator=torch.Generator().manual_seed(1))
    activation = path(x.to(torch.bfloat16).to(device))
    assert activation.data.shape == activation.orig_shape == (5, 256)
    assert activation.scale.shape == (5, 2)
    assert activation.scale.stride(0) == 1
    assert activation.orig_dtype == torch.bfloat16
    assert activation.quant_key is QuantKey.FP8_DYNAMIC_128


@pytest.mark.parametrize(
    "gate_up",
    [
        torch.zeros(2, 512),
        torch.zeros(2, 3, 512, dtype=torch.bfloat16),
        torch.zeros(2, 500, dtype=torch.bfloat16),
        torch.zeros(2, 1024, dtype=torch.bfloat16)[:, ::2],
    ],
    ids=["dtype", "dimensions", "width", "strides"],
)
def test_an_input_that_does_not_fit_is_not_taken(
    shared: ModuleType, environment: Any, gate_up: torch.Tensor
) -> None:
    assert build(shared, environment)(gate_up) is None
