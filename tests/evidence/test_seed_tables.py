"""Published tables, written down in the benchmark's own format, come out to the printed digits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv4port.evidence.bench_file import Bench, find_benches, load_bench
from dsv4port.evidence.bench_tables import bench_section

CASES = Path(__file__).with_name("cases")


def bench(name: str) -> Bench:
    return load_bench(CASES / name / "bench.yaml", f"{name}/bench.yaml")


def rows(name: str) -> list[list[str]]:
    """Every row of every table, without heads."""
    found = []
    for line in bench_section(bench(name)):
        if line.startswith("| "):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_without_mtp() -> None:
    assert rows("mtp-graphs/no-mtp")[1:] == [
        ["1", "3", "57.10 mean (56.87 / 57.09 / 57.34)", "1,208.97 mean", "16.250 mean", "3/3"],
        ["4", "1", "149.71", "3,465.90", "23.087", "4/4"],
        ["16", "1", "304.70", "11,550.29", "41.135", "16/16"],
        ["64", "1", "387.94", "40,098.37", "124.906", "64/64"],
    ]


def test_with_four_drafts() -> None:
    assert rows("mtp-graphs/mtp4")[1:] == [
        ["1", "1", "91.36", "1,148.70", "10.778", "54.43%", "3.18", "1/1"],
        ["4", "1", "130.50", "3,649.32", "26.127", "55.94%", "3.24", "4/4"],
        ["16", "1", "288.49", "11,825.13", "43.565", "58.93%", "3.36", "16/16"],
        ["64", "1", "372.52", "54,795.50", "167.917", "57.06%", "3.28", "64/64"],
    ]


def test_two_arms_on_two_nodes() -> None:
    found = rows("gemm-reduce-scatter")
    assert [row[2:6] for row in found[1:4]] == [
        ["1469.0 → 1498.0", "+2.0%", "0.831 → 0.763", "10.08 → 9.94"],
        ["3147.2 → 3197.8", "+1.6%", "2.664 → 2.464", "17.60 → 17.48"],
        ["6419.4 → 6799.7", "+5.9%", "36.524 → 34.376", "110.43 → 103.96"],
    ]
    assert found[5:] == [
        ["16", "+1.3%", "+2.6%"],
        ["64", "+10.9%", "-7.0%"],
        ["964", "+4.4%", "+7.5%"],
    ]


def test_nodes_that_disagree_are_no_stable_gain() -> None:
    said = [line for line in bench_section(bench("gemm-reduce-scatter")) if "disagree" in line]
    assert said == [
        "- concurrency 64: nodes disagree (node17 +10.9%, node30 -7.0%): no stable gain"
    ]


def test_all_requests_of_both_arms() -> None:
    """8,736 measured requests in all, as published."""
    whole = bench("gemm-reduce-scatter")
    assert sum(run.result.completed for case in whole.cases for run in case.runs) == 8736


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "narrow-graph-region/ttft",
            [
                ["Mean TTFT (ms)", "41.45", "19.20", "-53.7%"],
                ["P50 TTFT (ms)", "41.18", "19.09", "-53.7%"],
            ],
        ),
        (
            "narrow-graph-region/throughput",
            [["Request throughput (req/s)", "430.05", "433.29", "+0.75%"]],
        ),
    ],
)
def test_metrics_as_rows(name: str, expected: list[list[str]]) -> None:
    assert rows(name)[1:] == expected


def test_every_case_says_that_it_was_not_measured_here() -> None:
    benches = find_benches(CASES, "cases")
    assert len(benches) == 5
    for one in benches:
        assert "not measured here" in "\n".join(bench_section(one))
    for file in CASES.glob("**/*.json"):
        assert "not measured here" in json.loads(file.read_text())["transcribed"]
