"""Runner V2 as it is in the tree: profiling and capture of the target and of the speculator.

Real are `profile_cudagraph_memory`, `capture_model`, the graph managers, `graph_capture`, the CUDA
communicator and custom all-reduce; `deployment.py` has the doubles. On pins where runner V2 does
not capture while it profiles, the patchset declines it, and these tests skip.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.torch]

# Per graph of the speculator, on doubles; one context has graphs of whole requests, one of tokens.
DRAFT_OPS = 3


def staged(calls: list[Any]) -> list[Any]:
    return [call for call in calls if call.reg_buffer]


def phase_module() -> Any:
    return sys.modules["vllm.distributed.cudagraph_capture_phase"]


@pytest.mark.fix
def test_profiling_leaves_no_handle_on_memory_of_its_graphs(deploy_v2: Any) -> None:
    """On the bare pin every address is that of a tensor which goes with its graph."""
    deployment = deploy_v2()
    calls = deployment.profile()
    assert len(deployment.inputs) == 174
    assert len(deployment.draft_inputs) > 0
    assert len(calls) == 174 + len(deployment.draft_inputs)
    registered = [address for each in deployment.ops.registered for address in each]
    assert len(registered) == len(calls)
    assert all(deployment.ops.owns(address) for address in registered)
    assert not set(registered) & set(deployment.inputs + deployment.draft_inputs)


@pytest.mark.fix
def test_both_passes_of_the_runner(deploy_v2: Any, vllm: Any) -> None:
    """Profiling seals nothing; then the target's graphs have 609 slots, the speculator's none."""
    deployment = deploy_v2()
    profiling = deployment.profile()
    assert {(call.reg_buffer, call.reg_size) for call in profiling} != {(0, 0)}
    assert deployment.arena_state == "RELEASED"
    assert {phase.name for phase in deployment.phases} == {"PROFILING"}
    assert deployment.runner.cudagraph_manager is None
    assert vllm.counter.num_gpu_runner_capture_triggers == 0
    deployment.ops.registered.clear()
    calls = deployment.capture()
    assert deployment.arena_state == "SEALED"
    assert {phase.name for phase in deployment.phases} == {"PERSISTENT"}
    slots, draft = calls[:609], calls[609:]
    assert staged(calls) == slots
    spans = sorted((call.reg_buffer, call.reg_buffer + call.nbytes) for call in slots)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(deployment.ops.owns(start) for start, _ in spans)
    # A context each for target, prefill and decode of the draft.
    assert len(deployment.ops.registered) == 3
    assert deployment.ops.registered[0] == [call.reg_buffer for call in slots]
    later = [address for each in deployment.ops.registered[1:] for address in each]
    assert later == deployment.draft_inputs == [call.input_address for call in draft]
    assert phase_module().current_cudagraph_capture_phase() is None


@pytest.mark.fix
def test_graphs_of_32_and_64_requests_are_staged(deploy_v2: Any) -> None:
    deployment = deploy_v2()
    deployment.profile()
    sizes = [call.reg_size for call in deployment.capture()]
    for num_tokens in (5, 10, 20, 40, 80, 160, 320):
        assert sizes.count(num_tokens * 8192) == 87


def test_the_batch_is_named_in_the_target_s_forward_pass_only(deploy_v2: Any) -> None:
    deployment = deploy_v2()
    deployment.capture()
    # Each graph of the target twice, to warm up and to capture; then the draft's.
    named, unnamed = deployment.batches[:14], deployment.batches[14:]
    sizes = [(batch.num_tokens, batch.num_reqs) for batch in named[::2]]
    assert sizes == [(320, 64), (160, 32), (80, 16), (40, 8), (20, 4), (10, 2), (5, 1)]
    assert named[::2] == named[1::2]
    assert {(batch.uniform, batch.has_lora) for batch in named} == {(True, False)}
    assert unnamed
    assert set(unnamed) == {None}
    assert phase_module().current_cudagraph_capture_batch() is None


def test_with_symmetric_memory_three_graphs_are_staged(deploy_v2: Any) -> None:
    deployment = deploy_v2(symm_mem=True)
    assert deployment.car.max_size == 256 * 1024
    deployment.profile()
    assert deployment.arena_state == "RELEASED"
    assert len(staged(deployment.capture())) == 261
    assert deployment.arena_state == "SEALED"


def test_a_profiling_pass_that_fails_leaves_no_phase_and_no_slot(deploy_v2: Any) -> None:
    deployment = deploy_v2()
    deployment.fail_at = 160
    with pytest.raises(MemoryError):
        deployment.profile()
    assert deployment.arena_state == "RELEASED"
    assert phase_module().current_cudagraph_capture_phase() is None
    assert phase_module().current_cudagraph_capture_batch() is None
    assert deployment.ops.registered == []
    # The double has no finalizer that would end the C++ side's account of the capture.
    deployment.ops.pending.clear()
    deployment.fail_at = None
    assert len(staged(deployment.capture())) == 609


def test_a_pass_that_serves_and_fails_is_not_repeated(deploy_v2: Any) -> None:
    deployment = deploy_v2()
    deployment.profile()
    deployment.fail_at = 5
    with pytest.raises(MemoryError):
        deployment.capture()
    assert deployment.arena_state == "FAILED"
    deployment.fail_at = None
    with pytest.raises(RuntimeError, match="release_all"):
        deployment.capture()


def test_graphs_of_the_plan_are_not_captured_twice(deploy_v2: Any) -> None:
    """A sealed arena admits contexts of others, but no second capture of its own graphs."""
    deployment = deploy_v2()
    deployment.profile()
    deployment.capture()
    with pytest.raises(RuntimeError, match="sealed"):
        deployment.capture()
    assert deployment.arena_state == "SEALED"
    deployment.ops.pending.clear()
    deployment.car.release_graph_slots()
    assert len(staged(deployment.capture())) == 609


def test_a_speculator_that_fails_leaves_the_target_s_graphs_sealed(
    deploy_v2: Any, monkeypatch: Any
) -> None:
    deployment = deploy_v2()
    deployment.profile()

    def fail(*arguments: Any) -> None:
        raise MemoryError("no memory")

    real = deployment.all_reduces
    monkeypatch.setattr(
        deployment,
        "all_reduces",
        lambda tokens, count, inputs: (fail if count == DRAFT_OPS else real)(tokens, count, inputs),
    )
    with pytest.raises(MemoryError):
        deployment.capture()
    assert deployment.arena_state == "SEALED"
    assert len(deployment.ops.registered[-1]) == 609


@pytest.mark.parametrize(
    ("mode", "changes", "expected"),
    [
        ("FULL", {}, (40, 8, True, False)),
        ("FULL", {"num_active_loras": 1}, (40, 8, True, True)),
        ("FULL", {"uniform_token_count": None}, (40, 8, False, False)),
        ("FULL", {"num_reqs": None}, None),
        ("PIECEWISE", {}, None),
    ],
)
def test_what_communicators_are_told_of_a_graph(
    deploy_v2: Any, vllm: Any, mode: str, changes: dict[str, Any], expected: Any
) -> None:
    arguments = {"num_tokens": 40, "num_reqs": 8, "uniform_token_count": 5, **changes}
    desc = vllm.graphs_v2.BatchExecutionDescriptor(vllm.config.CUDAGraphMode[mode], **arguments)
    batch = vllm.graphs_v2._captured_batch(desc)
    if expected is None:
        assert batch is None
    else:
        assert (batch.num_tokens, batch.num_reqs, batch.uniform, batch.has_lora) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"model_config__hf_config__model_type": "deepseek_v3"},
        {"model_config__hf_config__num_hidden_layers": 61},
        {"parallel_config__tensor_parallel_size": 4},
        {"parallel_config__enable_expert_parallel": True},
        {"cache_config__cache_dtype": "auto"},
        {"quant_config": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_any_other_deployment_takes_upstream_s_path(
    deploy_v2: Any, harness: ModuleType, changes: dict[str, Any]
) -> None:
    deployment = deploy_v2(**changes)
    assert deployment.car._staging is None
    assert deployment.ops.data_buffer[1] == harness.shared_bytes(deployment.car)
    for run, count in ((deployment.profile, 174), (deployment.capture, 609)):
        deployment.ops.registered.clear()
        calls = run()
        assert {(call.reg_buffer, call.reg_size) for call in calls} == {(0, 0)}
        assert len(deployment.inputs) == count
        registered = [address for each in deployment.ops.registered for address in each]
        assert registered == deployment.inputs + deployment.draft_inputs


def test_another_runner_is_another_proposal(deploy: Any, deploy_v2: Any) -> None:
    """Ranks whose runners differ take upstream's path together."""
    first, second = deploy(), deploy_v2()
    (one,), (other,) = first.dist.broadcasts[0], second.dist.broadcasts[0]
    assert one is not None
    assert other is not None
    assert one != other


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=12, unique=True),
    max_num_seqs=st.integers(1, 130),
)
def test_the_ladder_is_what_the_runner_captures(
    deploy_v2: Any, vllm: Any, sizes: list[int], max_num_seqs: int
) -> None:
    deployment = deploy_v2.built[0] if deploy_v2.built else deploy_v2()
    config = deployment.config
    config.compilation_config.cudagraph_capture_sizes = sorted(sizes)
    config.compilation_config.max_cudagraph_capture_size = max(sizes)
    config.scheduler_config.max_num_seqs = max_num_seqs
    manager = deployment.manager("ModelCudaGraphManager", 5)
    descs = manager._capture_descs.get(vllm.config.CUDAGraphMode.FULL, [])
    mode = sys.modules["vllm.distributed.device_communicators.car_capture_mode"]
    ladder = mode.request_ladder(sizes, tokens_per_req=5, max_num_seqs=max_num_seqs)
    assert {(desc.num_tokens, desc.num_reqs) for desc in descs} == {(5 * r, r) for r in ladder}
    assert all(desc.uniform_token_count == 5 for desc in descs)
