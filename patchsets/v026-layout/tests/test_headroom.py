"""The bytes that sparse prefill needs beside the KV cache, and what the worker does with them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.fix

HEADROOM = "vllm/v1/worker/sparse_prefill_headroom.py"
WORKER = "vllm/v1/worker/gpu_worker.py"
ARENA = 512 * 1024 * 1024


@pytest.fixture
def headroom(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(HEADROOM)


@pytest.mark.parametrize(
    ("platform", "tokens", "custom_all_reduce", "expected"),
    [
        ("musa", 8195, False, 537_067_520),
        ("musa", 8195, True, 1_073_938_432),
        ("musa", 1, False, 65_536),
        ("musa", 0, True, ARENA),
        ("cuda", 8195, False, 0),
        ("cuda", 8195, True, 0),
    ],
)
def test_the_arithmetic(
    headroom: ModuleType, platform: str, tokens: int, custom_all_reduce: bool, expected: int
) -> None:
    needs = headroom.PLATFORMS[platform]
    assert headroom.headroom_bytes(needs, tokens, custom_all_reduce) == expected


def test_the_parts_are_independent(headroom: ModuleType) -> None:
    early_arena = headroom.PlatformNeeds(padded_output=True, arena_bytes=0)
    assert headroom.headroom_bytes(early_arena, 8195, True) == 537_067_520
    no_padding = headroom.PlatformNeeds(padded_output=False, arena_bytes=ARENA)
    assert headroom.headroom_bytes(no_padding, 8195, True) == ARENA


@pytest.mark.parametrize(("off", "expected"), [(False, 1_073_938_432), (True, 537_067_520)])
def test_the_deployment_on_musa(
    headroom: ModuleType,
    runtime: ModuleType,
    deployment_on_musa: SimpleNamespace,
    off: bool,
    expected: int,
) -> None:
    deployment_on_musa.parallel_config.disable_custom_all_reduce = off
    assert headroom.sparse_prefill_headroom(deployment_on_musa) == expected


def test_the_deployment_on_cuda(
    headroom: ModuleType, runtime: ModuleType, deployment: SimpleNamespace
) -> None:
    assert runtime.decide(deployment).allows("HEADROOM")
    assert headroom.sparse_prefill_headroom(deployment) == 0


def test_outside_of_the_contract(
    headroom: ModuleType,
    runtime: ModuleType,
    deployment_on_musa: SimpleNamespace,
    outside: SimpleNamespace,
) -> None:
    assert outside is deployment_on_musa
    assert headroom.sparse_prefill_headroom(outside) == 0


def test_without_headroom_nothing_is_checked(headroom: ModuleType) -> None:
    for available in (-5, 0, 7):
        assert headroom.available_after(0, available) == available


def test_one_byte_must_remain(headroom: ModuleType) -> None:
    assert headroom.available_after(100, 101) == 1
    for available in (100, 99, 0, -1):
        with pytest.raises(ValueError, match=rf"100 bytes .* only {available} bytes"):
            headroom.available_after(100, available)


def test_an_explicit_size_is_only_warned_about(
    headroom: ModuleType,
    runtime: ModuleType,
    deployment_on_musa: SimpleNamespace,
    platform: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    platform.name = "cuda"
    headroom.warn_if_not_reserved(deployment_on_musa)
    assert not caplog.records
    platform.name = "musa"
    headroom.warn_if_not_reserved(deployment_on_musa)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "1073938432 bytes" in record.getMessage()


def assigns(node: ast.stmt, target: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target


def test_the_worker_sizes_the_kv_cache_without_it(
    headroom: ModuleType, method_of: Callable[[str, str, str], ast.FunctionDef]
) -> None:
    """Runs the worker's own statements from the sum to the log of it."""
    body = method_of(WORKER, "Worker", "determine_available_memory").body
    first = next(
        i for i, node in enumerate(body) if assigns(node, "self.available_kv_cache_memory_bytes")
    )
    last = next(i for i, node in enumerate(body) if assigns(node, "unrequested_memory"))
    code = compile(ast.Module(body[first:last], type_ignores=[]), WORKER, "exec")
    asked = []

    def size(needed: int) -> SimpleNamespace:
        worker = SimpleNamespace(requested_memory=1000, vllm_config=object())
        names = {
            "self": worker,
            "profile_result": SimpleNamespace(non_kv_cache_memory=300),
            "cudagraph_memory_estimate_applied": 50,
            "sparse_prefill_headroom": lambda config: asked.append(config) or needed,
            "available_after": headroom.available_after,
        }
        exec(code, names)
        assert asked.pop() is worker.vllm_config
        return worker

    assert size(0).available_kv_cache_memory_bytes == 650
    assert size(150).available_kv_cache_memory_bytes == 500
    with pytest.raises(ValueError, match="650 bytes"):
        size(650)


def test_the_suggested_size_leaves_it_out(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    """A startup plan takes the suggestion over and skips profiling the next time."""
    method = method_of(WORKER, "Worker", "compile_or_warm_up_model")
    (sum_of_others,) = (
        node
        for node in ast.walk(method)
        if isinstance(node, ast.stmt) and assigns(node, "non_kv_cache_memory")
    )
    assert "+ self.sparse_prefill_headroom" in ast.unparse(sum_of_others)


def test_an_explicit_size_reaches_the_warning(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    method = method_of(WORKER, "Worker", "determine_available_memory")
    (explicit,) = (
        node
        for node in method.body
        if isinstance(node, ast.If) and "kv_cache_memory_bytes :=" in ast.unparse(node.test)
    )
    calls = [ast.unparse(node) for node in explicit.body]
    assert "warn_if_not_reserved(self.vllm_config)" in calls
    assert not any("available_after" in call for call in calls)
