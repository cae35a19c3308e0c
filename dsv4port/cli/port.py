"""``dsv4port port``: carry patches to another tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count
from dsv4port.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from dsv4port.port.engine import PatchPort, PortReport
    from dsv4port.port.outcomes import HunkReport, Policy


def command(
    context: typer.Context,
    patches: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME [PIN]... | PATCH...",
            help="A patchset or stack, and further pins; with --repo patch files, in order.",
        ),
    ] = None,
    repository: Annotated[
        Path | None, typer.Option("--repo", metavar="DIR", help="Any git repository.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="TREEISH", help="What the patches were written for."),
    ] = None,
    onto: Annotated[
        list[str] | None,
        typer.Option(
            "--onto", metavar="PIN|TREEISH",
            help="What to port to; with pins repeatable, and several give a matrix.",
        ),
    ] = None,
    old_pin: Annotated[
        str | None, typer.Option("--from", metavar="PIN", help="The pin to port from.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="RUNG=DECISION",
            help="What to do with the answers of a rung: accept, review or refuse. Repeatable.",
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop-at-first", help="End at the first conflict.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put aside another series for the pin.")
    ] = False,
    no_drift: Annotated[
        bool, typer.Option("--no-drift", help="Do not look for API drift of the series.")
    ] = False,
    history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A clone with upstream's history."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 when anything is to be looked at.")
    ] = False,
) -> Reply:  # fmt: skip
    """Carry a patchset or stack to other pins; with --repo, patch files to another tree.

    Says for each hunk how and why. A patch in conflict is left out and the next one is tried.
    """
    run = Run.of(context)
    words, targets = list(patches or []), list(onto or [])
    if repository is not None or base is not None:
        if any((old_pin, dry_run, replace, no_drift, history, strict)):
            raise UsageError(
                "--from, --dry-run, --replace, --no-drift, --history and --strict are for series",
                fix="leave --repo and --base out, or those",
            )
        if repository is None or base is None or len(targets) != 1 or not words:
            raise UsageError(
                "--repo, --base, one --onto and at least one PATCH are needed",
                fix="see `dsv4port port --help`",
            )
        return _port_files(
            run, repository.absolute(), base, targets[0], list(map(Path, words)),
            read_policy(policy or []), stop,
        )  # fmt: skip
    if not words or not targets:
        raise UsageError(
            "a patchset or stack and at least one --onto PIN are needed",
            fix="see `dsv4port port --help`",
        )
    from dsv4port.cli.port_series import port_pins
    from dsv4port.port.port_onto import PortRequest
    from dsv4port.port.series_port import PortOptions

    name, *further = words
    options = PortOptions(read_policy(policy or []), stop)
    request = PortRequest(
        name, old_pin, options, not no_drift, None if history is None else history.absolute(),
        dry_run, replace,
    )  # fmt: skip
    return port_pins(run, request, tuple(dict.fromkeys([*targets, *further])), strict=strict)


def read_policy(settings: list[str]) -> Policy:
    from dsv4port.port.outcomes import Decision, Policy, Rung

    decisions = dict(Policy().decisions)
    for setting in settings:
        rung, _, decision = setting.partition("=")
        try:
            decisions[Rung(rung)] = Decision(decision)
        except ValueError:
            raise UsageError(
                f"--policy {setting!r} is not RUNG=DECISION",
                fix=f"RUNG is one of {', '.join(one.value for one in Rung)}; DECISION one of "
                f"{', '.join(one.value for one in Decision)}",
            ) from None
    return Policy(decisions)


def _port_files(
    run: Run, repository: Path, base: str, onto: str, patches: list[Path], policy: Policy,
    stop: bool,
) -> Reply:  # fmt: skip
    from dsv4port.port.repo_port import port_in_repository

    report = port_in_repository(repository, base, onto, patches, policy=policy, stop=stop)
    run.fields.update(report_fields(report))
    lines = list(report_lines(report))
    if report.conflicts:
        raise ConflictError(
            f"{len(report.conflicts)} of {count(len(report.patches), 'patch', 'patches')} left to "
            "resolve",
            fix="the others are in the tree; change those patches for the new base, or drop them",
            details=[*lines, f"tree {report.tree}"],
        )
    return Reply(lines=[*lines, f"tree {report.tree}"])


def report_fields(report: PortReport) -> dict[str, Any]:
    """A report as JSON."""
    return {
        "base_tree": report.base,
        "onto_tree": report.onto,
        "patches": [_patch_row(one) for one in report.patches],
        "tree": report.tree,
    }


def _patch_row(one: PatchPort) -> dict[str, Any]:
    from dsv4port.patch.quote import display_path

    return {
        "file": one.key,
        "outcome": one.outcome.value,
        "rung": None if one.rung is None else one.rung.value,
        "tree": one.tree,
        "review": list(one.review),
        "changed": [display_path(path) for path in one.changed],
        "depends": list(one.depends),
        "without": one.without,
        "hunks": [hunk_row(hunk) for hunk in one.hunks],
    }


def hunk_row(hunk: HunkReport) -> dict[str, Any]:
    """A hunk as JSON."""
    from dsv4port.patch.quote import display_path

    return {
        "file": display_path(hunk.path),
        "number": hunk.number,
        "outcome": hunk.outcome.value,
        "rung": None if hunk.rung is None else hunk.rung.value,
        "old_scope": hunk.old_scope,
        "new_scope": hunk.new_scope,
        "reason": hunk.reason,
        "old_line": hunk.old_line,
        "new_line": hunk.new_line,
        "new_file": None if hunk.new_path is None else display_path(hunk.new_path),
        "review": hunk.review,
        "score": hunk.score,
        "upstream": None
        if hunk.upstream is None
        else hunk.upstream.decode("utf-8", "surrogateescape"),
    }


def report_lines(report: PortReport) -> Iterator[str]:
    """A report for people: a line for each patch, and one for each hunk that needs words."""
    from dsv4port.patch.quote import display_path

    for one in report.patches:
        rung = f" ({one.rung.value})" if one.rung is not None else ""
        yield f"{one.outcome.value:17} {one.key}{rung}{', review' if one.review else ''}"
        if one.depends:
            how = "merged without" if one.without else "written on top of"
            yield f"  {how} what is in conflict: {', '.join(one.depends)}"
        for hunk in one.hunks:
            if hunk.reason and (not hunk.outcome.done or hunk.review or hunk.score is not None):
                number = f" hunk {hunk.number}" if hunk.number else ""
                text = f"  {display_path(hunk.path)}{number}: {hunk.outcome.value}: {hunk.reason}"
                yield f"{text}; look: {hunk.review}" if hunk.review else text
