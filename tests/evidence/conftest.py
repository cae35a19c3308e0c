"""Results of the benchmark, made up for a test."""

from __future__ import annotations

from typing import Any

import pytest

from dsv4port.evidence.bench_result import BenchResult


class MadeUp:
    """Makes results: `result(100.0)` is one with 100 output tokens a second."""

    def __call__(self, throughput: float, **changes: Any) -> BenchResult:
        values: dict[str, Any] = {
            "source": "made-up.json", "concurrency": 8, "prompts": 16, "completed": 16,
            "failed": 0, "duration": 16 * 128 / throughput, "input_tokens": 16 * 256,
            "output_tokens": 16 * 128, "latencies": {}, "speculation": None, **changes,
        }  # fmt: skip
        return BenchResult(**values)


@pytest.fixture
def result() -> MadeUp:
    return MadeUp()
