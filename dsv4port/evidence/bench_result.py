"""What ``vllm bench serve --save-result`` writes, read with suspicion.

The format is that of ``vllm/benchmarks/serve.py`` (0.24 to 0.33): one JSON object a run, and with
``--append-result`` one a line. Keys that are not used here may be there or not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.quick_dataclass import dataclass

_AGAIN = "restore the file, or run the benchmark again"

_TOLERANCE = 0.005
"""How far a stated throughput may be from tokens over duration, relative: files that people wrote
down from tables hold rounded numbers."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counters of speculative decoding over one run."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run of the benchmark. Durations in seconds, latencies in milliseconds.

    Parameters:
        source: name of the file that it is from.
        concurrency: ``--max-concurrency``; None where there was no limit.
        latencies: mean and median TTFT and TPOT by the file's own names, as far as they are there.
    """

    source: str
    concurrency: int | None
    prompts: int
    completed: int
    failed: int
    duration: float
    input_tokens: int
    output_tokens: int
    latencies: Mapping[str, float]
    speculation: Speculation | None

    def __post_init__(self) -> None:
        if self.duration <= 0:
            raise BadInputError(f"{self.source}: the duration is {self.duration} s", fix=_AGAIN)
        if self.completed + self.failed > self.prompts:
            raise BadInputError(
                f"{self.source}: {self.completed} completed and {self.failed} failed of "
                f"{self.prompts} requests",
                fix=_AGAIN,
            )


_LATENCIES = ("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms")


def read_bench_results(file: Path, label: str) -> tuple[BenchResult, ...]:
    """Every run in a result file.

    Raises:
        BadInputError: the file is missing, cut off, of another kind, or contradicts itself.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{label}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}",
            fix="restore the file, or take its row out",
        ) from error
    try:
        found = [json.loads(text)]
    except ValueError:
        found = [_line(line, label) for line in text.splitlines() if line.strip()]
    if not found:
        raise BadInputError(f"{label}: is empty", fix="run the benchmark again")
    return tuple(_result(values, label) for values in found)


def _line(line: str, label: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BadInputError(
            f"{label}: is no whole result of `vllm bench serve --save-result`: {error}",
            fix=_AGAIN,
        ) from error


def _result(values: Any, label: str) -> BenchResult:
    if not isinstance(values, dict):
        raise BadInputError(
            f"{label}: is no result of `vllm bench serve --save-result`", fix=_AGAIN
        )
    concurrency = values.get("max_concurrency")
    found = BenchResult(
        source=label,
        concurrency=None if concurrency is None else _integer(values, "max_concurrency", label),
        prompts=_integer(values, "num_prompts", label),
        completed=_integer(values, "completed", label),
        failed=_integer(values, "failed", label) if "failed" in values else 0,
        duration=_number(values, "duration", label),
        input_tokens=_integer(values, "total_input_tokens", label),
        output_tokens=_integer(values, "total_output_tokens", label),
        latencies={name: _number(values, name, label) for name in _LATENCIES if name in values},
        speculation=_speculation(values, label),
    )
    for name, amount in (("output", found.output_tokens), ("request", found.completed)):
        stated = _number(values, f"{name}_throughput", label)
        counted = amount / found.duration
        if not math.isclose(stated, counted, rel_tol=_TOLERANCE):
            raise BadInputError(
                f"{label}: contradicts itself: {name}_throughput is {stated}, but {amount} in "
                f"{found.duration} s are {counted:.2f} a second",
                fix="restore the file; it was edited, or runs were mixed up",
            )
    return found


def _speculation(values: Mapping[str, Any], label: str) -> Speculation | None:
    if "spec_decode_num_drafts" not in values:
        return None
    drafts, proposed, accepted = (
        _integer(values, f"spec_decode_{name}", label)
        for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    if accepted > proposed or drafts > proposed:
        raise BadInputError(
            f"{label}: {accepted} of {proposed} draft tokens were accepted", fix=_AGAIN
        )
    return Speculation(drafts, proposed, accepted)


def _integer(values: Mapping[str, Any], key: str, label: str) -> int:
    value = values.get(key)
    if type(value) is not int or value < 0:
        raise BadInputError(f"{label}: {key} must be a whole number, is {value!r}", fix=_AGAIN)
    return value


def _number(values: Mapping[str, Any], key: str, label: str) -> float:
    value: Any = values.get(key)
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise BadInputError(f"{label}: {key} must be a number, is {value!r}", fix=_AGAIN)
    return float(value)
