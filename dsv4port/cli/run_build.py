"""What ``dsv4port build`` does and says, for targets and kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsv4port.cli.build_rows import (
    Asked,
    answer_fields,
    check_lines,
    check_row,
    probe_lines,
    probe_rows,
    shown_architectures,
    step_lines,
)
from dsv4port.cli.context import Run
from dsv4port.cli.render import Reply, columns, count, full_path, shown_path, size
from dsv4port.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dsv4port.build.kernels import KernelBuild, KernelPlans
    from dsv4port.manifest.patchset import Patchset


def list_targets() -> Reply:
    """Every target, and what of it was never tried."""
    from dsv4port.build.targets import load_target, target_names

    targets = [load_target(name) for name in target_names()]
    fields = answer_fields("list", Asked([one.name for one in targets], False, 1, {}))
    rows = [(one.name, one.title) for one in targets]
    return Reply(fields, [*columns(rows), "build one with `dsv4port build --target NAME`"])


# ---- kernels of a patchset


def kernels(run: Run, asked: Asked, name: str) -> Reply:
    """Compile a patchset's CUDA kernels, or say how that would go."""
    from dsv4port.build.kernel_cache import KernelCache
    from dsv4port.build.kernels import build_kernels, host_compiler, plan_kernels
    from dsv4port.build.probes import Place

    targets = asked.targets()
    patchset = _patchset(run, name)
    cache = KernelCache.locate()
    nvcc = Place(asked.variables).find_nvcc()
    host = host_compiler(asked.variables)
    plans = plan_kernels(run.project, patchset, targets, nvcc, host, cache, jobs=asked.jobs)
    skipped = [check_row("kernel", one.kernel, "skipped", one.reason) for one in plans.skipped]
    steps = [
        {"name": f"compile {one.kernel.name}", "command": list(one.command), "environment": []}
        for one in plans.plans
    ]
    probes = [
        {
            "subject": "nvcc", "outcome": "found", "version": nvcc.version, "needed": None,
            "found": f"{nvcc.program} by {nvcc.origin.value}", "install": None,
        },
        {
            "subject": "host compiler", "outcome": "found", "version": host.version,
            "needed": None, "found": host.program, "install": None,
        },
    ]  # fmt: skip
    run.fields.update(answer_fields("kernels", asked, probes=probes, steps=steps, checks=skipped))
    if asked.plan:
        return Reply(lines=_kernel_plan_lines(plans))
    built = build_kernels(run.project, plans, asked.variables, cache, progress=run.progress)
    own = {
        "artifacts": [
            {
                "kernel": one.artifact.kernel,
                "path": full_path(one.path),
                "sha256": one.artifact.sha256,
                "size": one.artifact.size,
                "architectures": list(one.artifact.architectures),
                "exports": list(one.artifact.exports),
                "cached": one.cached,
            }
            for one in built.built
        ],
        "receipt": full_path(built.receipt),
        "log": full_path(built.log),
    }
    return Reply(own, _kernel_lines(built, plans))


def _patchset(run: Run, name: str) -> Patchset:
    from dsv4port.manifest.patchset import load_patchset
    from dsv4port.manifest.pins import load_pins

    return load_patchset(run.project, name, load_pins(run.project))


def _kernel_plan_lines(plans: KernelPlans) -> list[str]:
    import shlex

    lines = [f"compiler: {plans.compiler}"]
    for one in plans.plans:
        what = "from the cache" if one.cached else "compiled"
        lines += [f"{one.kernel.name} for {shown_architectures(one.architectures)}: {what}"]
        lines += [f"  {shlex.join(one.command)}"]
    return lines + [f"{one.kernel}: skipped: {one.reason}" for one in plans.skipped]


def _kernel_lines(built: KernelBuild, plans: KernelPlans) -> list[str]:
    lines = []
    for one in built.built:
        artifact = one.artifact
        how = "from the cache" if one.cached else "compiled"
        where = shown_architectures(artifact.architectures)
        lines += [
            f"{artifact.kernel} for {where}: {how}, {size(artifact.size)}",
            f"  {shown_path(one.path)}",
            f"  sha256 {artifact.sha256}",
        ]
    lines += [f"{one.kernel}: skipped: {one.reason}" for one in plans.skipped]
    return [*lines, f"{count(len(built.built), 'kernel')} by {plans.compiler}",
            f"receipt {shown_path(built.receipt)}"]  # fmt: skip


def check_triton(run: Run, asked: Asked, name: str, python: Path | None) -> Reply:
    """Compile a patchset's Triton kernels ahead of time."""
    import sys

    from dsv4port.build.probes import Place, probe_all, require
    from dsv4port.build.targets import ModuleProbe, Target
    from dsv4port.build.triton_check import TritonOutcome, triton_kernels
    from dsv4port.build.triton_check import check_triton as check
    from dsv4port.build.workplace import build_folder
    from dsv4port.manifest.values import Name

    targets = asked.targets()
    patchset = _patchset(run, name)
    rows = triton_kernels(patchset)
    interpreter = python or Path(sys.executable)
    needs = Target(
        Name("triton"), "Triton", "cuda", ("x",), False,
        probes=(
            ModuleProbe("triton", "it compiles the kernels", "pip install triton==3.6.0, or name "
                        "an interpreter that has it with --python"),
            ModuleProbe("torch", "the kernels' modules import it", "pip install torch, or name an "
                        "interpreter that has it with --python"),
        ),
    )  # fmt: skip
    probes = probe_all(needs, Place(asked.variables, interpreter))
    steps = [
        {
            "name": f"{row.name} for sm_{architecture}",
            "command": [str(interpreter), row.sources[0], str(run.checkout), architecture],
            "environment": ["CUDA_VISIBLE_DEVICES="],
        }
        for row in rows
        for target in targets
        for architecture in target.architectures
    ]
    run.fields.update(answer_fields("triton", asked, probes=probe_rows(probes), steps=steps))
    if asked.plan:
        return Reply(lines=[*probe_lines(probes), *step_lines(steps)])
    require(probes)
    if not run.checkout.is_dir():
        raise UsageError(
            f"there is no checkout at {run.checkout}", fix="`dsv4port apply STACK` makes it"
        )
    log = build_folder(run.project) / "kernels" / patchset.name / "triton.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        found = check(
            patchset, run.project.patchset_folder(patchset.name), targets, run.checkout,
            interpreter, asked.variables, stream, progress=run.progress,
        )  # fmt: skip
    checks = [
        check_row(
            "triton", f"{one.kernel} sm_{one.architecture}", one.outcome.value,
            f"{one.variants} variants, {size(one.size)}" if one.variants
            else "; ".join(one.detail[-3:]) or "the manifest does not name this architecture",
        )
        for one in found
    ]  # fmt: skip
    failed = any(one.outcome is TritonOutcome.FAILS for one in found)
    none = all(one.outcome is TritonOutcome.NOT_DECLARED for one in found)
    code = int(ExitCode.NO) if failed or none else 0
    return Reply({"checks": checks, "log": full_path(log)}, check_lines(checks), code)
