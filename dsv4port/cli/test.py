"""``dsv4port test``: run the tests of patchsets on the patched tree."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, count, full_path, shown_path
from dsv4port.errors import EnvironmentProblemError, ExitCode

if TYPE_CHECKING:
    from dsv4port.testing.results import SuiteResult, TestRun

_MOST_LINES = 40


class Device(str, Enum):
    """What the tests may use."""

    CPU = "cpu"
    """No accelerator; Triton kernels are interpreted."""
    CUDA = "cuda"
    """The first CUDA device."""
    MUSA = "musa"
    """The first MUSA device."""


def command(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STACK|PATCHSET]...", help="Default: every stack."),
    ] = None,
    pin: Annotated[str | None, typer.Option(metavar="PIN", help="Only stacks on this pin.")] = None,
    device: Annotated[
        Device, typer.Option(help="Leave out tests that need another device.")
    ] = Device.CPU,
    keyword: Annotated[
        str, typer.Option("-k", metavar="EXPRESSION", help="Only tests named so, as for pytest.")
    ] = "",
    red_on_pin: Annotated[
        bool,
        typer.Option("--red-on-pin", help="Also: tests marked `fix` must fail on the bare pin."),
    ] = False,
    no_upstream: Annotated[
        bool, typer.Option("--no-upstream", help="Leave out vLLM's tests that manifests name.")
    ] = False,
    network: Annotated[
        bool, typer.Option("--network", help="Tests may use the network.")
    ] = False,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", exists=True, dir_okay=False,
            help="The interpreter of a ready environment, instead of one that is made.",
        ),
    ] = None,
    result: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write what came out as JSON."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write what came out as JUnit XML."),
    ] = None,
) -> Reply:  # fmt: skip
    """Run patchsets' tests on checkouts made for them, in an environment made for the pin.

    Ends with 1 when a test failed or a fix test is not red, with 6 when tests could not run for
    want of something outside.
    """
    from dsv4port.testing.junit import write_junit
    from dsv4port.testing.results import write_run
    from dsv4port.testing.run import TestWish, run_tests
    from dsv4port.upstream.cache import Cache

    run = Run.of(context)
    wish = TestWish(
        names=tuple(names or ()), pin=pin, device=device.value, keyword=keyword,
        red_on_pin=red_on_pin, upstream=not no_upstream, network=network,
        interpreter=python, checkout=run.checkout_folder and run.checkout,
    )  # fmt: skip
    report = run_tests(run.project, wish, Cache.locate(), progress=run.progress)
    found = report.run
    run.fields.update(
        holds=found.holds, counts=found.counts, red_counts=found.red_counts,
        device=found.device, suites=[_suite_row(one) for one in found.suites],
        work=full_path(report.work),
        result=None if result is None else full_path(result.absolute()),
    )  # fmt: skip
    if result is not None:
        write_run(found, result)
    if junit is not None:
        write_junit(report.junit, junit)
    lines = list(_lines(found, report.work))
    if found.hindered and not found.failed:
        for line in lines if not run.json else ():
            print(line)
        raise EnvironmentProblemError(
            f"{count(len(found.hindered), 'test')} could not run for want of something outside",
            fix="provide it (--network, an access token), or run them where it is at hand",
            details=[f"{one.id}: {_first_line(one.reason)}" for one in found.hindered],
        )
    return Reply({}, lines, int(ExitCode.NO if found.failed else ExitCode.OK))


def _suite_row(suite: SuiteResult) -> dict[str, Any]:
    return {
        "kind": suite.kind.value,
        "patchset": suite.patchset,
        "stack": suite.stack,
        "pin": suite.pin,
        "tree": suite.tree,
        "seconds": suite.seconds,
        "counts": suite.counts,
        "problems": list(suite.problems),
        "bad": [
            {"id": one.id, "outcome": one.outcome.value, "reason": one.reason} for one in suite.bad
        ],
    }


def _lines(run: TestRun, work: Path) -> Iterator[str]:
    from dsv4port.testing.suites import SuiteKind

    rows = []
    for suite in run.suites:
        red = suite.kind is SuiteKind.RED
        counts = _red_counts(suite) if red else suite.counts
        said = ", ".join(f"{number} {name}" for name, number in counts.items()) or "no tests"
        where = suite.stack or f"bare {suite.pin}"
        rows.append((suite.patchset, suite.kind.value, where, said, f"{suite.seconds:.1f} s"))
    yield from columns(rows)
    told = 0
    for suite in run.suites:
        for problem in suite.problems:
            yield f"  {problem}"
        for test in suite.bad:
            told += 1
            if told <= _MOST_LINES:
                word = test.redness.value if suite.kind is SuiteKind.RED else test.outcome.value
                yield f"  {word}: {test.id}: {_first_line(test.reason)}"
    if told > _MOST_LINES:
        yield f"  … and {told - _MOST_LINES} more"
    for stack, others in run.aliases.items():
        yield f"{', '.join(others)}: the same tree and patchsets as {stack}"
    if not any(suite.tests for suite in run.suites):
        yield "no test was run"
    if run.failed:
        yield f"logs: {shown_path(work)}"


def _red_counts(suite: SuiteResult) -> dict[str, int]:
    counts: dict[str, int] = {}
    for test in suite.tests:
        counts[test.redness.value] = counts.get(test.redness.value, 0) + 1
    return counts


def _first_line(reason: str | None) -> str:
    return (reason or "it passed").partition("\n")[0]
