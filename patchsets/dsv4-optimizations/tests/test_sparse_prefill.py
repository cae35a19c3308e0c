"""Sparse prefill into the caller's buffer, with providers that keep and break the contract."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_tree import SPARSE_PREFILL  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.fix]


@pytest.fixture
def prefill(kernel_module: Callable[[str], ModuleType]) -> ModuleType:
    return kernel_module(SPARSE_PREFILL)


class Provider:
    """Doubles q. ``behaviour`` says what it does with ``out``."""

    def __init__(self, behaviour: str = "writes") -> None:
        self.behaviour = behaviour
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        if self.behaviour == "fails":
            raise RuntimeError("launch failed")
        result = arguments["q"] * 2
        out = arguments.get("out")
        if self.behaviour == "returns its own":
            return (result, None, None)
        if self.behaviour == "returns nothing":
            return None
        if self.behaviour == "returns a part":
            return (out[1:], None, None)
        if out is None:
            return (result, None, None)
        out.copy_(result)
        return (out, None, None) if self.behaviour == "writes" else out


def buffers() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(3, 2, 8, generator=generator).to(torch.bfloat16)
    kv = torch.randn(5, 1, 8, generator=generator).to(torch.bfloat16)
    return {"out": torch.full_like(q, float("nan")), "q": q, "kv": kv}


def run(prefill: ModuleType, provider: Provider, **change: Any) -> torch.Tensor:
    case = buffers() | {"takes_out": True, "checked": True} | change
    prefill.sparse_prefill_into(case.pop("out"), provider=provider, **case, sm_scale=0.5)
    return change.get("out", case.get("out"))


@pytest.mark.parametrize("behaviour", ["writes", "returns out alone"])
@pytest.mark.parametrize("checked", [True, False])
def test_a_provider_that_takes_out_gets_the_callers_buffer(
    prefill: ModuleType, behaviour: str, checked: bool
) -> None:
    values = buffers()
    provider = Provider(behaviour)
    out = values["out"]
    run(prefill, provider, **values, checked=checked)
    (call,) = provider.calls
    assert call["out"] is out
    assert call["sm_scale"] == 0.5
    assert torch.equal(out, values["q"] * 2)


@pytest.mark.parametrize("checked", [True, False])
def test_the_result_of_a_provider_without_out_is_copied(prefill: ModuleType, checked: bool) -> None:
    values = buffers()
    provider = Provider("returns its own")
    run(prefill, provider, **values, takes_out=False, checked=checked)
    (call,) = provider.calls
    assert "out" not in call
    assert torch.equal(values["out"], values["q"] * 2)


def test_a_strided_part_of_a_larger_buffer_serves(prefill: ModuleType) -> None:
    values = buffers()
    larger = torch.zeros(4, 4, 8, dtype=torch.bfloat16)
    out = larger[1:, 1:3]
    run(prefill, Provider(), **values | {"out": out})
    assert torch.equal(out, values["q"] * 2)
    out.zero_()
    assert not larger.any()


@pytest.mark.parametrize("takes_out", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_a_failed_launch_is_not_tried_again(
    prefill: ModuleType, takes_out: bool, checked: bool
) -> None:
    provider = Provider("fails")
    with pytest.raises(RuntimeError, match="launch failed"):
        run(prefill, provider, takes_out=takes_out, checked=checked)
    assert len(provider.calls) == 1


@pytest.mark.parametrize("behaviour", ["returns its own", "returns a part", "returns nothing"])
def test_a_provider_that_writes_elsewhere_is_found_out(prefill: ModuleType, behaviour: str) -> None:
    provider = Provider(behaviour)
    with pytest.raises(prefill.SparsePrefillContractError, match="provider"):
        run(prefill, provider)
    assert len(provider.calls) == 1


@pytest.mark.parametrize(
    "fault", ["shape", "dtype", "contiguous", "memory with q", "memory with kv"]
)
def test_unfit_buffers_are_refused_before_the_launch(prefill: ModuleType, fault: str) -> None:
    values = buffers()
    if fault == "shape":
        values["out"] = values["out"][:2]
    elif fault == "dtype":
        values["out"] = values["out"].float()
    elif fault == "contiguous":
        values["out"] = torch.zeros(3, 2, 16, dtype=torch.bfloat16)[..., ::2]
    elif fault == "memory with q":
        values["out"] = values["q"].view(values["q"].shape)
    else:
        shared = torch.zeros(48 + 40, dtype=torch.bfloat16)
        values["out"] = shared[:48].view(3, 2, 8)
        values["kv"] = shared[48:].view(5, 1, 8)
    provider = Provider()
    with pytest.raises(prefill.SparsePrefillContractError, match=fault):
        run(prefill, provider, **values)
    assert not provider.calls


def test_unchecked_is_the_call_that_upstream_makes(prefill: ModuleType) -> None:
    provider = Provider("returns its own")
    values = buffers()
    run(prefill, provider, **values, checked=False)
    (call,) = provider.calls
    assert set(call) == {"q", "kv", "sm_scale", "out"}
    assert torch.isnan(values["out"]).all()


def test_an_empty_batch_is_no_overlap(prefill: ModuleType) -> None:
    empty = torch.empty(0, 2, 8, dtype=torch.bfloat16)
    run(prefill, Provider(), out=empty, q=torch.empty_like(empty), kv=torch.empty_like(empty))
