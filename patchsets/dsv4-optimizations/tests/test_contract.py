"""The optimizations' entries in the contract: what each wants, one field at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from contract_config import (
    AttentionBackendEnum,
    CompilationMode,
    CUDAGraphMode,
    matching_config,
)

pytestmark = pytest.mark.fix

POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
# Feature: with MTP, without speculation, in batch-invariant mode, with one sequence.
WANTS = {
    "INV_ROPE_CHUNKS": (True, True, True, True),
    "O_PROJ_GEMV": (True, True, False, True),
    "GATE_UP_GEMV": (True, True, False, True),
    "SHARED_SWIGLU": (False, True, False, True),
    "DIRECT_OUT": (True, False, True, False),
}


@pytest.fixture(scope="session")
def policy(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    module = tree_module(POLICY)
    missing = [name for name in WANTS if name not in module.Feature.__members__]
    if missing:
        pytest.fail(f"the contract has no {', '.join(missing)}", pytrace=False)
    return module


def ask(
    policy: ModuleType, feature: str, config: Any, batch_invariant: bool | None = False
) -> bool:
    environment = policy.Environment("cuda", None, batch_invariant)
    answer = policy.matches(policy.Feature[feature], config, environment)
    assert type(answer) is bool
    return answer


def fitting(feature: str) -> Any:
    return matching_config(speculation=WANTS[feature][0])


@pytest.mark.parametrize("feature", WANTS)
def test_what_each_feature_wants(policy: ModuleType, feature: str) -> None:
    with_mtp, without, batch_invariant, one_sequence = WANTS[feature]
    assert ask(policy, feature, matching_config(speculation=True)) is with_mtp
    assert ask(policy, feature, matching_config(speculation=False)) is without
    assert ask(policy, feature, fitting(feature), batch_invariant=True) is batch_invariant
    config = fitting(feature)
    config.scheduler_config.max_num_seqs = 1
    assert ask(policy, feature, config) is one_sequence


@pytest.mark.parametrize("sequences", [1, 4, 16, 64, 1024])
def test_shared_swiglu_stays_available_for_many_requests(
    policy: ModuleType, sequences: int
) -> None:
    config = fitting("SHARED_SWIGLU")
    config.scheduler_config.max_num_seqs = sequences
    config.compilation_config.cudagraph_capture_sizes = [1, 4, 16, 64]
    assert ask(policy, "SHARED_SWIGLU", config)


@pytest.mark.parametrize("feature", WANTS)
@pytest.mark.parametrize(
    ("section", "field", "wrong"),
    [
        ("model_config.hf_config", "architectures", ["DeepseekV3ForCausalLM"]),
        ("model_config.hf_config", "num_attention_heads", 128),
        ("model_config.hf_config", "head_dim", 576),
        ("model_config.hf_config", "expert_dtype", "fp4"),
        ("model_config.hf_config", "swiglu_limit", 7.0),
        ("quant_config", "weight_block_size", [64, 128]),
        ("parallel_config", "tensor_parallel_size", 4),
        ("parallel_config", "tensor_parallel_size", True),
        ("parallel_config", "data_parallel_size", 2),
        ("parallel_config", "enable_expert_parallel", True),
        ("cache_config", "cache_dtype", "auto"),
        ("cache_config", "cache_dtype", "bfloat16"),
        ("scheduler_config", "max_num_seqs", 0),
        ("scheduler_config", "max_num_seqs", True),
        ("compilation_config", "mode", CompilationMode.VLLM_COMPILE),
        ("compilation_config", "cudagraph_mode", CUDAGraphMode.FULL),
        ("compilation_config", "cudagraph_mode", CUDAGraphMode.NONE),
        ("attention_config", "backend", AttentionBackendEnum.FLASHINFER_MLA_SPARSE_DSV4),
        ("attention_config", "backend", None),
    ],
    ids=str,
)
def test_one_other_value_means_upstreams_path(
    policy: ModuleType, feature: str, section: str, field: str, wrong: object
) -> None:
    config = fitting(feature)
    owner = config
    for name in section.split("."):
        owner = getattr(owner, name)
    setattr(owner, field, wrong)
    assert not ask(policy, feature, config)


@pytest.mark.parametrize("feature", WANTS)
def test_one_missing_field_means_upstreams_path(policy: ModuleType, feature: str) -> None:
    for row in policy.FEATURES[policy.Feature[feature]]:
        root, *names, last = row.path.split(".")
        if root != "vllm_config":
            continue
        config = fitting(feature)
        owner = config
        for name in names:
            owner = getattr(owner, name)
        if owner is None:
            continue
        delattr(owner, last)
        assert not ask(policy, feature, config), row.path


@pytest.mark.parametrize("feature", WANTS)
@pytest.mark.parametrize("platform", ["rocm", "cpu", "other", None])
def test_other_platforms_mean_upstreams_path(
    policy: ModuleType, feature: str, platform: str | None
) -> None:
    environment = policy.Environment(platform, "FLASHMLA_SPARSE", False)
    assert not policy.matches(policy.Feature[feature], fitting(feature), environment)


@pytest.mark.parametrize("feature", ["GATE_UP_GEMV", "SHARED_SWIGLU", "O_PROJ_GEMV"])
def test_batch_invariance_must_be_known(policy: ModuleType, feature: str) -> None:
    assert not ask(policy, feature, fitting(feature), batch_invariant=None)


def test_garbage_means_upstreams_path(policy: ModuleType) -> None:
    for feature in WANTS:
        for garbage in (None, 1, "x", SimpleNamespace(), object()):
            assert not ask(policy, feature, garbage)
