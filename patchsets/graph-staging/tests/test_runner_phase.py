"""Runner V1 as it is in the tree: both capture passes, down to the addresses that are registered.

Real are the runner's two passes and its dispatcher, `graph_capture`, the CUDA communicator and its
choice of backends, custom all-reduce and the elastic executor. `deployment.py` has the doubles.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch]


@pytest.mark.fix
def test_profiling_leaves_no_handle_on_memory_of_its_graphs(deploy: Any) -> None:
    """On the bare pin each of the 174 addresses belongs to a tensor that is freed."""
    deployment = deploy()
    calls = deployment.profile()
    assert len(calls) == 174
    (registered,) = deployment.ops.registered
    assert not set(registered) & set(deployment.inputs)
    assert all(deployment.ops.owns(address) for address in registered)


@pytest.mark.fix
def test_both_passes_of_the_runner(deploy: Any) -> None:
    """Profiling takes 174 slots and seals nothing; the pass that serves takes 609 and seals."""
    deployment = deploy()
    profiling = deployment.profile()
    assert {(call.reg_buffer, call.reg_size) for call in profiling} != {(0, 0)}
    assert deployment.arena_state == "RELEASED"
    assert {phase.name for phase in deployment.phases} == {"PROFILING"}
    persistent = deployment.capture()
    assert deployment.arena_state == "SEALED"
    assert {phase.name for phase in deployment.phases} == {"PERSISTENT"}
    assert (len(profiling), len(persistent)) == (174, 609)
    spans = sorted((call.reg_buffer, call.reg_buffer + call.nbytes) for call in persistent)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(deployment.ops.owns(start) for start, _ in spans)


@pytest.mark.fix
def test_graphs_of_32_and_64_requests_are_staged(deploy: Any) -> None:
    deployment = deploy()
    deployment.profile()
    sizes = [call.reg_size for call in deployment.capture()]
    for num_tokens in (5, 10, 20, 40, 80, 160, 320):
        assert sizes.count(num_tokens * 8192) == 87


@pytest.mark.fix
def test_with_symmetric_memory_three_graphs_are_staged(deploy: Any) -> None:
    """Eight ranks on sm_90: larger tensors go to symmetric memory, in both passes."""
    deployment = deploy(symm_mem=True)
    assert deployment.car.max_size == 256 * 1024
    assert deployment.profile() == []
    taken = deployment.communicator.symm_mem_comm.taken
    assert set(taken) == {160 * 8192, 320 * 8192}
    persistent = deployment.capture()
    assert len(persistent) == 261
    assert all(deployment.ops.owns(call.reg_buffer) for call in persistent)
    assert deployment.arena_state == "SEALED"


def test_a_profiling_pass_that_fails_leaves_no_phase_and_no_slot(deploy: Any) -> None:
    deployment = deploy()
    deployment.fail_at = 160
    with pytest.raises(MemoryError):
        deployment.profile()
    assert deployment.arena_state == "RELEASED"
    phase = sys.modules["vllm.distributed.cudagraph_capture_phase"]
    assert phase.current_cudagraph_capture_phase() is None
    assert deployment.ops.registered == []
    deployment.fail_at = None
    assert len(deployment.capture()) == 609


def test_a_pass_that_serves_and_fails_is_not_repeated(deploy: Any) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.fail_at = 5
    with pytest.raises(MemoryError):
        deployment.capture()
    assert deployment.arena_state == "FAILED"
    deployment.fail_at = None
    with pytest.raises(RuntimeError, match="release_all"):
        deployment.capture()


def test_a_counter_set_back_does_not_open_the_arena(deploy: Any, vllm: Any) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.capture()
    vllm.counter.num_gpu_runner_capture_triggers = 0
    with pytest.raises(RuntimeError, match="sealed"):
        deployment.capture()
    with pytest.raises(RuntimeError, match="sealed"):
        deployment.profile()
    assert deployment.arena_state == "SEALED"


def test_elastic_expert_parallelism_gives_the_slots_back(
    deploy: Any, vllm: Any, monkeypatch: Any
) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.capture()
    model = vllm.torch.nn.Linear(1, 1)
    runner = SimpleNamespace(model=model, get_model=lambda: model)
    monkeypatch.setattr(vllm.torch.compiler, "reset", lambda: None)
    monkeypatch.setattr(vllm.elastic, "set_current_vllm_config", lambda config: nullcontext())
    executor = SimpleNamespace(
        worker=SimpleNamespace(model_runner=runner, vllm_config=deployment.config)
    )
    vllm.elastic.ElasticEPScalingExecutor._release_cuda_graphs(executor)
    assert deployment.arena_state == "RELEASED"
    assert len(deployment.capture()) == 609
    assert deployment.arena_state == "SEALED"
    for communicator in (None, SimpleNamespace(ca_comm=None), SimpleNamespace(ca_comm=object())):
        vllm.parallel_state._TP.device_communicator = communicator
        vllm.elastic.ElasticEPScalingExecutor._release_cuda_graphs(executor)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_config__hf_config__model_type": "deepseek_v3"},
        {"model_config__hf_config__num_hidden_layers": 61},
        {"parallel_config__tensor_parallel_size": 4},
        {"parallel_config__enable_expert_parallel": True},
        {"cache_config__cache_dtype": "auto"},
        {"quant_config": None},
        {"use_v2_model_runner": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_any_other_deployment_takes_upstream_s_path(
    deploy: Any, harness: ModuleType, vllm_tree: Path, changes: dict[str, Any]
) -> None:
    if "use_v2_model_runner" in changes and harness.runner_v2_profiles(vllm_tree):
        pytest.skip("runner V2 is staged here; see test_runner_v2.py")
    deployment = deploy(**changes)
    assert deployment.car._staging is None
    assert deployment.ops.data_buffer[1] == harness.shared_bytes(deployment.car)
    for run in (deployment.profile, deployment.capture):
        calls = run()
        assert {(call.reg_buffer, call.reg_size) for call in calls} == {(0, 0)}
        assert deployment.ops.registered[-1] == deployment.inputs
    assert [len(addresses) for addresses in deployment.ops.registered] == [174, 609]


def test_another_dtype_graph_mode_and_backend_take_upstream_s_path(deploy: Any, vllm: Any) -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    for changes in (
        {"model_config__dtype": vllm.torch.float16},
        {"compilation_config__cudagraph_mode": vllm.config.CUDAGraphMode.FULL},
        {"attention_config__backend": AttentionBackendEnum.FLASHINFER_MLA_SPARSE_DSV4},
    ):
        deployment = deploy(**changes)
        assert deployment.car._staging is None
        calls = deployment.capture()
        assert {(call.reg_buffer, call.reg_size) for call in calls} == {(0, 0)}
        assert deployment.ops.registered == [deployment.inputs]


def test_the_layers_choose_flashmla_if_no_backend_is_set(deploy: Any) -> None:
    deployment = deploy(attention_config__backend=None)
    assert deployment.car._staging.mode.name == "ARENA"


def test_an_earlier_backend_leaves_all_ranks_on_upstream_s_path(
    deploy: Any, vllm: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(vllm.communicator, "is_symmetric_memory_enabled", lambda: True)
    monkeypatch.setattr(vllm.communicator, "register_nccl_symmetric_ops", lambda communicator: None)
    deployment = deploy()
    assert deployment.car._staging is None
    assert deployment.dist.broadcasts == [[None]]


def test_without_a_plan_the_next_backend_is_warmed_up_and_captured(deploy: Any) -> None:
    deployment = deploy(
        speculative_config__num_speculative_tokens=3,
        num_speculative_tokens=3,
        compilation_config__cudagraph_capture_sizes=[4, 8],
        compilation_config__max_cudagraph_capture_size=8,
        symm_mem=True,
    )
    assert deployment.car._staging.mode.name == "COLLECTIVE"
    assert deployment.profile() == []
    # Each graph once to warm up and once to capture.
    assert len(deployment.communicator.symm_mem_comm.taken) == 2 * 2 * 87
