"""The tree's real custom all-reduce: where captured inputs are read from, and when ranks agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.torch]

KIB = 1024
MIB = 1024 * KIB


@pytest.fixture
def car(harness: ModuleType, vllm_tree: Path) -> Iterator[Any]:
    pytest.importorskip("torch")
    with harness.custom_all_reduce(vllm_tree) as car:
        yield car


@pytest.fixture
def config(harness: ModuleType) -> Any:
    return harness.flash_base_config()


def captured(car: Any) -> list[Any]:
    return [call for call in car.ops.calls if call.captured]


def disjoint(calls: list[Any]) -> bool:
    spans = sorted((call.reg_buffer, call.reg_buffer + call.reg_size) for call in calls)
    return all(a_end <= b for (_, a_end), (b, _) in pairwise(spans))


# --- The two root causes; red on the bare pin.


@pytest.mark.fix
def test_profiling_registers_no_memory_that_goes_with_its_graphs(car: Any, config: Any) -> None:
    """The bare pin opens handles on the inputs, which are freed with the throwaway graphs."""
    communicator = car.communicator(config)
    freed = car.capture(communicator, "PROFILING", [(160, 32), (320, 64)])
    (registered,) = car.ops.registered
    assert len(registered) == 174
    assert not set(registered) & set(freed)
    assert all(car.ops.owns(address) for address in registered)
    assert all(call.reg_buffer and call.reg_size for call in captured(car))


@pytest.mark.fix
def test_profiling_then_persistent_capture(car: Any, harness: ModuleType, config: Any) -> None:
    """Slots of the throwaway graphs come back; those of the graphs that serve stay theirs."""
    communicator = car.communicator(config)
    car.capture(communicator, "PROFILING", harness.GRAPHS[-2:])
    profiling = captured(car)
    car.ops.calls.clear()
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    persistent = captured(car)
    assert (len(profiling), len(persistent)) == (174, 609)
    assert all(car.ops.owns(call.reg_buffer) for call in profiling + persistent)
    assert disjoint(persistent)
    assert [len(addresses) for addresses in car.ops.registered] == [174, 609]
    assert {call.reg_buffer for call in profiling} <= {call.reg_buffer for call in persistent}
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED


@pytest.mark.fix
@pytest.mark.parametrize("graph", [(160, 32), (320, 64)])
def test_graphs_of_32_and_64_requests_have_slots(
    car: Any, config: Any, graph: tuple[int, int]
) -> None:
    communicator = car.communicator(config)
    car.capture(communicator, "PERSISTENT", [graph])
    calls = captured(car)
    assert len(calls) == 87
    assert {call.reg_size for call in calls} == {graph[0] * 8192}
    assert disjoint(calls)


@pytest.mark.fix
@pytest.mark.parametrize(
    "changes",
    [
        {"speculative_config": None},
        {
            "scheduler_config__max_num_seqs": 1,
            "compilation_config__cudagraph_capture_sizes": [5],
        },
    ],
    ids=["single staging", "registered inputs"],
)
def test_throwaway_graphs_register_fixed_memory_in_every_mode(
    car: Any, harness: ModuleType, changes: dict[str, Any]
) -> None:
    communicator = car.communicator(harness.flash_base_config(**changes))
    car.capture(communicator, "PROFILING", [(5, 1)])
    assert car.ops.registered
    assert all(car.ops.owns(address) for addresses in car.ops.registered for address in addresses)


# --- Memory.


def test_the_buffer_holds_the_eager_partition_and_the_arena(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    eager = harness.shared_bytes(communicator)
    plan = communicator._staging.arena.plan
    assert communicator.max_size == 8 * MIB
    assert [size for _, size in car.ops.buffers] == [2048 + 8 * MIB, plan.arena_bytes]
    assert plan.eager_bytes == eager
    assert plan.arena_bytes == 432 * MIB + eager <= car.arena.MAX_ARENA_BYTES


def test_eager_inputs_stay_in_front_of_the_slots(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    first_slot = min(call.reg_buffer for call in captured(car))
    car.ops.calls.clear()
    tensor = car.torch.empty(1023, 4096, dtype=car.torch.bfloat16)
    assert communicator.custom_all_reduce(tensor) is not None
    (call,) = car.ops.calls
    base, _ = car.ops.data_buffer
    assert (call.reg_buffer, call.reg_size) == (base, communicator.max_size)
    # What other collectives write must not reach a slot either.
    assert base + harness.shared_bytes(communicator) <= first_slot
    too_large = car.torch.empty(1024, 4096, dtype=car.torch.bfloat16)
    assert communicator.custom_all_reduce(too_large) is None
    assert len(car.ops.calls) == 1


def test_an_eager_partition_that_is_too_small_is_an_error(car: Any, config: Any) -> None:
    from dataclasses import replace

    proposal = car.request(config).propose(8 * MIB)
    short = replace(proposal, plan=replace(proposal.plan, eager_bytes=4 * MIB))
    with pytest.raises(ValueError, match="8388608 bytes would reach behind"):
        car.staging.CaptureStaging(short, "cpu", 0, 8)
    assert car.staging.CaptureStaging(proposal, "cpu", 0, 8).arena.enabled


def test_slots_lie_where_the_ledger_says(car: Any, harness: ModuleType, config: Any) -> None:
    communicator = car.communicator(config)
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    base, size = car.ops.data_buffer
    ledger = communicator._staging.arena.ledger
    assert [(call.reg_buffer - base, call.reg_size) for call in captured(car)] == [
        (slot.data_offset, slot.data_size) for slot in ledger
    ]
    assert all(0 <= slot.data_offset <= size - slot.data_size for slot in ledger)


@pytest.mark.parametrize(
    ("capability", "symm_mem", "max_size", "graphs", "slots"),
    [
        ("9.0", True, 256 * KIB, 3, 261),
        ("9.0", False, 8 * MIB, 7, 609),
        ("10.0", True, 1 * MIB, 5, 435),
        ("10.3", True, 4 * MIB, 7, 609),
        ("8.0", True, 8 * MIB, 7, 609),
    ],
)
def test_the_plan_follows_what_custom_all_reduce_accepts(
    harness: ModuleType,
    vllm_tree: Path,
    config: Any,
    capability: str,
    symm_mem: bool,
    max_size: int,
    graphs: int,
    slots: int,
) -> None:
    pytest.importorskip("torch")
    with harness.custom_all_reduce(vllm_tree, capability=capability) as car:
        communicator = car.communicator(config, symm_mem_enabled=symm_mem)
        plan = communicator._staging.arena.plan
        assert communicator.max_size == max_size
        assert (len(plan.descriptors), plan.slots) == (graphs, slots)
        assert plan.arena_bytes == car.ops.data_buffer[1]
        car.capture(communicator, "PERSISTENT", harness.GRAPHS)
        calls = captured(car)
        # Larger tensors went to the next backend, as without a plan.
        assert len(calls) == slots
        assert disjoint(calls)
        assert communicator._staging.arena.state is car.arena.ArenaState.SEALED
        if symm_mem and capability == "9.0":
            assert plan.data_bytes == 24_944_640


# --- Phases.


def test_an_arena_that_is_sealed_stays_so(car: Any, harness: ModuleType, config: Any) -> None:
    communicator = car.communicator(config)
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    for phase in ("PROFILING", "PERSISTENT", None):
        with pytest.raises(car.arena.ArenaSealedError, match="release_all"):
            car.capture(communicator, phase, harness.GRAPHS[:1])
    assert [len(addresses) for addresses in car.ops.registered] == [609]


def test_slots_come_back_when_the_graphs_are_gone(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    communicator.release_graph_slots()
    for _ in range(2):
        car.capture(communicator, "PERSISTENT", harness.GRAPHS)
        communicator.release_graph_slots()
    assert communicator._staging.arena.state is car.arena.ArenaState.RELEASED
    assert communicator._staging.arena.generation == 2
    assert [len(addresses) for addresses in car.ops.registered] == [609, 609]


def test_without_a_phase_the_counter_decides(car: Any, harness: ModuleType, config: Any) -> None:
    communicator = car.communicator(config)
    state = car.arena.ArenaState
    assert car.counter.num_gpu_runner_capture_triggers == 0
    car.capture(communicator, None, harness.GRAPHS[-2:])
    assert communicator._staging.arena.state is state.RELEASED
    car.counter.num_gpu_runner_capture_triggers += 1
    car.capture(communicator, None, harness.GRAPHS)
    assert communicator._staging.arena.state is state.SEALED


def test_a_counter_set_back_does_not_make_a_capture_profiling(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    car.counter.num_gpu_runner_capture_triggers = 1
    car.capture(communicator, None, harness.GRAPHS)
    car.counter.num_gpu_runner_capture_triggers = 0
    with pytest.raises(car.arena.ArenaSealedError):
        car.capture(communicator, None, harness.GRAPHS)
    communicator.release_graph_slots()
    car.capture(communicator, None, harness.GRAPHS)
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED


def test_the_runner_is_believed_before_the_counter(
    car: Any, harness: ModuleType, config: Any
) -> None:
    """A runner that counts before it profiles, as V2 does from 0.29.0 on."""
    communicator = car.communicator(config)
    car.counter.num_gpu_runner_capture_triggers = 1
    car.capture(communicator, "PROFILING", harness.GRAPHS[-2:])
    assert communicator._staging.arena.state is car.arena.ArenaState.RELEASED
    car.counter.num_gpu_runner_capture_triggers = 0
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED


def test_phases_nest_and_end(car: Any) -> None:
    phase, kind = car.phase, car.arena.CapturePhase
    assert phase.current_cudagraph_capture_phase() is None
    with phase.cudagraph_capture_phase(kind.PROFILING):
        with phase.cudagraph_capture_phase(kind.PERSISTENT):
            assert phase.current_cudagraph_capture_phase() is kind.PERSISTENT
        with pytest.raises(ZeroDivisionError), phase.cudagraph_capture_phase(kind.PERSISTENT):
            raise ZeroDivisionError
        assert phase.current_cudagraph_capture_phase() is kind.PROFILING
    assert phase.current_cudagraph_capture_phase() is None
    with pytest.raises(TypeError), phase.cudagraph_capture_phase("profiling"):
        pass
    assert phase.current_cudagraph_capture_phase() is None


def test_a_profiling_capture_without_slots_does_not_seal(
    car: Any, harness: ModuleType, config: Any
) -> None:
    """The largest two graphs may be outside of the plan: then profiling takes no slot at all."""
    communicator = car.communicator(config, symm_mem_enabled=True)
    car.capture(communicator, "PROFILING", harness.GRAPHS[-2:])
    assert captured(car) == []
    assert communicator._staging.arena.state is car.arena.ArenaState.RELEASED
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED


def test_runner_v2_goes_on_after_the_arena_is_sealed(
    car: Any, harness: ModuleType, vllm_tree: Path
) -> None:
    """A context for the target, which names its batches, and then others, which name none."""
    if not harness.runner_v2_profiles(vllm_tree):
        pytest.skip("runner V2 does not capture while it profiles here, and is not staged")
    communicator = car.communicator(harness.flash_base_config(use_v2_model_runner=True))
    batch = car.phase.CapturedBatch

    def capture(phase: str, graphs: list[tuple[int, int]], named: bool) -> None:
        with car.phases(phase), communicator.capture():
            for num_tokens, num_reqs in graphs:
                graph = batch(num_tokens, num_reqs, uniform=True, has_lora=False)
                with car.phase.cudagraph_capture_batch(graph if named else None):
                    car.forward(communicator, num_tokens, num_reqs)

    def places() -> set[bool]:
        return {bool(call.reg_buffer) for call in captured(car)}

    for named in (True, False):
        capture("PROFILING", harness.GRAPHS[-2:], named)
        assert places() == {True}
        assert communicator._staging.arena.state is car.arena.ArenaState.RELEASED
    car.ops.calls.clear()
    capture("PERSISTENT", harness.GRAPHS, True)
    assert len(captured(car)) == 609
    assert places() == {True}
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED
    car.ops.calls.clear()
    # The forward context has a batch of the plan; only what the runner named counts.
    capture("PERSISTENT", harness.GRAPHS, False)
    assert places() == {False}
    assert communicator._staging.arena.state is car.arena.ArenaState.SEALED
    with pytest.raises(car.arena.ArenaSealedError):
        capture("PERSISTENT", harness.GRAPHS[:1], True)


# --- What the ranks say.


def test_plans_are_compared_before_anything_is_allocated(car: Any, config: Any) -> None:
    seen: list[int] = []
    car.dist.mirror = lambda rank, value: seen.append(len(car.ops.buffers)) or value
    communicator = car.communicator(config)
    assert seen == [0] * 7
    assert communicator._staging is not None


@pytest.mark.parametrize("other", ["another plan", None])
def test_ranks_that_differ_take_upstream_s_path_together(
    car: Any, harness: ModuleType, config: Any, other: str | None
) -> None:
    car.dist.mirror = lambda rank, value: other if rank == 5 and type(value) is str else value
    communicator = car.communicator(config)
    assert communicator._staging is None
    shared = harness.shared_bytes(communicator)
    assert [size for _, size in car.ops.buffers] == [2048 + 8 * MIB, shared]
    car.capture(communicator, "PERSISTENT", harness.GRAPHS[:1])
    assert {(call.reg_buffer, call.reg_size) for call in captured(car)} == {(0, 0)}


def test_a_rank_that_cannot_take_part_says_so(car: Any, config: Any) -> None:
    request = car.request(config, earlier_backends=["FLASHINFER"])
    communicator = car.communicator(request=request)
    assert communicator._staging is None
    assert car.dist.broadcasts == [[None]]


def test_a_graph_with_an_op_too_few_is_not_registered(car: Any, config: Any) -> None:
    communicator = car.communicator(config)
    with pytest.raises(car.arena.ArenaManifestError, match="expected 87, got 86"):
        car.capture(communicator, "PERSISTENT", [(5, 1)], ops=86)
    assert car.ops.registered == []
    with pytest.raises(car.arena.ArenaStateError, match="release_all"):
        car.capture(communicator, "PERSISTENT", [(5, 1)])


def test_a_graph_with_an_op_too_many_is_stopped(car: Any, harness: ModuleType, config: Any) -> None:
    communicator = car.communicator(config)
    with pytest.raises(car.arena.ArenaExhaustedError, match=r"no slot of \d+ bytes left"):
        car.capture(communicator, "PERSISTENT", harness.GRAPHS, ops=88)
    assert car.ops.registered == []


def test_a_capture_that_fails_registers_nothing_and_is_told(car: Any, config: Any) -> None:
    communicator = car.communicator(config)
    with pytest.raises(MemoryError), car.phases("PERSISTENT"), communicator.capture():
        raise MemoryError("no memory")
    assert car.ops.registered == []
    report = car.dist.broadcasts[-1][0]
    assert report.error == "MemoryError: no memory"
    assert communicator._IS_CAPTURING is False


def test_a_profiling_capture_that_fails_gives_its_slots_back(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    with pytest.raises(MemoryError), car.phases("PROFILING"), communicator.capture():
        car.forward(communicator, 320, 64, ops=3)
        raise MemoryError
    assert communicator._staging.arena.state is car.arena.ArenaState.RELEASED
    car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    # The addresses that were never registered are still those of slots.
    assert len(car.ops.registered[0]) == 3 + 609
    assert all(car.ops.owns(address) for address in car.ops.registered[0])


def test_a_peer_that_fails_fails_all(car: Any, harness: ModuleType, config: Any) -> None:
    from dataclasses import replace

    communicator = car.communicator(config)
    report = car.arena.RankReport
    car.dist.mirror = lambda rank, value: (
        replace(value, error="boom") if rank == 3 and isinstance(value, report) else value
    )
    with pytest.raises(car.arena.ArenaConsensusError, match="rank 3: failed rank: boom"):
        car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    assert car.ops.registered == []


def test_unequal_numbers_of_addresses_are_not_registered(
    car: Any, harness: ModuleType, config: Any
) -> None:
    communicator = car.communicator(config)
    car.dist.mirror = lambda rank, value: (
        value[:-1] if rank == 2 and isinstance(value, list) else value
    )
    with pytest.raises(car.arena.ArenaConsensusError, match="608"):
        car.capture(communicator, "PERSISTENT", harness.GRAPHS)
    assert car.ops.registered == []


def test_ranks_report_also_without_slots(car: Any, config: Any) -> None:
    communicator = car.communicator(config)
    before = len(car.dist.broadcasts)
    for phase in ("PROFILING", "PERSISTENT"):
        car.capture(communicator, phase, [])
    reports = [
        box[0] for box in car.dist.broadcasts[before:] if isinstance(box[0], car.arena.RankReport)
    ]
    assert [(report.phase.name, report.ledger) for report in reports] == [
        ("PROFILING", ()),
        ("PERSISTENT", ()),
    ]


# --- Modes.


def test_a_warm_up_takes_no_slot(car: Any, config: Any) -> None:
    communicator = car.communicator(config)
    with car.phases("PERSISTENT"), communicator.capture():
        car.forward(communicator, 5, 1, warm_up=True)
        assert communicator._staging.arena.ledger == ()
    assert car.ops.calls == []


@pytest.mark.parametrize(
    "descriptor",
    [
        {"num_tokens": 64, "num_reqs": 64},
        {"num_tokens": 5, "num_reqs": 1, "uniform": False},
        {"num_tokens": 5, "num_reqs": 1, "has_lora": True},
        {"num_tokens": 5},
        None,
    ],
)
def test_a_graph_outside_of_the_plan_is_registered_as_before(
    car: Any, harness: ModuleType, config: Any, descriptor: dict[str, Any] | None
) -> None:
    communicator = car.communicator(config)
    tensor = car.torch.empty(5, 4096, dtype=car.torch.bfloat16)
    base, _ = car.ops.data_buffer
    for phase, expected in (
        ("PROFILING", (base, communicator.max_size)),
        ("PERSISTENT", (0, 0)),
    ):
        car.ops.calls.clear()
        with car.phases(phase), communicator.capture(), car.descriptor_of(5, 1):
            car.descriptor = descriptor and harness.BatchDescriptor(
                **{"uniform": True, **descriptor}
            )
            communicator.custom_all_reduce(tensor)
        (call,) = car.ops.calls
        assert (call.reg_buffer, call.reg_size) == expected


def test_one_sequence_reads_its_inputs_in_place(car: Any, harness: ModuleType) -> None:
    config = harness.flash_base_config(
        scheduler_config__max_num_seqs=1, compilation_config__cudagraph_capture_sizes=[5]
    )
    communicator = car.communicator(config)
    assert communicator._staging.mode is car.mode.CaptureMode.REGISTERED
    assert car.ops.data_buffer[1] == harness.shared_bytes(communicator)
    car.capture(communicator, "PERSISTENT", [(5, 1)])
    assert {(call.reg_buffer, call.reg_size) for call in captured(car)} == {(0, 0)}
    car.ops.calls.clear()
    # A tensor of 512 KiB and no more.
    for num_tokens, in_place in ((64, True), (65, False)):
        car.capture(communicator, "PERSISTENT", [(num_tokens, 1)], ops=1)
        assert (car.ops.calls.pop().reg_buffer == 0) is in_place


@pytest.mark.parametrize("phase", ["PROFILING", "PERSISTENT"])
def test_without_drafts_all_graphs_share_one_buffer(
    car: Any, harness: ModuleType, phase: str
) -> None:
    communicator = car.communicator(harness.flash_base_config(speculative_config=None))
    assert communicator._staging.mode is car.mode.CaptureMode.SINGLE
    car.capture(communicator, phase, [(1, 1), (64, 64)])
    base, size = car.ops.data_buffer
    places = {(call.reg_buffer, call.reg_size) for call in captured(car)}
    assert places == {(base, communicator.max_size)}
    assert size == harness.shared_bytes(communicator)


def test_without_a_plan_graphs_use_the_next_backend(car: Any, harness: ModuleType) -> None:
    config = harness.flash_base_config(speculative_config__num_speculative_tokens=3)
    communicator = car.communicator(config)
    assert communicator._staging.mode is car.mode.CaptureMode.COLLECTIVE
    tensor = car.torch.empty(4, 4096, dtype=car.torch.bfloat16)
    with car.phases("PERSISTENT"), communicator.capture():
        # In the warm-up too: the next backend must run before it is captured.
        assert not communicator.should_custom_ar(tensor)
        assert communicator.custom_all_reduce(tensor) is None
        with car.descriptor_of(4, 1):
            assert communicator.custom_all_reduce(tensor) is None
    assert car.ops.calls == []
    assert communicator.should_custom_ar(tensor)
    assert communicator.custom_all_reduce(tensor) is not None


@pytest.mark.parametrize("case", ["no config", "another model", "another sharding", "runner V2"])
def test_everything_else_is_upstream_s_path_call_for_call(
    car: Any, harness: ModuleType, vllm_tree: Path, case: str
) -> None:
    if case == "runner V2" and harness.runner_v2_profiles(vllm_tree):
        pytest.skip("runner V2 is staged here; see test_runner_v2.py")
    config = {
        "no config": None,
        "another model": harness.flash_base_config(
            model_config__hf_config__model_type="deepseek_v3"
        ),
        "another sharding": harness.flash_base_config(parallel_config__tensor_parallel_size=4),
        "runner V2": harness.flash_base_config(use_v2_model_runner=True),
    }[case]
    communicator = car.communicator(config)
    # One word that this rank does not take part, where the config alone cannot tell.
    assert car.dist.broadcasts == ([[None]] if case == "runner V2" else [])
    shared = harness.shared_bytes(communicator)
    assert [size for _, size in car.ops.buffers] == [2048 + 8 * MIB, shared]
    for phase in ("PROFILING", "PERSISTENT", None):
        car.ops.calls.clear()
        addresses = car.capture(communicator, phase, [(5, 1), (10, 2)], ops=3)
        assert [call.input_address for call in captured(car)] == addresses
        assert {(call.reg_buffer, call.reg_size) for call in captured(car)} == {(0, 0)}
        assert car.ops.registered[-1] == addresses
    with pytest.raises(MemoryError), communicator.capture():
        raise MemoryError
    # Upstream registers after a failure too.
    assert len(car.ops.registered) == 4
    communicator.release_graph_slots()
