"""Figures of several runs, doubts about them, and gates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.errors import BadInputError
from dsv4port.evidence.aggregate import Aggregate, Metric, change
from dsv4port.evidence.bench_file import Bench, Column, Layout, Origin
from dsv4port.evidence.bench_result import BenchResult, Speculation
from dsv4port.evidence.bench_tables import bench_section
from dsv4port.evidence.comparison import BenchRun, Case, Doubt, Gates, gate_failures

TOK = Metric.OUTPUT_THROUGHPUT
Make = Any


def case(make: Make, *runs: tuple[str, str, float] | tuple[str, str, float, int]) -> Case:
    """Runs as (arm, node, throughput[, turn])."""
    made = tuple(
        BenchRun(run[0], run[1], make(run[2]), run[3] if len(run) > 3 else None) for run in runs
    )
    return Case("8", ("old", "new"), made)


results = st.builds(
    lambda completed, tokens, duration, ttft: BenchResult(
        "x.json", 1, completed, completed, 0, duration, 0, tokens, {"mean_ttft_ms": ttft},
        Speculation(10, 40, tokens % 41),
    ),
    st.integers(1, 1000), st.integers(1, 10**6), st.floats(0.01, 1e4), st.floats(0.1, 1e5),
)  # fmt: skip


@given(st.lists(results, min_size=1, max_size=6))
def test_an_aggregate_lies_between_its_runs(runs: list[BenchResult]) -> None:
    whole = Aggregate(tuple(runs))
    for metric in (TOK, Metric.MEAN_TTFT, Metric.ACCEPTANCE_RATE, Metric.ACCEPTANCE_LENGTH):
        value, each = whole.value(metric), [v for v in whole.each(metric) if v is not None]
        assert value is not None and len(each) == len(runs)
        assert min(each) * (1 - 1e-9) <= value <= max(each) * (1 + 1e-9)


@given(st.lists(results, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(runs: list[BenchResult], random: Any) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)
    for metric in Metric:
        one, other = Aggregate(tuple(runs)).value(metric), Aggregate(tuple(shuffled)).value(metric)
        assert one == pytest.approx(other) if one is not None else other is None


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_a_change_and_its_way_back(before: float, after: float) -> None:
    there, back = change(before, after), change(after, before)
    assert there is not None and back is not None
    assert (1 + there / 100) * (1 + back / 100) == pytest.approx(1)


def test_means_are_weighted_by_requests(result: Make) -> None:
    few = result(1.0, completed=1, prompts=1, latencies={"mean_ttft_ms": 100.0})
    many = result(1.0, completed=9, prompts=9, latencies={"mean_ttft_ms": 200.0})
    assert Aggregate((few, many)).value(Metric.MEAN_TTFT) == pytest.approx(190.0)


def test_a_figure_that_one_run_lacks_is_none(result: Make) -> None:
    whole = Aggregate((result(1.0, latencies={"mean_ttft_ms": 1.0}), result(1.0)))
    assert whole.value(Metric.MEAN_TTFT) is None
    assert whole.value(Metric.ACCEPTANCE_RATE) is None


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("old", "a", 100), ("new", "a", 110)], {Doubt.SINGLE_RUN}),
        (
            [("old", "a", 100), ("new", "a", 110), ("old", "b", 100), ("new", "b", 93)],
            {Doubt.SINGLE_RUN, Doubt.NODES_DISAGREE},
        ),
        (
            [("old", "a", 100), ("new", "a", 100.4), ("old", "b", 100), ("new", "b", 99.8)],
            {Doubt.SINGLE_RUN},
        ),
        ([("old", "a", 100), ("old", "a", 101), ("new", "a", 109), ("new", "a", 111)], set()),
        (
            [("old", "a", 100), ("old", "a", 104), ("new", "a", 103), ("new", "a", 108)],
            {Doubt.WITHIN_SPREAD},
        ),
        (
            [
                ("old", "a", 100, 1),
                ("new", "a", 110, 2),
                ("old", "b", 100, 1),
                ("new", "b", 110, 2),
            ],
            {Doubt.SINGLE_RUN, Doubt.ONE_ORDER},
        ),
        (
            [
                ("old", "a", 100, 1),
                ("new", "a", 110, 2),
                ("old", "b", 100, 2),
                ("new", "b", 110, 1),
            ],
            {Doubt.SINGLE_RUN},
        ),
    ],
)
def test_doubts(result: Make, runs: list[Any], expected: set[Doubt]) -> None:
    assert set(case(result, *runs).doubts(TOK)) == expected


def test_arms_that_did_other_work_or_not_all_of_it(result: Make) -> None:
    less = result(100.0, completed=15, failed=1, output_tokens=15 * 128)
    found = Case(
        "8", ("old", "new"), (BenchRun("old", "a", result(100.0)), BenchRun("new", "a", less))
    )
    doubts = found.doubts(TOK)
    assert {Doubt.OTHER_WORK, Doubt.INCOMPLETE} <= set(doubts)
    assert doubts[Doubt.INCOMPLETE] == "new: 15 of 16"


def test_both_orders_have_a_table_of_their_own(result: Make) -> None:
    both = case(
        result,
        ("old", "a", 100, 1), ("new", "a", 102, 2), ("old", "b", 100, 2), ("new", "b", 101, 1),
    )  # fmt: skip
    assert both.change_by_order("new", TOK) == pytest.approx({"A/B": 2.0, "B/A": 1.0})
    text = bench_section(
        Bench(
            "b.yaml",
            "Title",
            Origin.MEASURED,
            None,
            None,
            ("old", "new"),
            Layout.LOADS,
            (Column(TOK, 1),),
            (both,),
            Gates(),
        )
    )
    assert "| 8 | new | +2.0% | +1.0% |" in text
    assert "| Concurrency | Arm | A/B | Reverse A/B |" in text


def test_gates(result: Make) -> None:
    worse = case(result, ("old", "a", 100), ("new", "a", 97))
    assert list(gate_failures(worse, Gates(((TOK, 3.5),), 100.0))) == []
    (failure,) = gate_failures(worse, Gates(((TOK, 2.0),)))
    assert failure.what == "new: output_throughput is 3.0 % worse, 2 % are allowed"
    (missing,) = gate_failures(worse, Gates(((Metric.MEAN_TTFT, 2.0),)))
    assert "no mean_ttft to compare" in missing.what
    slower = [result(100.0, latencies={"mean_ttft_ms": ms}) for ms in (10.0, 11.0)]
    runs = tuple(BenchRun(arm, "a", one) for arm, one in zip(("old", "new"), slower, strict=True))
    (late,) = gate_failures(Case("8", ("old", "new"), runs), Gates(((Metric.MEAN_TTFT, 5.0),)))
    assert "mean_ttft is 10.0 % worse" in late.what
    part = (BenchRun("old", "a", result(100.0, completed=12, failed=4)), runs[1])
    (incomplete,) = gate_failures(Case("8", ("old", "new"), part), Gates((), 100.0))
    assert "12 of 16 requests completed" in incomplete.what


def test_an_arm_without_runs_is_refused(result: Make) -> None:
    with pytest.raises(BadInputError, match="no run of new"):
        Case("8", ("old", "new"), (BenchRun("old", "a", result(1.0)),))
