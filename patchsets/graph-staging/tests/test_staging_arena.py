"""The arena: who may take a slot when, and that no live graph ever loses its own."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

SIGNALS = 2048
OPS = 87
LARGEST_FIRST = [(5 * reqs, reqs) for reqs in (64, 32, 16, 8, 4, 2, 1)]


@dataclass(frozen=True)
class Batch:
    """What a ``BatchDescriptor`` shows."""

    num_tokens: int
    num_reqs: int | None
    uniform: bool = True
    has_lora: bool = False


def flash_base(staging: ModuleType, **changes: Any) -> Any:
    """A plan of DeepSeek-V4-Flash-Base with four drafts."""
    numbers: dict[str, Any] = {
        "hidden_size": 4096,
        "num_layers": 43,
        "dtype_bytes": 2,
        "num_speculative_tokens": 4,
        "request_ladder": [1, 2, 4, 8, 16, 32, 64],
        "max_num_batched_tokens": 8195,
    }
    return staging.build_staging_plan(**{**numbers, **changes})


def small(staging: ModuleType, meta_max: int = 16 * 1024) -> Any:
    """Two graphs, (2, 1) and (4, 2), of three all-reduces each."""
    return staging.build_staging_plan(
        hidden_size=100,
        num_layers=1,
        dtype_bytes=2,
        num_speculative_tokens=1,
        request_ladder=[1, 2],
        max_num_batched_tokens=64,
        meta_max=meta_max,
    )


def capture_graph(arena: Any, tokens: int, reqs: int, ops: int | None = None) -> list[Any]:
    """Take the slots of one graph, as its all-reduces would."""
    nbytes = tokens * arena.plan.bytes_per_token
    count = arena.plan.ops_per_descriptor if ops is None else ops
    return [arena.take(Batch(tokens, reqs), nbytes, f"op{i}") for i in range(count)]


def capture_all(arena: Any, phase: Any, graphs: Iterable[tuple[int, int]]) -> list[Any]:
    with arena.capture(phase):
        return [slot for graph in graphs for slot in capture_graph(arena, *graph)]


def disjoint(intervals: Iterable[tuple[int, int]]) -> bool:
    """Whether half-open intervals share no byte."""
    ordered = sorted(intervals)
    return all(a[1] <= b[0] for a, b in pairwise(ordered))


def data(slot: Any) -> tuple[int, int]:
    return slot.data_offset, slot.data_offset + slot.data_size


def meta(slot: Any) -> tuple[int, int]:
    return slot.meta_offset, slot.meta_offset + slot.meta_size


@pytest.fixture
def profiling(staging: ModuleType) -> Any:
    return staging.CapturePhase.PROFILING


@pytest.fixture
def persistent(staging: ModuleType) -> Any:
    return staging.CapturePhase.PERSISTENT


# --- The deployment: seven graphs, profiled with the two largest, then captured for good.
@pytest.mark.fix
def test_profiling_takes_174_slots_and_gives_them_back(staging: ModuleType, profiling: Any) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=SIGNALS)
    start = arena.cursors
    slots = capture_all(arena, profiling, LARGEST_FIRST[:2])
    assert len(slots) == 174
    assert sum(slot.data_size for slot in slots) == 342_097_920  # 326.25 MiB
    assert arena.state is staging.ArenaState.RELEASED
    assert arena.ledger == ()
    assert arena.cursors == start
    assert arena.captured == frozenset()


@pytest.mark.fix
def test_the_persistent_capture_takes_609_disjoint_slots_and_seals(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    plan = flash_base(staging)
    arena = staging.StagingArena(plan, meta_size=SIGNALS)
    capture_all(arena, profiling, LARGEST_FIRST[:2])
    slots = capture_all(arena, persistent, LARGEST_FIRST)
    assert len(slots) == len(set(slots)) == 609
    assert tuple(slots) == arena.ledger
    assert disjoint(map(data, slots))
    assert disjoint(map(meta, slots))
    for slot in slots:
        for number in (slot.data_offset, slot.data_size, slot.meta_offset, slot.meta_size):
            assert number % 256 == 0
        assert slot.data_offset >= plan.eager_bytes
        assert slot.meta_offset >= SIGNALS + plan.eager_bytes
        assert slot.nbytes <= slot.data_size
        assert slot.nbytes + SIGNALS <= slot.meta_size
    assert arena.cursors == (523_870_208, 525_119_488)  # 499.60 and 500.79 MiB
    assert arena.cursors[0] == plan.data_limit <= plan.arena_bytes
    assert arena.cursors[1] <= arena.limits[1] <= SIGNALS + plan.arena_bytes
    assert arena.state is staging.ArenaState.SEALED
    assert arena.captured == frozenset(plan.descriptors)


def test_without_meta_there_are_data_slots_only(staging: ModuleType, persistent: Any) -> None:
    plan = flash_base(staging, max_bytes=256 * 1024, eager_bytes=256 * 1024, meta_max=0)
    arena = staging.StagingArena(plan, meta_size=SIGNALS)
    slots = capture_all(arena, persistent, [(20, 4), (10, 2), (5, 1)])
    assert len(slots) == 261
    assert sum(slot.data_size for slot in slots) == 24_944_640
    assert {meta(slot) for slot in slots} == {(0, 0)}
    assert arena.cursors == arena.limits == (4 * 1024 * 1024 + 24_944_640, 0)
    assert arena.state is staging.ArenaState.SEALED


@pytest.mark.parametrize("meta_size", [1, 2056, 16 * 1024 - 1])
def test_slots_are_aligned_whatever_the_size_of_the_signals(
    staging: ModuleType, persistent: Any, meta_size: int
) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=meta_size)
    slots = capture_all(arena, persistent, LARGEST_FIRST)
    assert len(slots) == 609
    assert disjoint(map(meta, slots))
    for slot in slots:
        assert slot.meta_offset % 256 == 0 == slot.meta_size % 256
        assert slot.meta_offset >= meta_size + arena.plan.eager_bytes
        assert slot.meta_size >= meta_size + slot.nbytes


def test_profiling_graphs_outside_the_plan_touch_no_slot_and_do_not_seal(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    """A ladder that ends at 16 requests, profiled with the graphs of 64 and 32."""
    arena = staging.StagingArena(
        flash_base(staging, request_ladder=[1, 2, 4, 8, 16]), meta_size=SIGNALS
    )
    with arena.capture(profiling):
        for tokens, reqs in LARGEST_FIRST[:2]:
            assert arena.take(Batch(tokens, reqs), tokens * 8192) is None
        assert arena.ledger == ()
    assert arena.state is staging.ArenaState.RELEASED
    with arena.capture(persistent):
        taken = [arena.take(Batch(t, r), t * 8192) for t, r in LARGEST_FIRST for _ in range(OPS)]
    assert taken.count(None) == 2 * OPS
    assert len(arena.ledger) == 435
    assert arena.state is staging.ArenaState.SEALED


@pytest.mark.fix
@pytest.mark.parametrize("times", [1, 2, 3])
def test_profiling_never_seals_however_often(
    staging: ModuleType, profiling: Any, persistent: Any, times: int
) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=SIGNALS)
    for _ in range(times):
        capture_all(arena, profiling, LARGEST_FIRST)
        assert arena.state is staging.ArenaState.RELEASED
    capture_all(arena, persistent, LARGEST_FIRST)
    assert arena.state is staging.ArenaState.SEALED


def test_a_persistent_capture_of_unstaged_graphs_does_not_seal(
    staging: ModuleType, persistent: Any
) -> None:
    arena = staging.StagingArena(small(staging))
    with arena.capture(persistent):
        assert arena.take(Batch(320, 64), 64000) is None
    assert arena.state is staging.ArenaState.OPEN
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    assert arena.state is staging.ArenaState.SEALED


def test_captures_of_several_managers_add_up(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    arena = staging.StagingArena(
        flash_base(staging), meta_size=SIGNALS, seal_mode=staging.SealMode.RELAXED
    )
    capture_all(arena, profiling, LARGEST_FIRST[:2])
    first = capture_all(arena, persistent, LARGEST_FIRST[:3])
    assert arena.state is staging.ArenaState.OPEN
    second = capture_all(arena, persistent, LARGEST_FIRST[3:])
    assert arena.state is staging.ArenaState.SEALED
    assert len(first + second) == 609
    assert disjoint(map(data, first + second))
    with arena.capture(persistent):
        assert arena.take(Batch(64, 64), 64 * 8192) is None
        with pytest.raises(staging.ArenaSealedError):
            arena.take(Batch(5, 1), 5 * 8192)
    assert arena.state is staging.ArenaState.SEALED
    assert len(arena.ledger) == 609


def test_a_strict_sealed_arena_refuses_every_capture(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=SIGNALS)
    capture_all(arena, persistent, LARGEST_FIRST)
    for phase in (profiling, persistent):
        with pytest.raises(staging.ArenaSealedError, match=r"609 slots.*release_all"):
            arena.begin(phase)
        assert arena.state is staging.ArenaState.SEALED
    assert issubclass(staging.ArenaSealedError, staging.ArenaError)
    assert issubclass(staging.ArenaError, RuntimeError)


def test_release_makes_room_for_a_new_generation(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    arena = staging.StagingArena(small(staging))
    first = capture_all(arena, persistent, [(4, 2), (2, 1)])
    arena.release_all(graphs_destroyed=True, device_synchronized=True)
    assert arena.state is staging.ArenaState.RELEASED
    assert arena.generation == 1
    assert arena.captured == frozenset()
    capture_all(arena, profiling, [(4, 2)])
    assert capture_all(arena, persistent, [(4, 2), (2, 1)]) == first
    assert arena.state is staging.ArenaState.SEALED


@pytest.mark.parametrize(
    ("destroyed", "synchronized"), [(False, True), (True, False), (1, True), (True, None)]
)
def test_release_needs_both_assertions(
    staging: ModuleType, persistent: Any, destroyed: Any, synchronized: Any
) -> None:
    arena = staging.StagingArena(small(staging))
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    with pytest.raises(staging.ArenaStateError, match="destroyed"):
        arena.release_all(graphs_destroyed=destroyed, device_synchronized=synchronized)
    assert arena.state is staging.ArenaState.SEALED
    assert arena.generation == 0


# --- Which batches are staged.


@pytest.mark.parametrize(
    "descriptor",
    [
        None,
        object(),
        Batch(4, None),
        Batch(4, 2, uniform=False),
        Batch(4, 2, has_lora=True),
        Batch(4, 1),
        Batch(6, 3),
        Batch(True, 1),
        Batch(4.0, 2),  # type: ignore[arg-type]
        Batch(4, 2, uniform=1),  # type: ignore[arg-type]
        Batch(4, 2, has_lora=0),  # type: ignore[arg-type]
        Batch([], {}),  # type: ignore[arg-type]
    ],
)
def test_a_batch_outside_the_plan_uses_the_existing_collective(
    staging: ModuleType, persistent: Any, descriptor: Any
) -> None:
    arena = staging.StagingArena(small(staging))
    with arena.capture(persistent):
        before = arena.cursors
        assert arena.take(descriptor, 800) is None
        assert arena.cursors == before


@pytest.mark.parametrize("nbytes", [0, -1, True, 800.0, None])
def test_a_size_that_is_none_is_refused(staging: ModuleType, persistent: Any, nbytes: Any) -> None:
    arena = staging.StagingArena(small(staging))
    arena.begin(persistent)
    with pytest.raises(staging.ArenaStateError):
        arena.take(Batch(4, 2), nbytes)
    assert arena.ledger == ()


def test_the_eager_partition_ends_where_slots_begin(staging: ModuleType) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=SIGNALS)
    end = arena.plan.eager_bytes
    assert arena.cursors[0] == end
    assert [arena.accepts_eager(n) for n in (1, end, end + 1, 0, -1)] == [
        True,
        True,
        False,
        False,
        False,
    ]


# --- Exhaustion and manifest.


def test_running_out_of_slots_names_the_numbers(staging: ModuleType, persistent: Any) -> None:
    arena = staging.StagingArena(small(staging))
    arena.begin(persistent)
    capture_graph(arena, 2, 1)
    capture_graph(arena, 4, 2)
    before = (arena.cursors, arena.ledger)
    with pytest.raises(staging.ArenaExhaustedError) as raised:
        arena.take(Batch(4, 2), 800, "extra")
    assert (arena.cursors, arena.ledger) == before
    for part in ("extra number 4", "(4, 2)", "3 per graph", str(arena.limits[0])):
        assert part in str(raised.value)


def test_a_full_meta_half_alone_is_enough_to_run_out(staging: ModuleType, persistent: Any) -> None:
    arena = staging.StagingArena(small(staging), meta_size=16 * 1024)
    arena.begin(persistent)
    # Six slots of one byte leave data room, but use up all meta room but for rounding.
    taken = 0
    with pytest.raises(staging.ArenaExhaustedError):
        for _ in range(100):
            arena.take(Batch(4, 2), 1)
            taken += 1
    assert arena.cursors[0] + 256 <= arena.limits[0]
    assert arena.cursors[1] + 16 * 1024 + 256 > arena.limits[1]
    assert taken < 100


@pytest.mark.parametrize("phase", ["PROFILING", "PERSISTENT"])
@pytest.mark.parametrize(
    "graphs",
    [
        [(2, 1, 2)],
        [(2, 1, 4)],
        [(4, 2, 3), (2, 1, 1)],
        [(4, 2, 1)],
    ],
)
def test_a_wrong_number_of_slots_fails_the_capture(
    staging: ModuleType, phase: str, graphs: list[tuple[int, int, int]]
) -> None:
    arena = staging.StagingArena(small(staging))
    arena.begin(staging.CapturePhase[phase])
    for graph in graphs:
        capture_graph(arena, *graph)
    with pytest.raises(staging.ArenaManifestError, match="slots: expected 3"):
        arena.end()
    expected = "RELEASED" if phase == "PROFILING" else "FAILED"
    assert arena.state is staging.ArenaState[expected]
    assert arena.captured == frozenset()


def test_a_wrong_tensor_size_fails_the_capture(staging: ModuleType, persistent: Any) -> None:
    arena = staging.StagingArena(small(staging))
    arena.begin(persistent)
    for nbytes in (400, 400, 16):
        arena.take(Batch(2, 1), nbytes, "op")
    with pytest.raises(staging.ArenaManifestError, match=r"bytes: expected 400, got 16"):
        arena.end()
    assert arena.state is staging.ArenaState.FAILED


def test_the_manifest_names_every_kind_of_damage(staging: ModuleType, persistent: Any) -> None:
    arena = staging.StagingArena(small(staging), meta_size=SIGNALS)
    arena.begin(persistent)
    capture_graph(arena, 2, 1)
    ledger, cursors = list(arena.ledger), arena.cursors

    def findings(ledger: list[Any], cursors: tuple[int, int]) -> list[str]:
        found = staging.verify_manifest(arena.plan, SIGNALS, ledger, *cursors)
        return [finding.what for finding in found]

    assert findings(ledger, cursors) == []
    assert findings(ledger, (cursors[0] + 256, cursors[1])) == ["data cursor"]
    assert findings(ledger, (cursors[0], cursors[1] - 1)) == ["meta cursor"]
    for field in ("data_offset", "data_size", "meta_offset", "meta_size"):
        value = getattr(ledger[1], field) + 256
        damaged = [ledger[0], ledger[1]._replace(**{field: value}), ledger[2]]
        assert findings(damaged, cursors) == [f"slot 1 (op1) {field.replace('_', ' ')}"]
    overlapping = [ledger[0], ledger[0], ledger[2]]
    assert "slot 1 (op0) data offset" in findings(overlapping, cursors)
    alien = [slot._replace(num_tokens=3) for slot in ledger]
    assert "graph (3, 1) slots" in findings(alien, cursors)


# --- Building.


def test_an_arena_without_a_plan_is_disabled_and_in_nobodys_way(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    refusal = flash_base(staging, max_num_batched_tokens=8705)
    for plan in (None, refusal, "plan"):
        arena = staging.StagingArena(plan, meta_size=SIGNALS, world_size=8)
        assert arena.state is staging.ArenaState.DISABLED
        assert not arena.enabled
        assert arena.disabled_reason
        for phase in (profiling, persistent, persistent):
            with arena.capture(phase):
                assert arena.take(Batch(5, 1), 5 * 8192) is None
        arena.release_all(graphs_destroyed=False, device_synchronized=False)
        assert not arena.accepts_eager(1)
        assert arena.state is staging.ArenaState.DISABLED
    assert "516.00 MiB" in staging.StagingArena(refusal).disabled_reason


@pytest.mark.parametrize(
    ("meta_size", "enabled"),
    [
        (0, True),
        (2048, True),
        (16 * 1024, True),
        (16 * 1024 + 1, False),
        (-1, False),
        (True, False),
    ],
)
def test_the_signals_must_fit_their_slots(
    staging: ModuleType, meta_size: int, enabled: bool
) -> None:
    arena = staging.StagingArena(flash_base(staging), meta_size=meta_size)
    assert arena.enabled is enabled
    assert (arena.disabled_reason is None) is enabled


def test_a_plan_above_the_bound_disables_the_arena(staging: ModuleType) -> None:
    oversized = replace(flash_base(staging), eager_bytes=512 * 1024 * 1024)
    arena = staging.StagingArena(oversized)
    assert not arena.enabled
    assert "exceed the bound" in arena.disabled_reason


def test_several_ranks_need_an_exchange(staging: ModuleType) -> None:
    with pytest.raises(staging.ArenaConsensusError):
        staging.StagingArena(small(staging), world_size=2)


# --- The state table: every event in every state.

EVENTS: dict[str, Callable[[Any, Any], Any]] = {
    "begin profiling": lambda s, a: a.begin(s.CapturePhase.PROFILING),
    "begin persistent": lambda s, a: a.begin(s.CapturePhase.PERSISTENT),
    "begin nonsense": lambda s, a: a.begin("persistent"),
    "take planned": lambda s, a: a.take(Batch(2, 1), 400),
    "take captured": lambda s, a: a.take(Batch(4, 2), 800),
    "take other": lambda s, a: a.take(Batch(64, 64), 12800),
    "end": lambda s, a: a.end(),
    "end failed": lambda s, a: a.end(ValueError("boom")),
    "release": lambda s, a: a.release_all(graphs_destroyed=True, device_synchronized=True),
}


def arena_in(staging: ModuleType, state: str, relaxed: bool = False) -> Any:
    """An arena in a state; in OPEN, SEALED, FAILED and CAPTURING, graph (4, 2) was captured."""
    arena = staging.StagingArena(
        None if state == "DISABLED" else small(staging),
        seal_mode=staging.SealMode.RELAXED if relaxed else staging.SealMode.STRICT,
    )
    profiling, persistent = staging.CapturePhase.PROFILING, staging.CapturePhase.PERSISTENT
    if state == "PROFILING":
        arena.begin(profiling)
    elif state == "RELEASED":
        capture_all(arena, profiling, [(4, 2)])
    elif state in ("OPEN", "CAPTURING", "FAILED", "SEALED"):
        capture_all(arena, persistent, [(4, 2)])
        if state == "SEALED":
            capture_all(arena, persistent, [(2, 1)])
        elif state != "OPEN":
            arena.begin(persistent)
        if state == "FAILED":
            arena.end(ValueError("out of memory"))
    assert arena.state is staging.ArenaState[state]
    return arena


IDLE_TAKES = {
    "take planned": "ArenaStateError",
    "take captured": "ArenaStateError",
    "take other": None,
}
NOT_CAPTURING = {"end": "ArenaStateError", "end failed": "ArenaStateError"}
BEGINS = {"begin profiling": "PROFILING", "begin persistent": "CAPTURING"}
NO_BEGIN = {"begin profiling": "ArenaStateError", "begin persistent": "ArenaStateError"}
NONSENSE = {"begin nonsense": "ArenaStateError"}

# State -> event -> the state it leads to, the error it is refused with (the state then stays), or
# None for a call that changes nothing. "slot" is a slot taken.
TABLE: dict[str, dict[str, str | None]] = {
    "DISABLED": dict.fromkeys(EVENTS),
    "FRESH": {**BEGINS, **NONSENSE, **IDLE_TAKES, **NOT_CAPTURING, "release": "ArenaStateError"},
    "RELEASED": {**BEGINS, **NONSENSE, **IDLE_TAKES, **NOT_CAPTURING, "release": "ArenaStateError"},
    "PROFILING": {
        **NO_BEGIN,
        **NONSENSE,
        "take planned": "slot",
        "take captured": "slot",
        "take other": None,
        "end": "RELEASED",
        "end failed": "RELEASED",
        "release": "ArenaStateError",
    },
    "CAPTURING": {
        **NO_BEGIN,
        **NONSENSE,
        "take planned": "slot",
        "take captured": "ArenaSealedError",
        "take other": None,
        "end": "OPEN",
        "end failed": "FAILED",
        "release": "ArenaStateError",
    },
    "OPEN": {
        "begin profiling": "ArenaStateError",
        "begin persistent": "CAPTURING",
        **NONSENSE,
        "take planned": "ArenaStateError",
        "take captured": "ArenaSealedError",
        "take other": None,
        **NOT_CAPTURING,
        "release": "RELEASED",
    },
    "SEALED": {
        "begin profiling": "ArenaSealedError",
        "begin persistent": "ArenaSealedError",
        **NONSENSE,
        "take planned": "ArenaSealedError",
        "take captured": "ArenaSealedError",
        "take other": None,
        **NOT_CAPTURING,
        "release": "RELEASED",
    },
    "FAILED": {
        **NO_BEGIN,
        **NONSENSE,
        "take planned": "ArenaStateError",
        "take captured": "ArenaSealedError",
        "take other": None,
        **NOT_CAPTURING,
        "release": "RELEASED",
    },
}


def test_the_table_is_complete(staging: ModuleType) -> None:
    assert set(TABLE) == {state.name for state in staging.ArenaState}
    assert all(set(events) == set(EVENTS) for events in TABLE.values())


def check_event(staging: ModuleType, arena: Any, event: str, outcome: str | None) -> None:
    before = (arena.state, arena.ledger, arena.cursors, arena.captured, arena.generation)
    if outcome is not None and outcome.endswith("Error"):
        with pytest.raises(getattr(staging, outcome)):
            EVENTS[event](staging, arena)
    else:
        result = EVENTS[event](staging, arena)
        if outcome == "slot":
            assert arena.ledger[-1] == result
            assert len(arena.ledger) == len(before[1]) + 1
            assert arena.state is before[0]
            return
        assert result is None
        if outcome is not None:
            assert arena.state is staging.ArenaState[outcome]
            return
    after = (arena.state, arena.ledger, arena.cursors, arena.captured, arena.generation)
    assert after == before


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
def test_state_table(staging: ModuleType, state: str, event: str) -> None:
    check_event(staging, arena_in(staging, state), event, TABLE[state][event])


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", [state for state in TABLE if state != "SEALED"])
def test_a_relaxed_arena_differs_only_when_sealed(
    staging: ModuleType, state: str, event: str
) -> None:
    check_event(staging, arena_in(staging, state, relaxed=True), event, TABLE[state][event])


@pytest.mark.parametrize("phase", ["begin profiling", "begin persistent"])
def test_a_relaxed_sealed_arena_admits_captures_that_take_nothing(
    staging: ModuleType, phase: str
) -> None:
    arena = arena_in(staging, "SEALED", relaxed=True)
    slots = arena.ledger
    for ending in ("end", "end failed"):
        check_event(staging, arena, phase, "SEALED")
        check_event(staging, arena, "begin persistent", "ArenaStateError")
        check_event(staging, arena, "take planned", "ArenaSealedError")
        check_event(staging, arena, "take captured", "ArenaSealedError")
        check_event(staging, arena, "take other", None)
        check_event(staging, arena, "release", "ArenaStateError")
        check_event(staging, arena, ending, "SEALED")
    assert arena.ledger == slots
    check_event(staging, arena, "end", "ArenaStateError")


def test_the_last_graph_seals(staging: ModuleType) -> None:
    arena = arena_in(staging, "CAPTURING")
    capture_graph(arena, 2, 1)
    arena.end()
    assert arena.state is staging.ArenaState.SEALED


@pytest.mark.parametrize(("phase", "state"), [("PROFILING", "RELEASED"), ("PERSISTENT", "FAILED")])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_inside_the_capture_is_raised_again(
    staging: ModuleType, phase: str, state: str, error: type[BaseException]
) -> None:
    arena = staging.StagingArena(small(staging))
    with pytest.raises(error), arena.capture(staging.CapturePhase[phase]):
        arena.take(Batch(2, 1), 400)
        raise error("boom")
    assert arena.state is staging.ArenaState[state]


def test_a_failed_profiling_is_followed_by_a_good_capture(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    arena = staging.StagingArena(small(staging))
    with pytest.raises(MemoryError), arena.capture(profiling):
        capture_graph(arena, 4, 2, ops=1)
        raise MemoryError
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    assert arena.state is staging.ArenaState.SEALED


# --- Several ranks.


class Peers:
    """Plays the other ranks: each repeats this rank's report with a change."""

    def __init__(self, *changes: dict[str, Any] | None) -> None:
        self.changes = changes
        self.seen: list[Any] = []

    def __call__(self, report: Any) -> Iterator[Any]:
        self.seen.append(report)
        yield report
        for rank, change in enumerate(self.changes, start=1):
            yield None if change is None else replace(report, **{"rank": rank, **change})


def two_ranks(staging: ModuleType, exchange: Any) -> Any:
    return staging.StagingArena(
        small(staging), meta_size=SIGNALS, rank=0, world_size=2, exchange=exchange
    )


def test_equal_reports_of_all_ranks_agree(staging: ModuleType, persistent: Any) -> None:
    peers = Peers({})
    arena = two_ranks(staging, peers)
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    assert arena.state is staging.ArenaState.SEALED
    assert len(peers.seen) == 1
    assert peers.seen[0].error is None
    assert len(peers.seen[0].ledger) == 6


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"error": "ValueError: boom"}, "rank 1: failed rank: ValueError: boom"),
        ({"ledger": ()}, "rank 1: mismatch: 0 slots, rank 0 has 6"),
        ({"generation": 3}, "generation 3"),
        ({"fingerprint": "other"}, "fingerprint other"),
        ({"rank": 0}, "rank 1: missing rank"),
        ({"rank": 7}, "rank 7: mismatch: world size is 2"),
        (None, "rank 1: missing rank: 0 reports"),
    ],
)
@pytest.mark.parametrize(("phase", "state"), [("PROFILING", "RELEASED"), ("PERSISTENT", "FAILED")])
def test_one_rank_that_differs_fails_the_capture_everywhere(
    staging: ModuleType, change: dict[str, Any] | None, part: str, phase: str, state: str
) -> None:
    arena = two_ranks(staging, Peers(change))
    with pytest.raises(staging.ArenaConsensusError, match=part):
        capture_all(arena, staging.CapturePhase[phase], [(4, 2), (2, 1)])
    assert arena.state is staging.ArenaState[state]
    assert arena.captured == frozenset()


def test_one_slot_at_another_place_is_a_mismatch(staging: ModuleType, persistent: Any) -> None:
    def exchange(report: Any) -> list[Any]:
        moved = report.ledger[2]._replace(data_offset=0)
        ledger = (*report.ledger[:2], moved, *report.ledger[3:])
        return [report, replace(report, rank=1, ledger=ledger)]

    arena = two_ranks(staging, exchange)
    with pytest.raises(staging.ArenaConsensusError, match="slot 2 differs from rank 0's"):
        capture_all(arena, persistent, [(4, 2), (2, 1)])


def test_another_phase_is_a_mismatch(staging: ModuleType, profiling: Any, persistent: Any) -> None:
    arena = two_ranks(staging, Peers({"phase": profiling}))
    with pytest.raises(staging.ArenaConsensusError, match="phase"):
        capture_all(arena, persistent, [(4, 2), (2, 1)])


def test_an_empty_ledger_is_exchanged_too(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    peers = Peers({})
    arena = two_ranks(staging, peers)
    for phase in (profiling, persistent):
        with arena.capture(phase):
            pass
    assert [report.ledger for report in peers.seen] == [(), ()]
    assert arena.state is staging.ArenaState.OPEN


def test_a_failure_is_exchanged_too(staging: ModuleType, persistent: Any) -> None:
    peers = Peers({})
    arena = two_ranks(staging, peers)
    with pytest.raises(ZeroDivisionError), arena.capture(persistent):
        raise ZeroDivisionError("boom")
    assert [report.error for report in peers.seen] == ["ZeroDivisionError: boom"]
    assert arena.state is staging.ArenaState.FAILED


def test_a_manifest_failure_is_exchanged_too(staging: ModuleType, persistent: Any) -> None:
    peers = Peers({})
    arena = two_ranks(staging, peers)
    arena.begin(persistent)
    capture_graph(arena, 4, 2, ops=1)
    with pytest.raises(staging.ArenaManifestError):
        arena.end()
    assert "expected 3, got 1" in peers.seen[0].error


def test_a_sealed_arena_exchanges_too(staging: ModuleType, persistent: Any) -> None:
    peers = Peers({})
    arena = staging.StagingArena(
        small(staging), world_size=2, exchange=peers, seal_mode=staging.SealMode.RELAXED
    )
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    with arena.capture(persistent):
        pass
    assert len(peers.seen) == 2


@pytest.mark.parametrize("reports", [None, 1])
@pytest.mark.parametrize(("phase", "state"), [("PROFILING", "RELEASED"), ("PERSISTENT", "FAILED")])
def test_an_exchange_that_returns_no_reports_fails_the_capture(
    staging: ModuleType, reports: Any, phase: str, state: str
) -> None:
    arena = two_ranks(staging, lambda report: reports)
    with pytest.raises(staging.ArenaConsensusError, match="could not compare"):
        capture_all(arena, staging.CapturePhase[phase], [(4, 2)])
    assert arena.state is staging.ArenaState[state]


@pytest.mark.parametrize("error", [ConnectionError, KeyboardInterrupt])
def test_an_exchange_that_raises_fails_the_capture(
    staging: ModuleType, persistent: Any, error: type[BaseException]
) -> None:
    def exchange(report: Any) -> Any:
        raise error("peer is gone")

    arena = two_ranks(staging, exchange)
    expected = staging.ArenaConsensusError if issubclass(error, Exception) else error
    with pytest.raises(expected) as raised:
        capture_all(arena, persistent, [(4, 2), (2, 1)])
    assert error in (type(raised.value), type(raised.value.__cause__))
    assert arena.state is staging.ArenaState.FAILED


def test_an_exchange_that_raises_does_not_hide_the_first_error(
    staging: ModuleType, persistent: Any
) -> None:
    def exchange(report: Any) -> Any:
        raise ConnectionError("peer is gone")

    arena = two_ranks(staging, exchange)
    with pytest.raises(staging.ArenaConsensusError) as raised, arena.capture(persistent):
        raise MemoryError("first")
    chain: list[type[BaseException]] = []
    error: BaseException | None = raised.value
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ or error.__context__
    assert chain == [staging.ArenaConsensusError, ConnectionError, MemoryError]


def test_reports_survive_the_way_between_processes(staging: ModuleType, persistent: Any) -> None:
    peers = Peers({})
    arena = two_ranks(staging, peers)
    capture_all(arena, persistent, [(4, 2), (2, 1)])
    report = peers.seen[0]
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_failure_counts_even_if_the_exchange_loses_it(
    staging: ModuleType, persistent: Any
) -> None:
    def exchange(report: Any) -> list[Any]:
        return [replace(report, rank=rank, error=None) for rank in range(2)]

    arena = two_ranks(staging, exchange)
    with pytest.raises(MemoryError), arena.capture(persistent):
        raise MemoryError
    assert arena.state is staging.ArenaState.FAILED


def run_ranks(
    staging: ModuleType, works: list[Callable[[Any], None]]
) -> list[tuple[Any, BaseException | None]]:
    """Run one arena per rank, each in its thread, with a real exchange between them."""
    world_size = len(works)
    boxes = [queue.Queue[Any]() for _ in works]

    def exchange(report: Any) -> list[Any]:
        for box in boxes:
            box.put(pickle.dumps(report))
        return [pickle.loads(boxes[report.rank].get(timeout=10)) for _ in works]

    results: list[Any] = [None] * world_size

    def main(rank: int) -> None:
        arena = staging.StagingArena(
            small(staging), rank=rank, world_size=world_size, exchange=exchange
        )
        error = None
        try:
            works[rank](arena)
        except Exception as raised:
            error = raised
        results[rank] = (arena, error)

    threads = [threading.Thread(target=main, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return results


def test_ranks_that_do_the_same_seal_together(
    staging: ModuleType, profiling: Any, persistent: Any
) -> None:
    def work(arena: Any) -> None:
        capture_all(arena, profiling, [(4, 2)])
        capture_all(arena, persistent, [(4, 2), (2, 1)])

    for arena, error in run_ranks(staging, [work] * 4):
        assert error is None
        assert arena.state is staging.ArenaState.SEALED


def test_no_rank_waits_for_one_that_failed(staging: ModuleType, persistent: Any) -> None:
    def good(arena: Any) -> None:
        capture_all(arena, persistent, [(4, 2), (2, 1)])

    def bad(arena: Any) -> None:
        with arena.capture(persistent):
            capture_graph(arena, 4, 2, ops=1)
            raise MemoryError("no memory")

    results = run_ranks(staging, [good, bad, good])
    assert [type(error) for _, error in results] == [
        staging.ArenaConsensusError,
        MemoryError,
        staging.ArenaConsensusError,
    ]
    assert {arena.state for arena, _ in results} == {staging.ArenaState.FAILED}
    assert "rank 1: failed rank: MemoryError: no memory" in str(results[0][1])


def test_ranks_that_capture_in_another_order_disagree(staging: ModuleType, persistent: Any) -> None:
    results = run_ranks(
        staging,
        [
            lambda arena: capture_all(arena, persistent, [(4, 2), (2, 1)]),  # type: ignore
            lambda arena: capture_all(arena, persistent, [(2, 1), (4, 2)]),  # type: ignore
        ],
    )
    for arena, error in results:
        assert isinstance(error, staging.ArenaConsensusError)
        assert arena.state is staging.ArenaState.FAILED


def test_ranks_with_other_signals_disagree_even_with_empty_ledgers(
    staging: ModuleType, persistent: Any
) -> None:
    reports: list[Any] = []

    def exchange(report: Any) -> list[Any]:
        reports.append(report)
        return []

    for rank, meta_size in enumerate((2048, 4096)):
        arena = staging.StagingArena(
            small(staging), meta_size=meta_size, rank=rank, world_size=2, exchange=exchange
        )
        with pytest.raises(staging.ArenaConsensusError), arena.capture(persistent):
            pass
    consensus = staging.decide_capture(reports, 2)
    assert "rank 1: mismatch: fingerprint" in str(consensus)


def test_plans_are_compared_before_anything_is_allocated(staging: ModuleType) -> None:
    plan = flash_base(staging).fingerprint
    other = flash_base(staging, meta_max=0).fingerprint
    assert staging.decide_plan([plan] * 8, 8).agreed
    for fingerprints, rank in (
        ([plan, other], 1),
        ([plan, None], 1),
        ([None, plan], 0),
        ([plan], 1),
        ([], 0),
        ([plan, plan, plan], 2),
    ):
        consensus = staging.decide_plan(fingerprints, 2)
        assert not consensus
        assert rank in [disagreement.rank for disagreement in consensus.disagreements]
        assert f"rank {rank}" in str(consensus)


# --- Random sequences of events.


def machine(staging: ModuleType, relaxed: bool, meta_max: int) -> type[RuleBasedStateMachine]:
    state_of = staging.ArenaState
    outside = [Batch(64, 64), Batch(2, 1, uniform=False), Batch(4, 2, has_lora=True), None]

    class ArenaMachine(RuleBasedStateMachine):
        """Drives an arena as a runner would, and keeps its own list of live graphs."""

        def __init__(self) -> None:
            super().__init__()
            self.peer: dict[str, Any] | None = {}
            self.arena = staging.StagingArena(
                small(staging, meta_max),
                meta_size=SIGNALS if meta_max else 0,
                world_size=2,
                exchange=self.exchange,
                seal_mode=staging.SealMode.RELAXED if relaxed else staging.SealMode.STRICT,
            )
            self.opened: Any = None
            self.alive: list[Any] = []
            self.current: list[Any] = []
            self.was_sealed = False

        def exchange(self, report: Any) -> list[Any]:
            peer = None if self.peer is None else replace(report, rank=1, **self.peer)
            return [report, peer]

        @rule(phase=st.sampled_from(list(staging.CapturePhase)))
        def begin(self, phase: Any) -> None:
            before = self.arena.state
            try:
                self.arena.begin(phase)
            except staging.ArenaError:
                assert self.arena.state is before
            else:
                assert self.opened is None
                self.opened = phase
                self.current = []

        @rule(
            batch=st.sampled_from([Batch(2, 1), Batch(4, 2), *outside]),
            nbytes=st.sampled_from([None, 1, 256, 5000]),
        )
        def take(self, batch: Batch | None, nbytes: int | None) -> None:
            before = (self.arena.state, self.arena.cursors, self.arena.ledger)
            right = 200 * batch.num_tokens if batch is not None else 400
            try:
                slot = self.arena.take(batch, nbytes or right)
            except staging.ArenaError:
                slot = None
            if slot is None:
                assert (self.arena.state, self.arena.cursors, self.arena.ledger) == before
                return
            assert self.opened is not None
            assert before[0] in (state_of.PROFILING, state_of.CAPTURING)
            assert batch not in outside
            self.current.append(slot)

        @rule(graph=st.sampled_from([(2, 1), (4, 2)]))
        def capture_whole_graph(self, graph: tuple[int, int]) -> None:
            for _ in range(self.arena.plan.ops_per_descriptor):
                self.take(Batch(*graph), None)

        @precondition(lambda self: self.opened is not None)
        @rule(
            peer=st.sampled_from([{}, {}, {}, {"error": "boom"}, {"ledger": ((),)}, None]),
            failed=st.sampled_from([False, False, False, True]),
        )
        def end(self, peer: dict[str, Any] | None, failed: bool) -> None:
            self.peer = peer
            was_sealed = self.arena.state is state_of.SEALED
            try:
                self.arena.end(MemoryError() if failed else None)
                succeeded = not failed
            except staging.ArenaError:
                succeeded = False
            if self.opened is staging.CapturePhase.PERSISTENT or was_sealed:
                # Even a failed capture may have left graphs behind.
                self.alive += self.current
            else:
                assert self.arena.state is state_of.RELEASED
            if succeeded and not was_sealed:
                assert peer == {}
            if not succeeded and self.opened is staging.CapturePhase.PERSISTENT:
                assert self.arena.state is (state_of.SEALED if was_sealed else state_of.FAILED)
            self.opened, self.current = None, []

        @precondition(lambda self: self.opened is None)
        @rule()
        def end_without_begin(self) -> None:
            with pytest.raises(staging.ArenaStateError):
                self.arena.end()

        @rule(destroyed=st.sampled_from([True, True, False]))
        def release(self, destroyed: bool) -> None:
            generation = self.arena.generation
            try:
                self.arena.release_all(graphs_destroyed=destroyed, device_synchronized=True)
            except staging.ArenaError:
                assert self.arena.generation == generation
            else:
                assert destroyed
                assert self.opened is None
                assert self.arena.generation == generation + 1
                self.alive = []
                self.was_sealed = False

        @invariant()
        def no_byte_belongs_to_two_live_graphs(self) -> None:
            slots = self.alive + self.current
            assert disjoint(map(data, slots))
            if meta_max:
                assert disjoint(map(meta, slots))

        @invariant()
        def slots_stay_inside_their_partition(self) -> None:
            for cursor, limit in zip(self.arena.cursors, self.arena.limits, strict=True):
                assert 0 <= cursor <= limit
            for slot in self.alive + self.current:
                assert self.arena.plan.eager_bytes <= slot.data_offset
                assert data(slot)[1] <= self.arena.limits[0] <= self.arena.plan.arena_bytes
                assert meta(slot)[1] <= self.arena.limits[1]

        @invariant()
        def the_ledger_is_what_was_taken(self) -> None:
            assert list(self.arena.ledger) == self.alive + self.current

        @invariant()
        def sealed_is_sticky(self) -> None:
            sealed = self.arena.state is state_of.SEALED
            assert sealed or not self.was_sealed
            self.was_sealed = sealed
            if sealed:
                assert self.arena.captured == frozenset(self.arena.plan.descriptors)

    return ArenaMachine


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("meta_max", [0, 16 * 1024])
def test_random_events(staging: ModuleType, relaxed: bool, meta_max: int) -> None:
    run_state_machine_as_test(
        machine(staging, relaxed, meta_max),
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None),
    )
