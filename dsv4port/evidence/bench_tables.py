"""A comparison as Markdown tables, in the shape that pull requests show them."""

from __future__ import annotations

from collections.abc import Iterator

from dsv4port.evidence.aggregate import Aggregate, Metric
from dsv4port.evidence.bench_file import Bench, Column, Layout, Origin
from dsv4port.evidence.comparison import Case, Doubt, gate_failures
from dsv4port.evidence.markdown import table

_TITLES = {
    Metric.OUTPUT_THROUGHPUT: "Output throughput (tok/s)",
    Metric.REQUEST_THROUGHPUT: "Request throughput (req/s)",
    Metric.MEAN_TTFT: "Mean TTFT",
    Metric.MEDIAN_TTFT: "P50 TTFT",
    Metric.MEAN_TPOT: "Mean TPOT",
    Metric.MEDIAN_TPOT: "P50 TPOT",
    Metric.ACCEPTANCE_RATE: "Acceptance rate",
    Metric.ACCEPTANCE_LENGTH: "Acceptance length",
}
_NONE = "—"
_ORIGINS = {
    Origin.MEASURED: "Measured.",
    Origin.TRANSCRIBED: "Transcribed from a published table; not measured here.",
}


def bench_section(bench: Bench) -> list[str]:
    """Title, tables, doubts, gates and sources of one comparison."""
    lines = [f"### {bench.title}", "", _ORIGINS[bench.origin], ""]
    if bench.note:
        lines += [bench.note, ""]
    lines += _main_table(bench)
    lines += _node_table(bench)
    lines += _order_table(bench)
    doubts = list(_doubts(bench))
    if doubts:
        lines += ["What to keep in mind:", "", *(f"- {one}" for one in doubts), ""]
    lines += _gate_lines(bench)
    sources = dict.fromkeys(run.result.source for case in bench.cases for run in case.runs)
    return [*lines, f"Sources: {bench.label}; {', '.join(sources)}", ""]


def _main_table(bench: Bench) -> list[str]:
    if bench.layout is Layout.METRICS:
        return _metric_rows(bench)
    head = ["Concurrency", "Runs"]
    compared = len(bench.arms) > 1
    for column in bench.columns:
        arms = f": {' → '.join(bench.arms)}" if compared else ""
        head.append(f"{_title(column)}{arms}")
        if compared and column.metric is bench.columns[0].metric:
            head.append("Change")
    rows = []
    for case in bench.cases:
        wholes = [_whole(case, arm) for arm in bench.arms]
        row = [case.load, " + ".join(str(len(one.runs)) for one in wholes)]
        for column in bench.columns:
            row.append(" → ".join(_figure(one, column, runs=not compared) for one in wholes))
            if compared and column.metric is bench.columns[0].metric:
                row.append(_changes(case, column))
        rows.append([*row, "; ".join(_completed(one) for one in wholes)])
    return table([*head, "Completed"], rows)


def _metric_rows(bench: Bench) -> list[str]:
    (case,) = bench.cases
    rows = []
    for column in bench.columns:
        figures = [_figure(_whole(case, arm), column, runs=False) for arm in bench.arms]
        rows.append([_title(column), *figures, _changes(case, column)])
    return table(["Metric", *bench.arms, "Change"], rows)


def _node_table(bench: Bench) -> list[str]:
    nodes = list(dict.fromkeys(node for case in bench.cases for node in case.nodes))
    if len(bench.arms) < 2 or len(nodes) < 2:
        return []
    column = bench.columns[0]
    rows = [
        [
            case.load,
            *(
                ", ".join(
                    _percent(case.change(arm, column.metric, node), column)
                    for arm in bench.arms[1:]
                )
                for node in nodes
            ),
        ]
        for case in bench.cases
    ]
    return table(["Concurrency", *(f"{node}: {_title(column)} change" for node in nodes)], rows)


def _order_table(bench: Bench) -> list[str]:
    column = bench.columns[0]
    rows = []
    for case in bench.cases:
        for arm in bench.arms[1:]:
            orders = case.change_by_order(arm, column.metric)
            if len(orders) > 1:
                rows.append(
                    [case.load, arm, *(_percent(orders[k], column) for k in ("A/B", "B/A"))]
                )
    return table(["Concurrency", "Arm", "A/B", "Reverse A/B"], rows)


def _doubts(bench: Bench) -> Iterator[str]:
    everywhere = [case.doubts(bench.columns[0].metric) for case in bench.cases]
    for doubt in Doubt:
        at = [
            (case.load, found[doubt])
            for case, found in zip(bench.cases, everywhere, strict=True)
            if doubt in found
        ]
        if not at:
            continue
        if doubt is Doubt.NODES_DISAGREE:
            for load, shown in at:
                yield f"concurrency {load}: nodes disagree ({shown}): no stable gain"
        elif len(at) == len(bench.cases) and len({shown for _, shown in at}) == 1:
            yield f"everywhere: {doubt.value} ({at[0][1]})"
        else:
            for load, shown in at:
                yield f"concurrency {load}: {doubt.value} ({shown})"


def _gate_lines(bench: Bench) -> list[str]:
    gates = bench.gates
    if not gates.max_regression and gates.min_completed is None:
        return []
    failures = [one for case in bench.cases for one in gate_failures(case, gates)]
    if not failures:
        return ["Gates: all hold.", ""]
    return ["Gates that do not hold:", "", *(f"- {f.load}: {f.what}" for f in failures), ""]


def _whole(case: Case, arm: str) -> Aggregate:
    found = case.aggregate(arm)
    assert found is not None
    return found


def _title(column: Column) -> str:
    name = _TITLES[column.metric]
    if column.metric.more_is_better:
        return name
    return f"{name} ({'s' if column.seconds else 'ms'})"


def _figure(whole: Aggregate, column: Column, *, runs: bool) -> str:
    """A figure; with `runs`, the runs that it was made of behind it."""
    shown = _number(whole.value(column.metric), column)
    if runs and len(whole.runs) > 1:
        each = [_number(one, column) for one in whole.each(column.metric)]
        # Runs that are given by their mean alone have nothing to tell one by one.
        return f"{shown} mean" + (f" ({' / '.join(each)})" if len(set(each)) > 1 else "")
    return shown


def _number(value: float | None, column: Column) -> str:
    if value is None:
        return _NONE
    if column.metric is Metric.ACCEPTANCE_RATE:
        return f"{value:.{column.digits}f}%"
    if column.metric.more_is_better:
        return f"{value:.{column.digits}f}"
    return f"{value / 1000:.{column.digits}f}" if column.seconds else f"{value:,.{column.digits}f}"


def _changes(case: Case, column: Column) -> str:
    found = (case.change(arm, column.metric) for arm in case.arms[1:])
    return ", ".join(_percent(one, column) for one in found) or _NONE


def _percent(value: float | None, column: Column) -> str:
    return _NONE if value is None else f"{value:+.{column.change_digits}f}%"


def _completed(whole: Aggregate) -> str:
    return f"{whole.completed}/{whole.prompts}"
