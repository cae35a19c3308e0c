"""``dsv4port report``: what was shown of a stack, and by which file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.errors import ExitCode, UsageError


def command(
    context: typer.Context,
    stack: Annotated[
        str | None, typer.Argument(metavar="[STACK]", help="The stack, by name.")
    ] = None,
    bench: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Instead of a stack: one bench.yaml, or the folder that has it."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the text there.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 while gates are open.")
    ] = False,
) -> Reply:
    """Render a stack's report as Markdown from manifests, lock and evidence/.

    With --bench: the tables of one comparison; ends with 1 when one of its gates does not hold.
    """
    from dsv4port.evidence.report import Report, make_report, write_report

    run = Run.of(context)
    if (stack is None) == (bench is None):
        raise UsageError("name a stack, or a comparison with --bench", fix="see `dsv4port list`")
    if stack is not None:
        report = make_report(run.project, stack)
    else:
        assert bench is not None
        report = Report(*_bench_report(bench), sources=(full_path(bench.absolute()),))
    if out is not None:
        write_report(report, out)
    answer = ExitCode.NO if report.open_gates and (strict or bench is not None) else ExitCode.OK
    fields = {
        "stack": stack,
        "out": None if out is None else full_path(out.absolute()),
        "markdown": report.markdown,
        "open_gates": list(report.open_gates),
        "sources": list(report.sources),
    }
    if out is None:
        return Reply(fields, report.markdown.splitlines(), int(answer))
    lines = [
        f"{shown_path(out)}: written; {count(len(report.open_gates), 'gate')} open",
        *(f"  {one}" for one in report.open_gates),
    ]
    return Reply(fields, lines, int(answer))


def _bench_report(path: Path) -> tuple[str, tuple[str, ...]]:
    from dsv4port.evidence.bench_file import the_bench
    from dsv4port.evidence.bench_tables import bench_section
    from dsv4port.evidence.comparison import gate_failures

    found = the_bench(path, shown_path(path))
    failures = tuple(
        f"concurrency {one.load}: {one.what}"
        for case in found.cases
        for one in gate_failures(case, found.gates)
    )
    return "\n".join(bench_section(found)), failures
