"""A comparison of arms under several loads: figures, changes, doubts and gates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from dsv4port.errors import BadInputError
from dsv4port.evidence.aggregate import Aggregate, Metric, change
from dsv4port.evidence.bench_result import BenchResult
from dsv4port.quick_dataclass import dataclass

_SPREAD = 1.0
"""Percentage points by which nodes of different sign must be apart to count as disagreeing."""


class Doubt(Enum):
    """Why a figure may mean less than it seems to."""

    SINGLE_RUN = "single run"
    """An arm ran once on a node: nothing says how much such runs differ from each other."""
    NODES_DISAGREE = "nodes disagree"
    """One node gained and another lost: no stable change."""
    WITHIN_SPREAD = "within the spread of runs"
    """Repeated runs of the two arms overlap: the change is no larger than their scatter."""
    ONE_ORDER = "one order"
    """Every node ran the arms in the same order, so whatever changes with time is in the change."""
    OTHER_WORK = "other work"
    """The arms were not asked for the same requests and tokens."""
    INCOMPLETE = "not all completed"
    """Requests failed or are missing."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run with its place in the comparison. ``turn`` orders the runs of a node, from 1."""

    arm: str
    node: str
    result: BenchResult
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Gates:
    """What a comparison must keep to.

    Parameters:
        max_regression: percent by which a figure may be worse than the first arm's.
        min_completed: percent of the requests that must be completed, in every arm.
    """

    max_regression: tuple[tuple[Metric, float], ...] = ()
    min_completed: float | None = None


@dataclass(frozen=True, slots=True)
class GateFailure:
    """A gate that does not hold, in words."""

    load: str
    what: str


@dataclass(frozen=True, slots=True)
class Case:
    """All runs under one load. The first arm is what the others are compared with."""

    load: str
    arms: tuple[str, ...]
    runs: tuple[BenchRun, ...]

    def __post_init__(self) -> None:
        for arm in self.arms:
            if not any(one.arm == arm for one in self.runs):
                raise BadInputError(
                    f"load {self.load} has no run of {arm}", fix="give results of both arms"
                )

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes in the order of their first run."""
        return tuple(dict.fromkeys(one.node for one in self.runs))

    def aggregate(self, arm: str, node: str | None = None) -> Aggregate | None:
        """The runs of an arm together, on one node or on all."""
        found = tuple(
            one.result for one in self.runs if one.arm == arm and node in (None, one.node)
        )
        return Aggregate(found) if found else None

    def change(self, arm: str, metric: Metric, node: str | None = None) -> float | None:
        """Percent from the first arm to `arm`."""
        first, second = self.aggregate(self.arms[0], node), self.aggregate(arm, node)
        if first is None or second is None:
            return None
        return change(first.value(metric), second.value(metric))

    def change_by_order(self, arm: str, metric: Metric) -> dict[str, float | None]:
        """Percent on the nodes that ran the first arm first (``A/B``), and on the others."""
        orders: dict[str, list[str]] = {}
        for node in self.nodes:
            order = self._order(node, arm)
            if order is not None:
                orders.setdefault(order, []).append(node)
        return {
            order: change(
                self._over(self.arms[0], nodes).value(metric), self._over(arm, nodes).value(metric)
            )
            for order, nodes in sorted(orders.items())
        }

    def doubts(self, metric: Metric) -> dict[Doubt, str]:
        """What speaks against taking the changes at their word, and what shows it."""
        return dict(self._doubts(metric))

    def _doubts(self, metric: Metric) -> Iterator[tuple[Doubt, str]]:
        for arm in self.arms:
            whole = self._over(arm, self.nodes)
            if whole.completed < whole.prompts:
                yield Doubt.INCOMPLETE, f"{arm}: {whole.completed} of {whole.prompts}"
        counts = [len(self._runs(arm, node)) for arm in self.arms for node in self.nodes]
        if 1 in counts:
            yield Doubt.SINGLE_RUN, "one run per node and arm" if set(counts) == {1} else "partly"
        for arm in self.arms[1:]:
            yield from self._between(arm, metric)

    def _between(self, arm: str, metric: Metric) -> Iterator[tuple[Doubt, str]]:
        work = [self._work(one) for one in (self.arms[0], arm)]
        if work[0] != work[1]:
            yield Doubt.OTHER_WORK, f"{self.arms[0]} {work[0]}, {arm} {work[1]}"
        by_node = {node: self.change(arm, metric, node) for node in self.nodes}
        known = {node: found for node, found in by_node.items() if found is not None}
        low, high = min(known.values(), default=0.0), max(known.values(), default=0.0)
        if low < 0 < high and high - low >= _SPREAD:
            shown = ", ".join(f"{node} {found:+.1f}%" for node, found in known.items())
            yield Doubt.NODES_DISAGREE, shown
        if self._overlap(arm, metric):
            yield Doubt.WITHIN_SPREAD, f"runs of {self.arms[0]} and {arm} overlap"
        orders = {self._order(node, arm) for node in self.nodes}
        if len(orders) == 1 and None not in orders:
            yield Doubt.ONE_ORDER, f"{orders.pop()} on every node"

    def _overlap(self, arm: str, metric: Metric) -> bool:
        """Whether, on some node with repeated runs, the two arms' ranges have a point in common."""
        for node in self.nodes:
            both = [self.aggregate(one, node) for one in (self.arms[0], arm)]
            ranges = [[v for v in one.each(metric) if v is not None] for one in both if one]
            if len(ranges) == 2 and min(map(len, ranges)) > 1:
                (a, b) = ranges
                if max(min(a), min(b)) <= min(max(a), max(b)):
                    return True
        return False

    def _order(self, node: str, arm: str) -> str | None:
        """``A/B`` where the first arm came first on the node, ``B/A`` where it did not."""
        turns = {
            one: [run.turn for run in self._runs(one, node) if run.turn is not None]
            for one in (self.arms[0], arm)
        }
        if not all(turns.values()):
            return None
        return "A/B" if min(turns[self.arms[0]]) < min(turns[arm]) else "B/A"

    def _runs(self, arm: str, node: str) -> list[BenchRun]:
        return [one for one in self.runs if (one.arm, one.node) == (arm, node)]

    def _over(self, arm: str, nodes: Iterable[str]) -> Aggregate:
        wanted = set(nodes)
        return Aggregate(
            tuple(one.result for one in self.runs if one.arm == arm and one.node in wanted)
        )

    def _work(self, arm: str) -> tuple[tuple[str, int, int, int], ...]:
        """What an arm was asked for: per node and run, requests and tokens."""
        return tuple(
            sorted(
                (one.node, one.result.prompts, one.result.input_tokens, one.result.output_tokens)
                for one in self.runs
                if one.arm == arm
            )
        )


def gate_failures(case: Case, gates: Gates) -> Iterator[GateFailure]:
    """Every gate that the runs under one load do not keep."""
    if gates.min_completed is not None:
        for arm in case.arms:
            whole = case.aggregate(arm)
            assert whole is not None
            share = 100 * whole.completed / whole.prompts if whole.prompts else 0.0
            if share < gates.min_completed:
                yield GateFailure(
                    case.load,
                    f"{arm}: {whole.completed} of {whole.prompts} requests completed, "
                    f"at least {gates.min_completed:g} % must be",
                )
    for arm in case.arms[1:]:
        for metric, limit in gates.max_regression:
            found = case.change(arm, metric)
            if found is None:
                yield GateFailure(case.load, f"{arm}: there is no {metric.value} to compare")
                continue
            worse = -found if metric.more_is_better else found
            if worse > limit:
                yield GateFailure(
                    case.load,
                    f"{arm}: {metric.value} is {worse:.1f} % worse, {limit:g} % are allowed",
                )
