"""``bench.yaml``: which result files are compared with which, and how they are shown."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path

from dsv4port.errors import BadInputError
from dsv4port.evidence.aggregate import Metric
from dsv4port.evidence.bench_result import read_bench_results
from dsv4port.evidence.comparison import BenchRun, Case, Gates
from dsv4port.manifest.document import Node, load_document
from dsv4port.manifest.values import FieldError, check_filled, check_relative_path, check_unique
from dsv4port.quick_dataclass import dataclass

BENCH_FORMAT = 1


class Origin(Enum):
    """Where the numbers come from."""

    MEASURED = "measured"
    """The files are what the benchmark wrote."""
    TRANSCRIBED = "transcribed"
    """The files were written from a table that somebody published; nothing was measured here."""


class Layout(Enum):
    """What has a row of its own in the table."""

    LOADS = "loads"
    """Each load; metrics are columns."""
    METRICS = "metrics"
    """Each metric of the only load; arms are columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A metric and how it is shown. ``seconds``: a latency in s instead of ms."""

    metric: Metric
    digits: int
    change_digits: int = 1
    seconds: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.digits <= 6 or not 0 <= self.change_digits <= 6:
            raise FieldError("digits", "must be from 0 to 6")


DEFAULT_COLUMNS = (
    Column(Metric.OUTPUT_THROUGHPUT, 2),
    Column(Metric.MEAN_TTFT, 2),
    Column(Metric.MEAN_TPOT, 3),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A comparison, read.

    Parameters:
        label: name of the file, for citing.
        stack: the stack that it says something about; None for any.
    """

    label: str
    title: str
    origin: Origin
    stack: str | None
    note: str | None
    arms: tuple[str, ...]
    layout: Layout
    columns: tuple[Column, ...]
    cases: tuple[Case, ...]
    gates: Gates


def load_bench(file: Path, label: str) -> Bench:
    """Read a comparison and every result file it names.

    Raises:
        ManifestError: the file is malformed.
        BadInputError: a result file is missing, cut off or contradicts itself.
    """
    root = load_document(file, label)
    root.require_format(BENCH_FORMAT, update="see docs/report.md for the present format")
    with root.located():
        arms = root.texts("arms")
        check_unique("arms", arms)
        if not arms:
            raise FieldError("arms", "must name at least one")
        layout = root.choice("layout", Layout) if root.optional("layout") else Layout.LOADS
        columns = tuple(map(_column, root.optional_sequence("metrics"))) or DEFAULT_COLUMNS
        found = Bench(
            label=label,
            title=root.text("title"),
            origin=root.choice("origin", Origin),
            stack=root.optional_name("stack"),
            note=root.optional_text("note"),
            arms=arms,
            layout=layout,
            columns=columns,
            cases=_cases(root, file.parent, label, arms),
            gates=_gates(root.optional_mapping("gates")),
        )
        check_filled("title", found.title)
        if found.layout is Layout.METRICS and len(found.cases) != 1:
            raise FieldError("layout", "`metrics` is for one load only")
    root.finish()
    return found


def _cases(root: Node, folder: Path, label: str, arms: tuple[str, ...]) -> tuple[Case, ...]:
    runs: dict[str, list[BenchRun]] = {}
    for node in root.sequence("runs"):
        node.as_mapping()
        with node.located():
            name = node.text("file")
            check_relative_path("file", name)
            arm = node.text("arm")
            if arm not in arms:
                raise FieldError("arm", f"is {arm}, which `arms` does not name")
            where = f"{label.rpartition('/')[0]}/{name}" if "/" in label else name
            place, turn = node.optional_text("node") or "-", node.optional_integer("turn")
            load = node.optional_text("load")
            for result in read_bench_results(folder / name, where):
                key = load or (str(result.concurrency) if result.concurrency else "no limit")
                runs.setdefault(key, []).append(BenchRun(arm, place, result, turn))
        node.finish()
    return tuple(Case(load, arms, tuple(found)) for load, found in runs.items())


def _column(node: Node) -> Column:
    node.as_mapping()
    with node.located():
        metric = node.choice("metric", Metric)
        column = Column(
            metric,
            node.integer("digits"),
            1 if node.optional("change_digits") is None else node.integer("change_digits"),
            node.optional_boolean("seconds"),
        )
    node.finish()
    return column


def _gates(node: Node | None) -> Gates:
    if node is None:
        return Gates()
    limits = []
    allowed = node.optional_mapping("max_regression")
    for key, value in allowed.entries() if allowed is not None else ():
        try:
            metric = Metric(key)
        except ValueError as error:
            names = ", ".join(one.value for one in Metric)
            raise value.failed(f"is no metric; there are {names}") from error
        limits.append((metric, _percent(value)))
    least = node.optional("min_completed")
    gates = Gates(tuple(limits), None if least is None else _percent(least))
    node.finish()
    return gates


def _percent(node: Node) -> float:
    """A number of percent, written as a plain or quoted number."""
    try:
        found = float(str(node.value))
    except ValueError:
        found = math.nan
    if not 0 <= found <= 100:
        raise node.failed("must be a number of percent from 0 to 100")
    return found


def find_benches(folder: Path, label: str) -> tuple[Bench, ...]:
    """Every ``bench.yaml`` below a folder, by name."""
    return tuple(
        load_bench(file, f"{label}/{file.relative_to(folder).as_posix()}")
        for file in sorted(folder.glob("**/bench.yaml"))
    )


def the_bench(path: Path, label: str) -> Bench:
    """The comparison that a file, or a folder with a ``bench.yaml``, holds."""
    file = path / "bench.yaml" if path.is_dir() else path
    if not file.is_file():
        raise BadInputError(f"there is no {file}", fix="name a bench.yaml, or its folder")
    return load_bench(file, label if file == path else f"{label}/bench.yaml")
