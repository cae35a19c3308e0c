"""What ``dsv4port build`` does with a checkout, and says: an environment, or checks of sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4port.cli.build_rows import (
    Asked,
    answer_fields,
    check_lines,
    check_row,
    probe_lines,
    probe_rows,
    step_lines,
)
from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, count, full_path, shown_path
from dsv4port.errors import BadInputError, ExitCode, UsageError

if TYPE_CHECKING:
    from dsv4port.build.environment import BuiltEnvironment
    from dsv4port.build.environment_plan import EnvironmentPlan


def environment(run: Run, asked: Asked, base: Path | None, accept: Iterable[str]) -> Reply:
    """Build the checkout for a target, or say how that would go."""
    from dsv4port.build.environment import build_environment
    from dsv4port.build.environment_plan import plan_environment
    from dsv4port.build.smoke import CheckKind

    targets = asked.targets()
    if len(targets) != 1:
        raise UsageError("an environment is for one target", fix="name one; --kernels takes more")
    kinds = {kind.value: kind for kind in CheckKind}
    for name in accept:
        if name not in kinds:
            raise UsageError(
                f"--accept {name} is no kind of check", fix=f"name one of {', '.join(kinds)}"
            )
    [target] = targets
    plan = plan_environment(
        run.project, target, run.checkout, asked.variables, jobs=asked.jobs, base=base
    )
    for text in plan.replaced:
        run.notice(f"{text} of your environment is replaced by the target's")
    steps = [
        {
            "name": one.name,
            "command": list(one.command),
            "environment": [f"{key}={value}" for key, value in one.environment],
        }
        for one in plan.steps
    ]
    run.fields.update(
        answer_fields("environment", asked, probes=probe_rows(plan.probes), steps=steps)
    )
    if asked.plan:
        return Reply(lines=_plan_lines(plan, steps))
    stack, pin, touched = _what_it_holds(run)
    built = build_environment(
        run.project, plan, touched=touched, accept=frozenset(kinds[name] for name in accept),
        pretend_version=pin.removeprefix("v") if pin is not None else None, progress=run.progress,
    )  # fmt: skip
    return _reply(built, stack)


def _plan_lines(plan: EnvironmentPlan, steps: list[dict[str, Any]]) -> list[str]:
    lines = [f"{plan.target.name}: {plan.target.title}", *probe_lines(plan.probes)]
    if plan.base is not None:
        lines.append(f"packages of {shown_path(plan.base)}; nothing is downloaded")
    if plan.compiler_cache is not None:
        lines.append(f"compiler cache: {plan.compiler_cache}")
    lines.append(
        f"copy {shown_path(plan.checkout)} to {shown_path(plan.generation)}/source, there:"
    )
    lines += step_lines(steps)
    lines += [
        "checks: the package and its extensions import, operators are as declared, packages fit,",
        "  and the tree's own check of its docker versions",
        f"put in place: {shown_path(plan.generation.parent.parent)}/current",
    ]
    if plan.target.never_run is not None:
        lines.append(f"never run in this project: {plan.target.never_run}")
    return lines


def _reply(built: BuiltEnvironment, stack: str | None) -> Reply:
    checks = [
        check_row(one.kind.value, one.subject, one.outcome.value, one.detail)
        for one in built.smoke.checks
    ]
    place = built.plan.generation
    own = {
        "checks": checks,
        "artifacts": [
            {
                "kernel": one.module,
                "path": one.path,
                "sha256": one.sha256,
                "size": one.size,
                "architectures": list(built.plan.target.architectures),
                "exports": [],
                "cached": False,
            }
            for one in built.smoke.extensions
        ],
        "environment": full_path(place),
        "receipt": None if built.receipt is None else full_path(built.receipt),
        "log": full_path(built.log),
    }
    what = f"{stack or shown_path(built.plan.checkout)} for {built.plan.target.name}"
    source = f"{count(built.source.files, 'file')}" + (
        f", {count(len(built.source.changed), 'change')} on top of {built.source.commit}"
        if built.source.changed
        else ""
    )
    if built.receipt is None:
        lines = [
            f"{what} was built, and a check fails; the environment of before stays in place",
            *check_lines(checks),
            f"look at it in {shown_path(place)}; the next build removes it",
            f"log {shown_path(built.log)}",
        ]
        return Reply(own, lines, int(ExitCode.NO))
    lines = [
        f"{what} is in place, from {source}",
        *check_lines(checks),
        f"activate {shown_path(built.receipt.parent)}/venv/bin/activate",
        f"receipt {shown_path(built.receipt)}",
    ]
    return Reply(own, lines)


def _what_it_holds(run: Run) -> tuple[str | None, str | None, frozenset[str]]:
    """Stack and pin of the checkout, and the files that the stack touches."""
    from dsv4port.apply.receipt import readable_receipt
    from dsv4port.git.checkout import open_checkout
    from dsv4port.manifest.lock import load_lock

    if not (run.checkout / ".git").exists():
        return None, None, frozenset()
    receipt = readable_receipt(open_checkout(run.checkout).state)
    if receipt is None:
        return None, None, frozenset()
    if receipt.stack is None or not run.project.lock_file(receipt.stack).is_file():
        return receipt.stack, receipt.pin, frozenset()
    lock = load_lock(run.project, receipt.stack)
    paths = frozenset(one.path.decode("utf-8", "replace") for one in lock.files)
    return receipt.stack, receipt.pin, paths


def check_sources(
    run: Run, asked: Asked, files: tuple[str, ...], every: bool, python: Path | None
) -> Reply:
    """Compile CUDA sources of the checkout one by one."""
    import sys

    from dsv4port.build.probes import Place, site_folders
    from dsv4port.build.source_check import (
        HEADERS,
        SOURCES,
        SourceOutcome,
        chosen_sources,
        cuda_sources,
        find_headers,
    )
    from dsv4port.build.source_check import check_sources as check
    from dsv4port.build.workplace import build_folder, exclusive_build, staging

    architectures = [one for target in asked.targets() for one in target.architectures]
    if not architectures:
        raise BadInputError(
            "the targets have no CUDA architecture", fix="name a cuda target, such as cuda-sm90"
        )
    tree = run.checkout
    if not tree.is_dir():
        raise UsageError(f"there is no checkout at {tree}", fix="`dsv4port apply STACK` makes it")
    if not files and not every:
        stack, _, touched = _what_it_holds(run)
        files = tuple(
            sorted(one for one in touched if one.endswith(SOURCES + HEADERS)
                   and (tree / one).is_file())
        )  # fmt: skip
        if not files:
            reason = f"{stack} touches no C++ or CUDA file" if stack else "it holds no locked stack"
            run.fields.update(answer_fields("sources", asked))
            return Reply(
                lines=[f"nothing to check: {reason}", "name files, or use --all for all of them"]
            )
    sources = cuda_sources(tree) if every else chosen_sources(tree, files)
    unused = [one for one in files if one not in sources and not chosen_sources(tree, [one])]
    interpreter = python or Path(sys.executable)
    nvcc = Place(asked.variables, interpreter).find_nvcc()
    headers = find_headers(interpreter, nvcc, asked.variables, site_folders(interpreter))
    steps = [
        {"name": one, "command": [str(nvcc.program), "-c", one], "environment": []}
        for one in sources
    ]
    run.fields.update(answer_fields("sources", asked, steps=steps))
    if asked.plan:
        return Reply(lines=[f"{one}: {', '.join(architectures)}" for one in sources])
    folder = build_folder(run.project) / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "sources.log"
    with (
        exclusive_build(run.project, "sources", run.progress),
        staging(folder) as work,
        log.open("wb") as stream,
    ):
        found = check(
            tree, sources, architectures, nvcc, headers, asked.variables, work, stream,
            progress=run.progress,
        )  # fmt: skip
    checks = [
        check_row("source", f"{one.file} sm_{one.architecture}a", one.outcome.value, one.detail)
        for one in found
    ]
    checks += [
        check_row("source", one, SourceOutcome.NOT_CHECKABLE.value, "no source includes it")
        for one in unused
    ]
    counts = {outcome: sum(one.outcome is outcome for one in found) for outcome in SourceOutcome}
    fails = counts[SourceOutcome.FAILS] > 0 or not counts[SourceOutcome.COMPILES]
    said = ", ".join(f"{number} {outcome.value}" for outcome, number in counts.items())
    lines = [*check_lines(checks), said, f"log {shown_path(log)}"]
    return Reply({"checks": checks, "log": full_path(log)}, lines, int(ExitCode.NO) if fails else 0)
