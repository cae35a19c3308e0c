"""What building an environment takes: commands, variables, and what the machine has of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsv4port.build.probes import Place, ProbeResult, probe_all
from dsv4port.build.targets import FolderProbe, Target
from dsv4port.build.workplace import target_folder
from dsv4port.errors import BadInputError, ToolchainError
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a build, as it is run in the copy of the tree."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """What building an environment takes.

    Parameters:
        base: the environment whose packages are used, None to install requirements.
        replaced: variables of the caller's whose value the target replaces.
        compiler_cache: ``ccache`` or ``sccache`` where one is on PATH.
        packages_check: the command that checks whether packages fit together.
    """

    target: Target
    checkout: Path
    generation: Path
    base: Path | None
    steps: tuple[Step, ...]
    variables: Mapping[str, str]
    probes: tuple[ProbeResult, ...]
    replaced: tuple[str, ...]
    compiler_cache: str | None
    packages_check: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.generation / "venv" / "bin" / "python"


def plan_environment(
    project: Project,
    target: Target,
    checkout: Path,
    variables: Mapping[str, str],
    *,
    jobs: int,
    base: Path | None = None,
) -> EnvironmentPlan:
    """Say what building `checkout` for `target` takes, and what the machine has of it.

    Raises:
        BadInputError: the tree lacks a requirement file, or the base is no environment.
        ToolchainError: the base's interpreter does not run.
    """
    folder = target_folder(project, target.name)
    generation = folder / "generations" / str(_next(folder))
    base_python = _python_of(base)
    place = Place(variables, base_python, () if base is None else (base / "bin",))
    probes = tuple(probe_all(target, place))
    python = generation / "venv" / "bin" / "python"
    uv = shutil.which("uv", path=variables.get("PATH"))
    # uv looks at the environment's own packages only, so it would miss those of a base.
    pip = (
        (uv, "pip", "{}", "--python", str(python))
        if uv is not None and base is None
        else (str(python), "-m", "pip", "{}")
    )
    own = _environment(target, folder, generation, place, jobs)
    launcher = _compiler_cache(variables)
    extra = _launcher_variables(launcher, generation)
    steps = [
        Step("environment", (str(base_python or sys.executable), "-m", "venv",
                             *(("--without-pip",) if base is not None else ()),
                             str(generation / "venv"))),
    ]  # fmt: skip
    if base is None and target.requirements:
        lacking = [path for path in target.requirements if not (checkout / path).is_file()]
        if lacking:
            raise BadInputError(
                f"{checkout} has no {' and no '.join(lacking)}",
                fix="name a vLLM tree with --checkout, or an environment with --base",
            )
        named = [word for path in target.requirements for word in ("-r", path)]
        index = ("--extra-index-url", target.package_index) if target.package_index else ()
        steps.append(Step("packages", (*_install(pip), *index, *named)))
    steps.append(Step("build", (*_install(pip), *target.command), (*own, *extra)))
    replaced = tuple(
        f"{key}={variables[key]}" for key, value in own if variables.get(key, value) != value
    )
    return EnvironmentPlan(
        target, checkout, generation, base, tuple(steps), dict(variables), probes, replaced,
        launcher, tuple(part if part != "{}" else "check" for part in pip),
    )  # fmt: skip


def _environment(
    target: Target, folder: Path, generation: Path, place: Place, jobs: int
) -> tuple[tuple[str, str], ...]:
    values = {"jobs": str(jobs), "source": str(generation / "source"), "deps": str(folder / "deps")}
    if any("{cuda_home}" in value for _, value in target.environment):
        try:
            values["cuda_home"] = str(place.find_nvcc().home)
        except ToolchainError:
            # The probe for nvcc says it with the way out; a plan shows what is open.
            values["cuda_home"] = "<CUDA toolkit>"
    for probe in target.probes:
        if isinstance(probe, FolderProbe) and probe.variable == "MUSA_HOME":
            values["musa_home"] = place.variables.get("MUSA_HOME") or probe.default
    return tuple((key, value.format_map(values)) for key, value in target.environment)


def _install(pip: Sequence[str]) -> tuple[str, ...]:
    return tuple(part if part != "{}" else "install" for part in pip)


def _compiler_cache(variables: Mapping[str, str]) -> str | None:
    for name in ("sccache", "ccache"):
        if shutil.which(name, path=variables.get("PATH")) is not None:
            return name
    return None


def _launcher_variables(launcher: str | None, generation: Path) -> tuple[tuple[str, str], ...]:
    if launcher is None:
        return ()
    own = [(f"CMAKE_{one}_COMPILER_LAUNCHER", launcher) for one in ("C", "CXX", "CUDA")]
    if launcher == "ccache":
        # Each generation has another folder; without these nothing would be found again.
        own += [("CCACHE_BASEDIR", str(generation)), ("CCACHE_NOHASHDIR", "1")]
    return tuple(own)


def _python_of(base: Path | None) -> Path | None:
    if base is None:
        return None
    python = base.absolute() / "bin" / "python"
    if not os.access(python, os.X_OK):
        raise BadInputError(
            f"{base} is no virtual environment: it has no bin/python", fix="name another one"
        )
    return python


def _next(folder: Path) -> int:
    numbers = [int(one.name) for one in (folder / "generations").glob("[0-9]*")]
    return max(numbers, default=0) + 1
