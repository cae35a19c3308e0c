"""Several runs as one: what nodes and repetitions come to together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from dsv4port.errors import BadInputError
from dsv4port.evidence.bench_result import BenchResult
from dsv4port.quick_dataclass import dataclass


class Metric(str, Enum):
    """A figure of an aggregate."""

    OUTPUT_THROUGHPUT = "output_throughput"
    """Output tokens a second: all tokens over all durations."""
    REQUEST_THROUGHPUT = "request_throughput"
    """Completed requests a second, likewise."""
    MEAN_TTFT = "mean_ttft"
    """Time to the first token: the mean over all requests, in milliseconds."""
    MEDIAN_TTFT = "median_ttft"
    """Its median; with several runs, the mean of their medians, weighted by requests."""
    MEAN_TPOT = "mean_tpot"
    """Time per further output token: the mean over all requests, in milliseconds."""
    MEDIAN_TPOT = "median_tpot"
    """Its median; with several runs as above."""
    ACCEPTANCE_RATE = "acceptance_rate"
    """Accepted draft tokens, in percent of those proposed."""
    ACCEPTANCE_LENGTH = "acceptance_length"
    """Tokens of one step: the target's own and the accepted drafts."""

    @property
    def more_is_better(self) -> bool:
        """Whether a rise is a gain."""
        return self not in _LATENCIES


_LATENCIES = {
    Metric.MEAN_TTFT: "mean_ttft_ms",
    Metric.MEDIAN_TTFT: "median_ttft_ms",
    Metric.MEAN_TPOT: "mean_tpot_ms",
    Metric.MEDIAN_TPOT: "median_tpot_ms",
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Runs of one arm under one load, together."""

    runs: tuple[BenchResult, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise BadInputError(
                "there is nothing to put together", fix="name at least one result file"
            )

    @property
    def completed(self) -> int:
        """Requests that were answered."""
        return sum(one.completed for one in self.runs)

    @property
    def prompts(self) -> int:
        """Requests that were asked for."""
        return sum(one.prompts for one in self.runs)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that its figures come from."""
        return tuple(dict.fromkeys(one.source for one in self.runs))

    def value(self, metric: Metric) -> float | None:
        """A figure; None where a run does not have it, or nothing was completed."""
        if metric in _LATENCIES:
            return self._weighted(_LATENCIES[metric])
        return _COUNTED[metric](self.runs)

    def each(self, metric: Metric) -> tuple[float | None, ...]:
        """The same figure of every single run."""
        return tuple(Aggregate((one,)).value(metric) for one in self.runs)

    def _weighted(self, name: str) -> float | None:
        if any(name not in one.latencies for one in self.runs) or not self.completed:
            return None
        return sum(one.latencies[name] * one.completed for one in self.runs) / self.completed


def _output(runs: Sequence[BenchResult]) -> float | None:
    return sum(one.output_tokens for one in runs) / sum(one.duration for one in runs)


def _requests(runs: Sequence[BenchResult]) -> float | None:
    return sum(one.completed for one in runs) / sum(one.duration for one in runs)


def _acceptance_rate(runs: Sequence[BenchResult]) -> float | None:
    found = [one.speculation for one in runs if one.speculation is not None]
    proposed = sum(one.draft_tokens for one in found)
    if len(found) < len(runs) or not proposed:
        return None
    return 100 * sum(one.accepted_tokens for one in found) / proposed


def _acceptance_length(runs: Sequence[BenchResult]) -> float | None:
    found = [one.speculation for one in runs if one.speculation is not None]
    drafts = sum(one.drafts for one in found)
    if len(found) < len(runs) or not drafts:
        return None
    return 1 + sum(one.accepted_tokens for one in found) / drafts


_COUNTED: Mapping[Metric, Callable[[Sequence[BenchResult]], float | None]] = {
    Metric.OUTPUT_THROUGHPUT: _output,
    Metric.REQUEST_THROUGHPUT: _requests,
    Metric.ACCEPTANCE_RATE: _acceptance_rate,
    Metric.ACCEPTANCE_LENGTH: _acceptance_length,
}


def change(before: float | None, after: float | None) -> float | None:
    """From one figure to another, in percent; None where there is nothing to compare."""
    if before is None or after is None or before == 0:
        return None
    return 100 * (after / before - 1)
