"""What the copies of staged all-reduces cost: a decode graph with them against one without.

usage: python measure_copies.py

Needs one CUDA device and torch, no vLLM. Each graph has 87 steps, as many as the model has
all-reduces. In the one a step adds 1 to what the last one left; in the other it first copies that
into a slot of its own, as `ops.all_reduce` does with a buffer that it is given, and reads it there.
The graphs take turns; medians are printed as one JSON object, in microseconds per replay and per
copy. The all-reduce itself is not part of it: it is the same in both.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

HIDDEN_SIZE = 4096
OPS = 87
TOKENS = (5, 10, 20, 40, 80, 160, 320)
REPLAYS = 200
WARM_UPS = 20


def capture(torch: Any, num_tokens: int, slots: Any) -> Any:
    """A graph of 87 steps; through `slots` if there are any."""
    source = torch.zeros(num_tokens, HIDDEN_SIZE, dtype=torch.bfloat16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = source
        for op in range(OPS):
            if slots is not None:
                slots[op].copy_(value)
                value = slots[op]
            value = value + 1
    return graph, source, value


def median_times(torch: Any, graphs: dict[str, Any]) -> dict[str, float]:
    """Microseconds per replay of each graph, measured in turn."""
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for replay in range(WARM_UPS + REPLAYS):
        for name, (graph, *_) in graphs.items():
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if replay >= WARM_UPS:
                samples[name].append(start.elapsed_time(end) * 1000)
    return {name: statistics.median(times) for name, times in samples.items()}


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("measure_copies: there is no CUDA device", file=sys.stderr)
        return 6
    rows = []
    for num_tokens in TOKENS:
        slots = torch.zeros(OPS, num_tokens, HIDDEN_SIZE, dtype=torch.bfloat16, device="cuda")
        graphs = {
            "in place": capture(torch, num_tokens, None),
            "staged": capture(torch, num_tokens, slots),
        }
        times = median_times(torch, graphs)
        extra = times["staged"] - times["in place"]
        rows.append(
            {
                "tokens": num_tokens,
                "in_place_us": round(times["in place"], 2),
                "staged_us": round(times["staged"], 2),
                "extra_per_replay_us": round(extra, 2),
                "extra_per_copy_us": round(extra / OPS, 3),
            }
        )
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "ops": OPS,
        "replays": REPLAYS,
        "rows": rows,
    }
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
