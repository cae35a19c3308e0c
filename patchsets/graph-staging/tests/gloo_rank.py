"""One of two processes that build and drive the tree's custom all-reduce over a gloo group.

usage: gloo_rank.py TREE RANK STORE

Runs every scenario in the same order on both ranks and prints what this rank saw as JSON. Real are
the tree's files and the process group; the ops are `harness.FakeOps`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
import harness

SMALL = [(5, 1), (10, 2)]
OPS = 3


class Rank:
    """This rank, with a fresh communicator per scenario."""

    def __init__(self, car: harness.Car, rank: int) -> None:
        self.car = car
        self.rank = rank

    def request(self, **changes: Any) -> Any:
        """A plan of two graphs with three all-reduces each, for a group of two."""
        numbers = {
            "hidden_size": 4096,
            "num_layers": 1,
            "dtype_bytes": 2,
            "num_speculative_tokens": 4,
            "request_ladder": (1, 2),
            "max_num_batched_tokens": 64,
        }
        mode = self.car.mode
        return mode.StagingRequest(mode.CaptureMode.ARENA, 2, **{**numbers, **changes})

    def communicator(self, request: Any = None, **arguments: Any) -> Any:
        self.car.ops.buffers.clear()
        self.car.ops.pending.clear()
        self.car.ops.registered.clear()
        return self.car.module.CustomAllreduce(
            group=dist.group.WORLD,
            device=f"cpu:{self.rank}",
            staging_request=self.request() if request is None else request,
            **arguments,
        )

    def capture(self, communicator: Any, phase: str, graphs: Any, ops: int = OPS) -> None:
        # As the runner does it; gloo's gather of objects fails there.
        with torch.inference_mode():
            self.car.capture(communicator, phase, graphs, ops=ops)

    def outcome(self, communicator: Any, run: Callable[[], None]) -> dict[str, Any]:
        error = ""
        try:
            run()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        staging = communicator._staging
        return {
            "error": error,
            "state": None if staging is None else staging.arena.state.name,
            "registered": [len(addresses) for addresses in self.car.ops.registered],
            "buffer": self.car.ops.data_buffer[1],
            "shared": harness.shared_bytes(communicator),
            "limit": communicator.max_size,
        }

    def agree(self) -> dict[str, Any]:
        communicator = self.communicator()

        def run() -> None:
            self.capture(communicator, "PROFILING", SMALL[-1:])
            self.capture(communicator, "PERSISTENT", SMALL)

        return self.outcome(communicator, run)

    def built_with(self, **arguments: Any) -> dict[str, Any]:
        communicator = self.communicator(**(arguments if self.rank == 1 else {}))
        return self.outcome(communicator, lambda: self.capture(communicator, "PERSISTENT", SMALL))

    def another_plan(self) -> dict[str, Any]:
        return self.built_with(request=self.request(request_ladder=(1,)))

    def another_limit(self) -> dict[str, Any]:
        return self.built_with(max_size=4 * harness.MIB)

    def cannot_take_part(self) -> dict[str, Any]:
        return self.built_with(request=self.request(local_refusal="no FlashMLA here"))

    def fails(self, phase: str, failing: int) -> dict[str, Any]:
        communicator = self.communicator()

        def run() -> None:
            with self.car.phases(phase), torch.inference_mode(), communicator.capture():
                self.car.forward(communicator, *SMALL[1], ops=OPS)
                if self.rank == failing:
                    raise MemoryError("no memory")

        return self.outcome(communicator, run)

    def fails_for_good(self) -> dict[str, Any]:
        return self.fails("PERSISTENT", 1)

    def fails_while_profiling(self) -> dict[str, Any]:
        return self.fails("PROFILING", 0)

    def nothing(self) -> dict[str, Any]:
        communicator = self.communicator()
        return self.outcome(communicator, lambda: self.capture(communicator, "PERSISTENT", []))

    def differ(self, graphs: Any, ops: int = OPS) -> dict[str, Any]:
        """Rank 1 captures other graphs than rank 0."""
        communicator = self.communicator()
        own = (graphs, ops) if self.rank == 1 else (SMALL, OPS)
        return self.outcome(communicator, lambda: self.capture(communicator, "PERSISTENT", *own))

    def nothing_on_one_rank(self) -> dict[str, Any]:
        return self.differ([])

    def an_op_too_few(self) -> dict[str, Any]:
        return self.differ(SMALL, OPS - 1)

    def another_order(self) -> dict[str, Any]:
        return self.differ(SMALL[::-1])

    def another_number_of_addresses(self) -> dict[str, Any]:
        communicator = self.communicator()
        self.car.ops.pending += [0] * self.rank
        return self.outcome(communicator, lambda: self.capture(communicator, "PERSISTENT", SMALL))


SCENARIOS = (
    "agree",
    "another_plan",
    "another_limit",
    "cannot_take_part",
    "fails_for_good",
    "fails_while_profiling",
    "nothing",
    "nothing_on_one_rank",
    "an_op_too_few",
    "another_order",
    "another_number_of_addresses",
)


def main(tree: str, rank: str, store: str) -> None:
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, 2),
        rank=int(rank),
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    with harness.custom_all_reduce(Path(tree), world_size=2) as car:
        for module in (car.module, car.staging):
            module.dist = dist
        own = Rank(car, int(rank))
        results = {name: getattr(own, name)() for name in SCENARIOS}
    dist.destroy_process_group()
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
