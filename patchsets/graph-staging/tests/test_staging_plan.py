"""The arithmetic of the staging plan, to the byte, and the bound it keeps."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MIB = 1024 * 1024
FULL_LADDER = [1, 2, 4, 8, 16, 32, 64]
SHORT_LADDER = [1, 2, 4, 8, 16]

# DeepSeek-V4-Flash-Base in bfloat16, four drafts.
FLASH_BASE: dict[str, Any] = {
    "hidden_size": 4096,
    "num_layers": 43,
    "dtype_bytes": 2,
    "num_speculative_tokens": 4,
    "request_ladder": FULL_LADDER,
    "max_num_batched_tokens": 8195,
}


def build(staging: ModuleType, **changes: Any) -> Any:
    return staging.build_staging_plan(**{**FLASH_BASE, **changes})


@pytest.mark.fix
def test_seven_graphs_fill_the_bound_exactly(staging: ModuleType) -> None:
    plan = build(staging)
    assert plan.descriptors == (
        (5, 1),
        (10, 2),
        (20, 4),
        (40, 8),
        (80, 16),
        (160, 32),
        (320, 64),
    )
    assert plan.ops_per_descriptor == 87
    assert plan.bytes_per_token == 8192
    assert plan.slots == 609
    assert plan.eager_bytes == 71_303_168 == 68 * MIB
    assert plan.data_bytes == 452_567_040
    assert plan.meta_bytes == 462_544_896
    assert plan.need_bytes == 533_864_448
    assert plan.arena_bytes == 536_870_912 == 512 * MIB == staging.MAX_ARENA_BYTES
    assert "609 slots" in str(plan)
    assert "512.00 MiB" in str(plan)


def test_the_ladder_up_to_sixteen_requests(staging: ModuleType) -> None:
    plan = build(staging, request_ladder=SHORT_LADDER)
    assert len(plan.descriptors) == 5
    assert plan.slots == 435
    assert plan.data_bytes == 110_469_120
    assert plan.meta_bytes == 117_596_160
    assert plan.need_bytes == 188_915_712
    assert plan.arena_bytes == 184 * MIB


@pytest.mark.parametrize(
    ("max_num_batched_tokens", "mib"),
    [(8192, 508), (8193, 512), (8195, 512), (8704, 512)],
)
def test_batched_tokens_up_to_the_bound(
    staging: ModuleType, max_num_batched_tokens: int, mib: int
) -> None:
    plan = build(staging, max_num_batched_tokens=max_num_batched_tokens)
    assert plan.arena_bytes == mib * MIB


def test_batched_tokens_past_the_bound_are_refused_with_the_numbers(staging: ModuleType) -> None:
    refusal = build(staging, max_num_batched_tokens=8705)
    assert refusal.reason is staging.RefusalReason.EXCEEDS_BOUND
    assert refusal.need_bytes == 72 * MIB + 16 * 1024 + 462_544_896
    assert refusal.arena_bytes == 516 * MIB
    assert refusal.bound_bytes == 512 * MIB
    for number in ("609 slots", str(refusal.need_bytes), "516.00 MiB", "512.00 MiB"):
        assert number in str(refusal)


@pytest.mark.parametrize(
    ("changes", "mib"),
    [
        ({"num_speculative_tokens": 3}, 424),
        ({"num_speculative_tokens": 5}, 596),
        ({"request_ladder": [*FULL_LADDER, 128]}, 948),
    ],
)
def test_other_draft_lengths_and_ladders(
    staging: ModuleType, changes: dict[str, Any], mib: int
) -> None:
    result = build(staging, **changes)
    assert result.arena_bytes == mib * MIB
    assert isinstance(result, staging.StagingPlan if mib <= 512 else staging.PlanRefusal)


def test_a_refusal_can_be_raised(staging: ModuleType) -> None:
    refusal = build(staging, max_num_batched_tokens=8705)
    with pytest.raises(staging.ArenaPlanError, match=r"516\.00 MiB") as raised:
        staging.require_plan(refusal)
    assert raised.value.refusal is refusal
    assert isinstance(raised.value, RuntimeError)
    plan = build(staging)
    assert staging.require_plan(plan) is plan


def test_only_what_custom_all_reduce_accepts_is_staged(staging: ModuleType) -> None:
    """Eight ranks on sm_90 with symmetric memory: tensors smaller than 256 KiB."""
    plan = build(staging, max_bytes=256 * 1024, eager_bytes=256 * 1024, meta_max=0)
    assert plan.descriptors == ((5, 1), (10, 2), (20, 4))
    assert plan.slots == 261
    assert plan.data_bytes == 24_944_640
    assert plan.meta_bytes == 0
    assert plan.eager_bytes == 4 * MIB
    assert plan.data_limit == plan.need_bytes == 4 * MIB + 24_944_640
    assert plan.arena_bytes == 28 * MIB


@pytest.mark.parametrize(("max_bytes", "graphs"), [(40 * 8192, 3), (40 * 8192 + 1, 4)])
def test_a_tensor_as_large_as_the_limit_is_not_accepted(
    staging: ModuleType, max_bytes: int, graphs: int
) -> None:
    assert len(build(staging, max_bytes=max_bytes).descriptors) == graphs


def test_a_plan_without_any_graph_is_refused(staging: ModuleType) -> None:
    refusal = build(staging, max_bytes=5 * 8192)
    assert refusal.reason is staging.RefusalReason.NO_DESCRIPTOR
    assert "40960" in str(refusal)


def test_a_tensor_of_odd_size_is_not_accepted(staging: ModuleType) -> None:
    odd = {"hidden_size": 1, "dtype_bytes": 2, "max_bytes": MIB}
    assert [d.num_reqs for d in build(staging, **odd, request_ladder=[1, 8]).descriptors] == [8]
    refusal = build(staging, **odd, request_ladder=[1])
    assert refusal.reason is staging.RefusalReason.NO_DESCRIPTOR


def test_without_meta_the_data_half_alone_counts(staging: ModuleType) -> None:
    plan = build(staging, meta_max=0)
    assert plan.meta_bytes == 0
    assert plan.need_bytes == 71_303_168 + 452_567_040
    assert plan.arena_bytes == 500 * MIB


def test_the_order_of_the_ladder_does_not_matter(staging: ModuleType) -> None:
    plan = build(staging)
    shuffled = build(staging, request_ladder=(64, 1, 32, 2, 16, 4, 8))
    assert shuffled == plan
    assert shuffled.fingerprint == plan.fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"request_ladder": SHORT_LADDER},
        {"max_num_batched_tokens": 8192},
        {"meta_max": 0},
        {"num_layers": 42},
        {"hidden_size": 2048},
        {"num_speculative_tokens": 3},
    ],
)
def test_another_plan_has_another_fingerprint(staging: ModuleType, changes: dict[str, Any]) -> None:
    assert build(staging, **changes).fingerprint != build(staging).fingerprint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", True),
        ("hidden_size", 4096.0),
        ("hidden_size", None),
        ("num_layers", -1),
        ("dtype_bytes", "2"),
        ("num_speculative_tokens", -1),
        ("num_speculative_tokens", True),
        ("num_speculative_tokens", None),
        ("request_ladder", []),
        ("request_ladder", None),
        ("request_ladder", 64),
        ("request_ladder", "123"),
        ("request_ladder", [1, 1]),
        ("request_ladder", [0, 1]),
        ("request_ladder", [True]),
        ("request_ladder", [1, 2.0]),
        ("request_ladder", [1, None]),
        ("max_num_batched_tokens", 0),
        ("max_num_batched_tokens", 319),
        ("max_bytes", 0),
        ("max_bytes", 1.5),
        ("eager_bytes", 0),
        ("eager_bytes", True),
        ("meta_max", -1),
        ("meta_max", 16 * 1024 + 1),
        ("meta_max", None),
    ],
)
def test_a_wrong_number_is_refused_and_named(staging: ModuleType, name: str, value: Any) -> None:
    refusal = build(staging, **{name: value})
    assert refusal.reason is staging.RefusalReason.INVALID_INPUT
    assert name in str(refusal)
    assert refusal.arena_bytes is None


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    hidden_size=st.integers(1, 8192),
    num_layers=st.integers(1, 64),
    drafts=st.integers(0, 8),
    ladder=st.lists(st.integers(1, 128), min_size=1, max_size=8, unique=True),
    tokens=st.integers(1, 16384),
    max_bytes=st.one_of(st.none(), st.integers(1, MIB)),
    meta_max=st.sampled_from([0, 2048, 16 * 1024]),
)
def test_a_plan_never_exceeds_the_bound_and_always_fits_itself(
    staging: ModuleType,
    hidden_size: int,
    num_layers: int,
    drafts: int,
    ladder: list[int],
    tokens: int,
    max_bytes: int | None,
    meta_max: int,
) -> None:
    result = staging.build_staging_plan(
        hidden_size=hidden_size,
        num_layers=num_layers,
        dtype_bytes=2,
        num_speculative_tokens=drafts,
        request_ladder=ladder,
        max_num_batched_tokens=tokens,
        max_bytes=max_bytes,
        meta_max=meta_max,
    )
    if isinstance(result, staging.PlanRefusal):
        assert str(result)
        if result.reason is staging.RefusalReason.EXCEEDS_BOUND:
            assert result.arena_bytes > result.bound_bytes
        return
    assert result.need_bytes <= result.arena_bytes <= 512 * MIB
    assert result.arena_bytes % (4 * MIB) == 0
    assert result.data_limit <= result.arena_bytes
    assert result.slots == len(result.descriptors) * (2 * num_layers + 1)
    for descriptor in result.descriptors:
        assert descriptor.num_tokens == (1 + drafts) * descriptor.num_reqs
        assert max_bytes is None or result.tensor_bytes(descriptor) < max_bytes
    for meta_size in (0, meta_max // 2, meta_max):
        arena = staging.StagingArena(result, meta_size=meta_size)
        assert arena.enabled, arena.disabled_reason
