"""Graphs captured through the tree's custom all-reduce on a real device, and replayed.

The all-reduce kernel is a double for one rank: it copies the input to where the graph was told to,
and the result from there. Everything else that decides about addresses is real: CUDA's capture, the
graphs' memory pools, the tree's files. Two GPUs serve for two ranks' arenas, without vLLM's kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

DEVICE = "cuda:0"


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch


def copy_ops(harness: ModuleType, torch: Any) -> type:
    """Ops whose memory is real and whose all-reduce is the copy that one rank needs."""

    class CopyOps(harness.FakeOps):  # type: ignore[misc,name-defined]
        def __init__(self, capturing: Any) -> None:
            super().__init__(capturing)
            self.memory: list[Any] = []

        def allocate_shared_buffer_and_handle(self, size: int) -> tuple[int, int]:
            self.memory.append(torch.zeros(size, dtype=torch.uint8, device=DEVICE))
            self.buffers.append((self.memory[-1].data_ptr(), size))
            return self.buffers[-1][0], 0

        def at(self, address: int, nbytes: int) -> Any:
            """The bytes at an address of a communicator's buffer."""
            for memory, (start, size) in zip(self.memory, self.buffers, strict=True):
                if start <= address and address + nbytes <= start + size:
                    return memory[address - start : address - start + nbytes]
            raise AssertionError(f"{address} is not in a buffer of the communicator")

        def all_reduce(
            self, pointer: int, inp: Any, out: Any, reg_buffer: int, reg_size: int
        ) -> None:
            super().all_reduce(pointer, inp, out, reg_buffer, reg_size)
            staged = inp
            if reg_buffer:
                staged = self.at(reg_buffer, inp.numel() * inp.element_size())
                staged.copy_(inp.view(torch.uint8).reshape(-1))
                staged = staged.view(inp.dtype).view_as(inp)
            out.copy_(staged)

    return CopyOps


class Graph:
    """One decode graph: each layer adds 1 to what the all-reduce returned, exact in bfloat16."""

    def __init__(self, torch: Any, car: Any, communicator: Any, graph: tuple[int, int], pool: Any):
        self.torch, self.num_ops = torch, 87
        self.input = torch.zeros(graph[0], 4096, dtype=torch.bfloat16, device=DEVICE)
        self.graph = torch.cuda.CUDAGraph()
        start = len(car.ops.calls)
        with torch.cuda.graph(self.graph, pool=pool), car.descriptor_of(*graph):
            value = self.input
            for _ in range(self.num_ops):
                value = communicator.custom_all_reduce(value) + 1
            self.output = value
        self.calls = car.ops.calls[start:]

    def replay(self, value: float) -> None:
        self.input.fill_(value)
        self.graph.replay()

    def holds(self, value: float) -> bool:
        self.torch.cuda.synchronize()
        return bool((self.output == value + self.num_ops).all())


@contextmanager
def captures(harness: ModuleType, torch: Any, tree: Path) -> Iterator[tuple[Any, Any]]:
    with harness.custom_all_reduce(tree) as car:
        ops = copy_ops(harness, torch)(lambda: car.is_capturing)
        car.ops = car.module.ops = ops
        config = harness.flash_base_config(model_config__dtype=torch.bfloat16)
        request = car.request(config) if car.patched else None
        arguments = {"staging_request": request} if car.patched else {}
        yield car, car.module.CustomAllreduce(group="cpu", device=DEVICE, **arguments)


def capture_all(
    torch: Any, car: Any, communicator: Any, phase: str, graphs: list[tuple[int, int]]
) -> list[Graph]:
    pool = torch.cuda.graph_pool_handle()
    with car.phases(phase), communicator.capture():
        return [Graph(torch, car, communicator, graph, pool) for graph in reversed(graphs)]


@pytest.mark.fix
def test_no_address_of_a_throwaway_graph_is_registered(
    harness: ModuleType, torch: Any, vllm_tree: Path
) -> None:
    """The bare pin registers addresses in the graphs' pool, which goes back to the device."""
    with captures(harness, torch, vllm_tree) as (car, communicator):
        capture_all(torch, car, communicator, "PROFILING", harness.GRAPHS[-2:]).clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        (registered,) = car.ops.registered
        alive = [
            (segment["address"], segment["address"] + segment["total_size"])
            for segment in torch.cuda.memory_snapshot()
        ]
        assert len(registered) == 174
        assert all(any(start <= address < end for start, end in alive) for address in registered)
        assert all(car.ops.owns(address) for address in registered)


@pytest.mark.fix
def test_graphs_replay_from_their_slots_after_profiling(
    harness: ModuleType, torch: Any, vllm_tree: Path
) -> None:
    """All seven graphs, in any order, with eager all-reduces between them."""
    with captures(harness, torch, vllm_tree) as (car, communicator):
        throwaway = capture_all(torch, car, communicator, "PROFILING", harness.GRAPHS[-2:])
        throwaway[0].replay(1)
        assert throwaway[0].holds(1)
        throwaway.clear()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        graphs = capture_all(torch, car, communicator, "PERSISTENT", harness.GRAPHS)
        assert sum(len(graph.calls) for graph in graphs) == 609
        eager = torch.full((1023, 4096), 99.0, dtype=torch.bfloat16, device=DEVICE)
        for round_, order in enumerate((graphs, graphs[::-1], graphs[::2] + graphs[1::2])):
            for index, graph in enumerate(order):
                graph.replay(10 * round_ + index)
                # At once: the graphs have one pool, so a later replay may reuse this output.
                assert graph.holds(10 * round_ + index)
                assert communicator.custom_all_reduce(eager) is not None
            for index, graph in enumerate(order):
                value = 10 * round_ + index
                for layer, call in enumerate(graph.calls):
                    slot = car.ops.at(call.reg_buffer, call.nbytes).view(torch.bfloat16)
                    # Untouched by the graphs and the eager calls that came after.
                    assert slot[0] == slot[-1] == value + layer


def test_a_sealed_arena_protects_live_graphs(
    harness: ModuleType, torch: Any, vllm_tree: Path
) -> None:
    with captures(harness, torch, vllm_tree) as (car, communicator):
        graphs = capture_all(torch, car, communicator, "PERSISTENT", harness.GRAPHS)
        with pytest.raises(car.arena.ArenaSealedError):
            capture_all(torch, car, communicator, "PROFILING", harness.GRAPHS[-2:])
        graphs[0].replay(3)
        assert graphs[0].holds(3)
        graphs.clear()
        torch.cuda.synchronize()
        communicator.release_graph_slots()
        again = capture_all(torch, car, communicator, "PERSISTENT", harness.GRAPHS)
        again[-1].replay(5)
        assert again[-1].holds(5)


def test_two_ranks_stage_at_the_same_offsets(staging: ModuleType, torch: Any) -> None:
    """After a replay on both devices the slots at one offset hold the operands of one op."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices, there is {torch.cuda.device_count()}")
    from dataclasses import replace

    plan = staging.require_plan(
        staging.build_staging_plan(
            hidden_size=4096,
            num_layers=43,
            dtype_bytes=2,
            num_speculative_tokens=4,
            request_ladder=[1, 2, 4],
            max_num_batched_tokens=8195,
            max_bytes=256 * 1024,
            eager_bytes=256 * 1024,
            meta_max=0,
        )
    )
    arenas, buffers, graphs, inputs = [], [], [], []
    for rank in range(2):
        with torch.cuda.device(rank):
            arena = staging.StagingArena(
                plan,
                rank=rank,
                world_size=2,
                exchange=lambda report: [replace(report, rank=peer) for peer in range(2)],
            )
            buffer = torch.zeros(plan.arena_bytes, dtype=torch.uint8, device=f"cuda:{rank}")
            own_graphs, own_inputs = [], []
            with arena.capture(staging.CapturePhase.PERSISTENT):
                for descriptor in plan.descriptors:
                    source = torch.zeros(
                        descriptor.num_tokens, 4096, dtype=torch.bfloat16, device=f"cuda:{rank}"
                    )
                    graph = torch.cuda.CUDAGraph()
                    # The default stream of captures belongs to the first device.
                    stream = torch.cuda.Stream(device=rank)
                    with torch.cuda.graph(graph, stream=stream):
                        value = source
                        for _ in range(plan.ops_per_descriptor):
                            slot = arena.take(
                                Batch(*descriptor), value.numel() * value.element_size()
                            )
                            start, end = slot.data_offset, slot.data_offset + slot.nbytes
                            buffer[start:end].copy_(value.view(torch.uint8).reshape(-1))
                            value = value + 1
                    own_graphs.append(graph)
                    own_inputs.append(source)
            arenas.append(arena)
            buffers.append(buffer)
            graphs.append(own_graphs)
            inputs.append(own_inputs)
    assert arenas[0].ledger == arenas[1].ledger
    for rank in range(2):
        with torch.cuda.device(rank):
            for index, graph in enumerate(graphs[rank]):
                inputs[rank][index].fill_(10 * rank + index)
                graph.replay()
            torch.cuda.synchronize(rank)
    for number, slot in enumerate(arenas[0].ledger):
        start, end = slot.data_offset, slot.data_offset + slot.nbytes
        own = buffers[0][start:end].view(torch.bfloat16)
        peer = buffers[1][start:end].to("cuda:0").view(torch.bfloat16)
        index, layer = divmod(number, plan.ops_per_descriptor)
        assert bool(((own + peer) == 10 + 2 * (index + layer)).all())


class Batch:
    """A uniform batch without adapters."""

    uniform = True
    has_lora = False

    def __init__(self, num_tokens: int, num_reqs: int) -> None:
        self.num_tokens = num_tokens
        self.num_reqs = num_reqs
