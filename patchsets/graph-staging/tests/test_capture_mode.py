"""Which mode a config gets, what it plans, and that everything else gets none."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KIB = 1024
MIB = 1024 * KIB
POLICY = "vllm.models.deepseek_v4.dsv4port_policy"


@pytest.fixture(scope="module")
def mode(harness: ModuleType, vllm_tree: Path) -> Iterator[ModuleType]:
    """`car_capture_mode.py`, with the policy and the plan behind it: no torch, no vLLM."""
    path = vllm_tree / "vllm/distributed/device_communicators/car_capture_mode.py"
    if not path.is_file():
        pytest.fail(f"the tree has no {path.name}", pytrace=False)
    with harness.tree_packages(vllm_tree):
        yield importlib.import_module(f"{harness.CAR}.car_capture_mode")


def ask(mode: ModuleType, config: Any, **arguments: Any) -> Any:
    return mode.staging_request(config, **{"platform": "cuda", "world_size": 8, **arguments})


def config_with(harness: ModuleType, **changes: Any) -> Any:
    return harness.flash_base_config(**changes)


SIZES = "compilation_config__cudagraph_capture_sizes"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "ARENA"),
        ({"scheduler_config__max_num_seqs": 1, SIZES: [5]}, "REGISTERED"),
        ({"scheduler_config__max_num_seqs": 1, SIZES: [5, 10]}, "ARENA"),
        ({"scheduler_config__max_num_seqs": 2, SIZES: [5]}, "ARENA"),
        ({"speculative_config__num_speculative_tokens": 3}, "COLLECTIVE"),
        ({"speculative_config__num_speculative_tokens": 5}, "COLLECTIVE"),
        (
            {"speculative_config__num_speculative_tokens_per_batch_size": [(1, 64, 4)]},
            "COLLECTIVE",
        ),
        ({"speculative_config": None}, "SINGLE"),
        ({"speculative_config": None, SIZES: [1]}, "REGISTERED"),
        ({"speculative_config": None, SIZES: [1, 2]}, "SINGLE"),
        ({"cache_config__cache_dtype": "fp8_ds_mla"}, "ARENA"),
    ],
)
def test_the_mode_follows_from_the_config(
    mode: ModuleType, harness: ModuleType, changes: dict[str, Any], wanted: str
) -> None:
    request = ask(mode, config_with(harness, **changes))
    assert request.mode is mode.CaptureMode[wanted]
    assert request.local_refusal is None
    assert request.propose(8 * MIB).mode is mode.CaptureMode[wanted]


OUTSIDE: dict[str, list[Any]] = {
    "model_config__hf_config__model_type": ["deepseek_v3", "deepseek_mtp"],
    "model_config__hf_config__architectures": [["DeepSeekV4MTPModel"], []],
    "model_config__hf_config__hidden_size": [7168],
    "model_config__hf_config__num_hidden_layers": [61],
    "model_config__hf_config__expert_dtype": ["fp4"],
    "model_config__dtype": [None],
    "model_config__quantization": ["modelopt_fp4", None],
    "quant_config": [None],
    "parallel_config__tensor_parallel_size": [1, 4],
    "parallel_config__pipeline_parallel_size": [2],
    "parallel_config__data_parallel_size": [2],
    "parallel_config__decode_context_parallel_size": [2],
    "parallel_config__prefill_context_parallel_size": [2],
    "parallel_config__enable_expert_parallel": [True],
    "parallel_config__use_ubatching": [True],
    "lora_config": [SimpleNamespace(max_loras=1)],
    "cache_config__cache_dtype": ["auto", "bfloat16"],
    "compilation_config__mode": ["VLLM_COMPILE"],
    "compilation_config__cudagraph_mode": ["FULL", "PIECEWISE"],
    "attention_config__backend": ["FLASHINFER_MLA_SPARSE_DSV4", "FLASHMLA"],
    "speculative_config__method": ["eagle", "dspark"],
}


@pytest.mark.parametrize("path", OUTSIDE)
def test_everything_outside_of_the_contract_is_declined(
    mode: ModuleType, harness: ModuleType, path: str
) -> None:
    enums = {
        "compilation_config__mode": harness.CompilationMode,
        "compilation_config__cudagraph_mode": harness.CUDAGraphMode,
        "attention_config__backend": harness.AttentionBackendEnum,
    }
    for value in OUTSIDE[path]:
        if path in enums:
            value = enums[path][value]
        if path == "model_config__dtype":
            value = harness.dtype("float16")
        for more in ({}, {"speculative_config": None}, {SIZES: [1]}):
            if "speculative_config" in more and path.startswith("speculative_config"):
                continue
            request = ask(mode, config_with(harness, **{path: value, **more}))
            assert isinstance(request, mode.StagingDecline), (path, value, more)
            assert request.reason


@pytest.mark.parametrize(
    "config",
    [None, object(), SimpleNamespace(model_config=None), SimpleNamespace(model_config=object())],
)
def test_a_config_of_anything_else_is_declined(mode: ModuleType, config: Any) -> None:
    assert isinstance(ask(mode, config), mode.StagingDecline)


def test_other_models_do_not_import_the_model_s_package(
    mode: ModuleType, harness: ModuleType
) -> None:
    sys.modules.pop(POLICY, None)
    ask(mode, config_with(harness, model_config__hf_config__model_type="llama"))
    assert POLICY not in sys.modules
    ask(mode, config_with(harness))
    assert POLICY in sys.modules


@pytest.mark.parametrize("platform", ["musa", "rocm", "other", ""])
def test_only_cuda_is_wired(mode: ModuleType, harness: ModuleType, platform: str) -> None:
    request = ask(mode, config_with(harness), platform=platform)
    assert isinstance(request, mode.StagingDecline)
    assert platform in request.reason


@pytest.mark.parametrize("world_size", [2, 4])
def test_another_group_than_that_of_tensor_parallelism_is_declined(
    mode: ModuleType, harness: ModuleType, world_size: int
) -> None:
    request = ask(mode, config_with(harness), world_size=world_size)
    assert isinstance(request, mode.StagingDecline)
    assert f"{world_size} ranks" in request.reason


# --- What only this rank knows.


@pytest.mark.parametrize(
    ("changes", "arguments", "word"),
    [
        ({}, {"earlier_backends": ["FLASHINFER"]}, "FLASHINFER"),
        ({}, {"earlier_backends": ["NCCL_SYMM_MEM", "FLASHINFER"]}, "NCCL_SYMM_MEM and"),
        (
            {"attention_config__backend": None},
            {"resolve_backend": lambda config: "FLASHINFER_MLA_SPARSE_DSV4"},
            "FLASHINFER_MLA_SPARSE_DSV4",
        ),
    ],
)
def test_a_rank_that_cannot_take_part_has_no_fingerprint(
    mode: ModuleType,
    harness: ModuleType,
    changes: dict[str, Any],
    arguments: dict[str, Any],
    word: str,
) -> None:
    request = ask(mode, config_with(harness, **changes), **arguments)
    assert request.mode is mode.CaptureMode.ARENA
    assert word in request.local_refusal
    assert request.propose(8 * MIB).fingerprint is None


def test_runner_v2_takes_part_where_it_profiles(
    mode: ModuleType, harness: ModuleType, vllm_tree: Path
) -> None:
    """From 0.29 on. Before, no patch names the batch of its graphs, and it is turned away."""
    first = ask(mode, config_with(harness))
    request = ask(mode, config_with(harness, use_v2_model_runner=True))
    assert request.mode is mode.CaptureMode.ARENA
    assert request.request_ladder == first.request_ladder
    if not harness.runner_v2_profiles(vllm_tree):
        assert "runner V2" in request.local_refusal
        assert request.propose(8 * MIB).fingerprint is None
        return
    assert request.local_refusal is None
    one, other = first.propose(8 * MIB), request.propose(8 * MIB)
    assert one.plan == other.plan
    assert None not in (one.fingerprint, other.fingerprint)
    # A rank with another runner captures in other contexts.
    assert one.fingerprint != other.fingerprint


def test_an_unset_backend_is_the_layers_choice(mode: ModuleType, harness: ModuleType) -> None:
    config = config_with(harness, attention_config__backend=None)
    asked = []

    def resolve(given: Any) -> str:
        asked.append(given)
        return "FLASHMLA_SPARSE_DSV4"

    assert ask(mode, config, resolve_backend=resolve).local_refusal is None
    assert asked == [config]
    ask(mode, config_with(harness), resolve_backend=resolve)
    assert asked == [config]


# --- Plans.


@pytest.mark.fix
def test_the_plan_has_the_graphs_of_32_and_64_requests(
    mode: ModuleType, harness: ModuleType
) -> None:
    plan = ask(mode, config_with(harness)).propose(8 * MIB).plan
    assert plan.descriptors == tuple(harness.GRAPHS)
    assert (plan.slots, plan.meta_bytes) == (609, 0)
    assert plan.data_bytes == 452_567_040
    assert plan.arena_bytes == 440 * MIB


def test_eight_h200_with_symmetric_memory(
    mode: ModuleType, harness: ModuleType, vllm_tree: Path
) -> None:
    limit = harness.all_reduce_limits(vllm_tree)["9.0"][8]
    assert limit == 256 * KIB
    proposal = ask(mode, config_with(harness)).propose(limit)
    assert proposal.plan.descriptors == ((5, 1), (10, 2), (20, 4))
    assert (proposal.plan.slots, proposal.plan.data_bytes) == (261, 24_944_640)
    assert proposal.buffer_bytes == proposal.plan.arena_bytes == 28 * MIB


def test_the_plan_is_reduced_to_every_limit_of_the_tree(
    mode: ModuleType, harness: ModuleType, vllm_tree: Path
) -> None:
    for limits in harness.all_reduce_limits(vllm_tree).values():
        for limit in limits.values():
            limit = min(limit, 8 * MIB)
            plan = ask(mode, config_with(harness)).propose(limit).plan
            fitting = [graph for graph in harness.GRAPHS if graph[0] * 8192 < limit]
            assert plan.descriptors == tuple(fitting)
            assert plan.eager_bytes >= limit


def test_a_plan_above_the_bound_is_refused_with_the_numbers(
    mode: ModuleType, harness: ModuleType
) -> None:
    config = config_with(
        harness,
        scheduler_config__max_num_seqs=128,
        **{SIZES: [5, 10, 20, 40, 80, 160, 320, 640]},
    )
    proposal = ask(mode, config).propose(8 * MIB)
    assert proposal.mode is mode.CaptureMode.COLLECTIVE
    assert proposal.buffer_bytes == 8 * MIB
    need = 8 * MIB + 87 * 5 * 255 * 8192
    for number in ("696 slots", "8 graphs", str(need), "512.00 MiB"):
        assert number in str(proposal)


@pytest.mark.parametrize("max_size", [1, 40960])
def test_no_graph_that_fits_is_a_refusal_too(
    mode: ModuleType, harness: ModuleType, max_size: int
) -> None:
    proposal = ask(mode, config_with(harness)).propose(max_size)
    assert proposal.mode is mode.CaptureMode.COLLECTIVE
    assert "no descriptor" in str(proposal)


def test_a_graph_larger_than_a_step_is_a_refusal(mode: ModuleType, harness: ModuleType) -> None:
    config = config_with(harness, scheduler_config__max_num_batched_tokens=319)
    assert ask(mode, config).propose(8 * MIB).mode is mode.CaptureMode.COLLECTIVE


def test_fingerprints_tell_apart_what_must_not_be_mixed(
    mode: ModuleType, harness: ModuleType
) -> None:
    request = ask(mode, config_with(harness))
    single = ask(mode, config_with(harness, speculative_config=None))
    fewer = ask(mode, config_with(harness, **{SIZES: [5, 10]}))
    proposals = [
        request.propose(8 * MIB),
        request.propose(4 * MIB),
        request.propose(256 * KIB),
        single.propose(8 * MIB),
        single.propose(256 * KIB),
        fewer.propose(8 * MIB),
    ]
    fingerprints = [proposal.fingerprint for proposal in proposals]
    assert len(set(fingerprints)) == len(proposals)
    assert None not in fingerprints
    assert request.propose(8 * MIB).fingerprint == fingerprints[0]


# --- The ladder is the runner's.


def runner_s_ladder(tree: Path, sizes: list[int], per_request: int, max_num_seqs: int) -> set[int]:
    """The tree's own rounding, then the dispatcher's filter."""
    source = (tree / "vllm/config/compilation.py").read_text(encoding="utf-8")
    function = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and node.name == "adjust_cudagraph_sizes_for_spec_decode"
    )
    scope: dict[str, Any] = {"round_up": lambda value, to: -(-value // to) * to}
    exec(compile(ast.Module([function], []), "compilation.py", "exec"), scope)
    config = SimpleNamespace(
        pass_config=SimpleNamespace(enable_sp=False),
        cudagraph_capture_sizes=sorted(set(sizes)),
        max_cudagraph_capture_size=max(sizes),
    )
    scope[function.name](config, per_request, 8)
    kept = [
        size
        for size in config.cudagraph_capture_sizes
        if per_request <= size <= per_request * max_num_seqs
    ]
    return {min(size // per_request, max_num_seqs) for size in kept}


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    max_num_seqs=st.integers(1, 130),
)
def test_the_ladder_is_what_the_runner_captures(
    mode: ModuleType, vllm_tree: Path, sizes: list[int], max_num_seqs: int
) -> None:
    ladder = mode.request_ladder(sizes, tokens_per_req=5, max_num_seqs=max_num_seqs)
    if max(-(-min(sizes) // 5) * 5, 5) > max(sizes):
        # The runner finds nothing to round to, or only by rounding down: no plan either.
        assert ladder == ()
        return
    assert set(ladder) == runner_s_ladder(vllm_tree, sizes, 5, max_num_seqs)
    assert list(ladder) == sorted(ladder)


@pytest.mark.parametrize(
    ("sizes", "ladder"),
    [
        ([5, 10, 20, 40, 80, 160, 320], (1, 2, 4, 8, 16, 32, 64)),
        ([1, 2, 4, 8, 16, 32, 64], (1, 2, 4, 7)),
        ([5, 10, 320, 640], (1, 2, 64)),
        ([], ()),
        ([3], ()),
    ],
)
def test_ladders(mode: ModuleType, sizes: list[int], ladder: tuple[int, ...]) -> None:
    assert mode.request_ladder(sizes, tokens_per_req=5, max_num_seqs=64) == ladder
