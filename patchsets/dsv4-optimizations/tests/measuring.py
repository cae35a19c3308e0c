"""Times of kernels: captured in graphs, replayed in turn, medians.

Launches of a few microseconds are timed many to a graph, so that what is measured is the device.
The candidates of one comparison take turns, so that clocks and neighbours strike all alike. Weights
rotate among enough copies that each launch finds them outside the L2 cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

# Several times the L2 cache of the devices at hand (60 MB).
COLD_BYTES = 256 * 2**20
LAUNCHES = 64
REPLAYS = 25

# Given the number of the launch, start it. Buffers must not be allocated anew every time.
Launch = Callable[[int], None]


@dataclass(frozen=True)
class Timing:
    """Microseconds a launch: the median over replays, and the quartiles around it."""

    median: float
    low: float
    high: float


def copies_for_cold_cache(bytes_each: int) -> int:
    return max(2, -(-COLD_BYTES // bytes_each))


def capture(launch: Launch, launches: int = LAUNCHES) -> torch.cuda.CUDAGraph:
    launch(0)  # Compile outside of the capture.
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(launches):
            launch(number)
    return graph


def compare(
    candidates: Mapping[str, Launch], launches: int = LAUNCHES, replays: int = REPLAYS
) -> dict[str, Timing]:
    """The times of all candidates, measured in turn."""
    graphs = {name: capture(launch, launches) for name, launch in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for replay in range(replays + 3):
        for name, graph in graphs.items():
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if replay >= 3:  # The first ones warm up.
                samples[name].append(start.elapsed_time(end) * 1000 / launches)
    return {name: _summary(values) for name, values in samples.items()}


def _summary(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4)
    return Timing(round(median, 4), round(low, 4), round(high, 4))
