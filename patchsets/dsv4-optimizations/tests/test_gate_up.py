"""The shared expert's gate-up projection: which layer and which call take the GEMV."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from contract_config import matching_config  # noqa: E402
from kernel_tree import NVIDIA_OPS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]

SM90 = (9, 0)
PREFIX = "model.layers.3.ffn.shared_experts.gate_up_proj"


@pytest.fixture
def gate_up(
    kernel_module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """The module, with a tile in its table: the shipped table may be empty."""
    module = kernel_module(f"{NVIDIA_OPS}.gate_up_gemv")
    tiles = kernel_module(f"{NVIDIA_OPS}.small_m_gemv_tiles")
    row = tiles.GemvShape(1, 512, 4096, 1, SM90, "float32")
    monkeypatch.setattr(module, "GATE_UP_TILES", {row: tiles.Tile("simt", 1, 128, 4, 4)})
    return module


@pytest.fixture
def environment(kernel_module: Callable[[str], ModuleType]) -> Any:
    policy = kernel_module("vllm.models.deepseek_v4.dsv4port_policy")
    return policy.Environment("cuda", None, False)


def build(gate_up: ModuleType, environment: Any, **change: Any) -> Any:
    case = {
        "layer": SimpleNamespace(prefix=PREFIX, tp_size=8),
        "vllm_config": matching_config(),
        "environment": environment,
        "capability": SM90,
    }
    return gate_up.GateUpGemv.for_layer(**case | change)


def test_the_layer_of_the_contract_gets_the_path(gate_up: ModuleType, environment: Any) -> None:
    assert build(gate_up, environment) is not None


@pytest.mark.parametrize(
    "layer",
    [
        SimpleNamespace(prefix="model.layers.3.ffn.experts.gate_up_proj", tp_size=8),
        SimpleNamespace(prefix="model.layers.3.ffn.shared_experts.down_proj", tp_size=8),
        SimpleNamespace(prefix=PREFIX + ".x", tp_size=8),
        SimpleNamespace(prefix=None, tp_size=8),
        SimpleNamespace(tp_size=8),
        SimpleNamespace(prefix=PREFIX, tp_size=4),
        SimpleNamespace(prefix=PREFIX, tp_size=1),
        SimpleNamespace(prefix=PREFIX),
    ],
    ids=str,
)
def test_any_other_layer_gets_none(gate_up: ModuleType, environment: Any, layer: Any) -> None:
    assert build(gate_up, environment, layer=layer) is None


@pytest.mark.parametrize("capability", [None, (8, 9), (10, 0), (12, 0)], ids=str)
def test_an_unmeasured_device_gets_none(
    gate_up: ModuleType, environment: Any, capability: Any
) -> None:
    assert build(gate_up, environment, capability=capability) is None


def test_another_deployment_gets_none(gate_up: ModuleType, environment: Any) -> None:
    other = matching_config()
    other.parallel_config.tensor_parallel_size = 4
    assert build(gate_up, environment, vllm_config=other) is None
    assert build(gate_up, environment, vllm_config=None) is None


def call(**change: Any) -> dict[str, Any]:
    fitting = {
        "x": torch.empty(1, 4096, dtype=torch.bfloat16),
        "weight": torch.empty(512, 4096, dtype=torch.float8_e4m3fn),
        "weight_scale": torch.empty(4, 32),
        "bias": None,
    }
    return fitting | change


def test_one_token_is_accepted(gate_up: ModuleType, environment: Any) -> None:
    assert build(gate_up, environment).accepts(**call())


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.empty(2, 4096, dtype=torch.bfloat16)},
        {"x": torch.empty(0, 4096, dtype=torch.bfloat16)},
        {"x": torch.empty(1, 1, 4096, dtype=torch.bfloat16)},
        {"x": torch.empty(1, 2048, dtype=torch.bfloat16)},
        {"x": torch.empty(1, 4096, dtype=torch.float16)},
        {"x": torch.empty(1, 8192, dtype=torch.bfloat16)[:, ::2]},
        {"weight": torch.empty(512, 4096, dtype=torch.bfloat16)},
        {"weight": torch.empty(1024, 4096, dtype=torch.float8_e4m3fn)},
        {"weight": torch.empty(4096, 512, dtype=torch.float8_e4m3fn).t()},
        {"weight_scale": None},
        {"weight_scale": torch.empty(4, 32, dtype=torch.int32)},
        {"weight_scale": torch.empty(512, 8)},
        {"bias": torch.empty(512)},
    ],
    ids=range(13),
)
def test_any_other_call_is_upstreams(
    gate_up: ModuleType, environment: Any, change: dict[str, Any]
) -> None:
    assert not build(gate_up, environment).accepts(**call(**change))


def test_the_result_is_the_product_with_the_bf16_activation(
    gate_up: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A smaller layer, for the interpreter's sake.
    monkeypatch.setattr(gate_up, "WEIGHT_SHAPE", (128, 512))
    path = gate_up.GateUpGemv(gate_up.Tile("simt", 1, 128, 4, 4))
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, 512, generator=generator).to(torch.bfloat16).to(device)
    weight = torch.randn(128, 512, generator=generator).to(torch.float8_e4m3fn).to(device)
    scale = torch.rand(1, 4, generator=generator).add(0.1).to(device)
    out = path(x, weight, scale)
    assert (out.shape, out.dtype) == ((1, 128), torch.bfloat16)
    expected = x.float() @ (weight.float() * scale.repeat_interleave(128, 1)).t()
    assert float((out.float() - expected).norm() / expected.norm()) < 2**-7
