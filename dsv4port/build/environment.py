"""An environment for a target: built beside the one in use, checked, then put in place.

::

    targets/<target>/generations/<n>/source     the copy of the tree; extensions land here
    targets/<target>/generations/<n>/venv       installed from it
    targets/<target>/generations/<n>/receipt.json    written when everything holds
    targets/<target>/current                    link to the generation in use, switched last
    targets/<target>/deps                       what CMake fetched, kept for the next build

A virtual environment cannot be moved, so it is made in its final place, under a number that nobody
uses yet. A generation without a receipt is one that failed or was killed; the next build removes
it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dsv4port import __version__
from dsv4port.build.environment_plan import EnvironmentPlan, Step
from dsv4port.build.probes import Place, probe_all, require, site_folders
from dsv4port.build.process import failure, run_logged
from dsv4port.build.smoke import CheckKind, Smoke, smoke
from dsv4port.build.source_tree import SourceState, copy_tree
from dsv4port.build.workplace import exclusive_build, target_folder
from dsv4port.errors import ToolchainError
from dsv4port.manifest.files import write_atomically
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.progress import NO_PROGRESS, Progress

RECEIPT_FORMAT = 1
RECEIPT = "receipt.json"
CURRENT = "current"
LOG = "build.log"

_LAYER = "dsv4port_base.pth"
_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\]")
# What would let another environment into the one that is built.
_FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX",
            "PIP_USER", "PYTHONUSERBASE")  # fmt: skip


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """What a build came to. ``receipt`` is None where a check fails, so nothing was switched."""

    plan: EnvironmentPlan
    smoke: Smoke
    source: SourceState
    log: Path
    receipt: Path | None


def build_environment(
    project: Project,
    plan: EnvironmentPlan,
    *,
    touched: frozenset[str] = frozenset(),
    accept: frozenset[CheckKind] = frozenset(),
    pretend_version: str | None = None,
    progress: Progress = NO_PROGRESS,
) -> BuiltEnvironment:
    """Run the plan. The environment of before stays in place until every check holds.

    Parameters:
        touched: files of the tree that its stack touches, see :func:`smoke`.
        accept: kinds of checks that may fail.
        pretend_version: the version, for trees that do not say theirs.

    Raises:
        ToolchainError: a probe does not hold; nothing was made.
        BuildFailedError: a step failed; the log says why.
        EnvironmentProblemError: no space, no network.
    """
    require(plan.probes)
    folder = target_folder(project, plan.target.name)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG
    with exclusive_build(project, plan.target.name, progress), log.open("wb") as stream:
        _sweep(folder)
        if plan.generation.exists():
            raise ToolchainError(
                f"{plan.generation} was made by another build meanwhile", fix="run it again"
            )
        try:
            return _build(folder, plan, log, stream, touched, accept, pretend_version, progress)
        except BaseException:
            shutil.rmtree(plan.generation, ignore_errors=True)
            raise


def _build(
    folder: Path,
    plan: EnvironmentPlan,
    log: Path,
    stream: BinaryIO,
    touched: frozenset[str],
    accept: frozenset[CheckKind],
    pretend_version: str | None,
    progress: Progress,
) -> BuiltEnvironment:
    source = plan.generation / "source"
    state = copy_tree(plan.checkout, source, progress=progress)
    variables = _variables(plan)
    if pretend_version is not None and not (source / "PKG-INFO").is_file():
        variables["SETUPTOOLS_SCM_PRETEND_VERSION"] = pretend_version
    for step in plan.steps:
        if step.name == "build" and plan.base is None:
            # What the packages were to bring is there now, or the build need not begin.
            python = Place(variables, plan.python, (plan.python.parent,))
            require(probe_all(plan.target, python))
        _run(step, source, variables, log, stream, progress)
        if step.name == "environment" and plan.base is not None:
            _put_below(plan.python, plan.base)
    stream.write(b"# checks\n")
    found = smoke(
        plan.target, source, plan.python, variables, stream,
        packages_check=plan.packages_check, touched=touched, accept=accept,
    )  # fmt: skip
    if not found.holds:
        return BuiltEnvironment(plan, found, state, log, None)
    receipt = plan.generation / RECEIPT
    write_atomically(receipt, (json.dumps(_receipt(plan, found, state), indent=1) + "\n").encode())
    _switch(folder, plan.generation)
    return BuiltEnvironment(plan, found, state, log, folder / CURRENT / RECEIPT)


def _run(
    step: Step,
    source: Path,
    variables: Mapping[str, str],
    log: Path,
    stream: BinaryIO,
    progress: Progress,
) -> None:
    for key, value in step.environment:
        stream.write(f"# {key}={value}\n".encode())
    stream.write(f"$ {shlex.join(step.command)}\n".encode())
    done = 0

    def watch(line: str) -> None:
        nonlocal done
        match = _NINJA.match(line)
        if match is None:
            return
        if done == 0 or int(match[1]) < done:
            progress.finish()
            progress.start(f"{step.name}: compiling", int(match[2]), "files")
            done = 0
        progress.advance(int(match[1]) - done)
        done = int(match[1])

    progress.start(step.name, None, "files")
    try:
        ended = run_logged(
            step.command, stream, cwd=source, environment={**variables, **dict(step.environment)},
            on_line=watch,
        )  # fmt: skip
    finally:
        progress.finish()
    if not ended.succeeded:
        raise failure(ended, f"the step `{step.name}` failed", log)


def _variables(plan: EnvironmentPlan) -> dict[str, str]:
    variables = {key: value for key, value in plan.variables.items() if key not in _FOREIGN}
    folders = [str(plan.python.parent), *([str(plan.base / "bin")] if plan.base else [])]
    variables["PATH"] = os.pathsep.join([*folders, variables.get("PATH", os.defpath)])
    variables["VIRTUAL_ENV"] = str(plan.generation / "venv")
    variables["PYTHONNOUSERSITE"] = "1"
    variables["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    return variables


def _put_below(python: Path, base: Path) -> None:
    """Let an environment see the packages of another one, after its own."""
    [own] = [one for one in site_folders(python) if python.parent.parent in one.parents]
    lines = [
        f"import site; site.addsitedir({str(one)!r})"
        for one in site_folders(base.absolute() / "bin" / "python")
    ]
    (own / _LAYER).write_text("\n".join(lines) + "\n")


def _sweep(folder: Path) -> None:
    for generation in (folder / "generations").glob("*"):
        if not (generation / RECEIPT).is_file():
            shutil.rmtree(generation)


def _switch(folder: Path, generation: Path) -> None:
    current = folder / CURRENT
    before = current.resolve() if current.is_symlink() else None
    temporary = folder / f".{CURRENT}.tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(generation.relative_to(folder))
    temporary.replace(current)
    # The one of before stays: something may run from it, and it is the way back.
    for old in (folder / "generations").iterdir():
        if old != generation and old != before:
            shutil.rmtree(old, ignore_errors=True)


def _receipt(plan: EnvironmentPlan, found: Smoke, state: SourceState) -> dict[str, Any]:
    return {
        "format": RECEIPT_FORMAT,
        "tool": f"dsv4port {__version__}",
        "target": plan.target.name,
        "source": {
            "path": str(plan.checkout),
            "commit": state.commit,
            "tree": state.tree,
            "changed": list(state.changed),
            "files": state.files,
        },
        "base": str(plan.base) if plan.base is not None else None,
        "probes": [
            {"subject": one.subject, "version": one.version, "found": one.found}
            for one in plan.probes
        ],
        "steps": [
            {
                "name": one.name,
                "command": list(one.command),
                "environment": [f"{key}={value}" for key, value in one.environment],
            }
            for one in plan.steps
        ],
        "checks": [
            {
                "check": one.kind.value,
                "subject": one.subject,
                "outcome": one.outcome.value,
                "detail": one.detail,
            }
            for one in found.checks
        ],
        "extensions": [
            {"module": one.module, "path": one.path, "sha256": one.sha256, "size": one.size}
            for one in found.extensions
        ],
        "packages": list(found.packages),
    }
