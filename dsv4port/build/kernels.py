"""The native kernels of a patchset: from the manifest's rows to libraries and their receipt.

A kernel is compiled in a folder that holds its declared sources and headers and nothing else, with
an environment that holds nothing of the user's that changes what a compiler writes. So what was not
declared cannot be used, and the same inputs give the same bytes on every machine with the same
compilers. nvcc's temporary files get fixed names (``--keep``), because it writes them into the
library.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from dsv4port.build.kernel_cache import KernelCache
from dsv4port.build.nvcc import Nvcc
from dsv4port.build.process import failure, run_logged
from dsv4port.build.receipts import Artifact, KernelReceipt, write_receipt
from dsv4port.build.targets import Target
from dsv4port.build.workplace import exclusive_build, kernels_folder, staging
from dsv4port.errors import BadInputError, BuildFailedError, ToolchainError
from dsv4port.manifest.patchset import Kernel, KernelLanguage, Patchset
from dsv4port.manifest.project import Project
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.files import sha256_of
from dsv4port.upstream.progress import NO_PROGRESS, Progress

LOG = "build.log"

_KEY_FORMAT = 1
"""Part of every key: raise it when the way of compiling changes what comes out."""

_FLAGS = ("-shared", "-O3", "-std=c++17", "-Xcompiler", "-fPIC", "--cudart", "static")


@dataclass(frozen=True, slots=True)
class HostCompiler:
    """The C++ compiler that nvcc gives the host's part of a source to."""

    program: str
    version: str


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """How one kernel is to be compiled.

    Parameters:
        command: as it is run in a folder with the sources.
        cached: whether the cache has an entry for it.
    """

    kernel: Kernel
    architectures: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    command: tuple[str, ...]
    key: str
    cached: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A kernel that is not built for these targets, and why."""

    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelPlans:
    """What a build of a patchset's kernels will do."""

    patchset: str
    compiler: str
    plans: tuple[KernelPlan, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """A library, and whether it came out of the cache."""

    artifact: Artifact
    path: Path
    cached: bool


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """What a build made, and where its receipt and log are."""

    receipt: Path
    log: Path
    built: tuple[BuiltKernel, ...]


def host_compiler(variables: Mapping[str, str]) -> HostCompiler:
    """``NVCC_CCBIN`` where it is set, else the g++ on PATH.

    Raises:
        ToolchainError: there is none, or it does not say its version.
    """
    install = "install g++ (apt-get install g++), or set NVCC_CCBIN to a compiler nvcc supports"
    named = variables.get("NVCC_CCBIN") or "g++"
    program = shutil.which(named, path=variables.get("PATH"))
    if program is None:
        raise ToolchainError(f"nvcc needs a C++ compiler, and there is no {named}", fix=install)
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace", check=True,
            stdin=subprocess.DEVNULL, timeout=60, env={**variables, "LC_ALL": "C"},
        )  # fmt: skip
        return HostCompiler(program, done.stdout.splitlines()[0].strip())
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise ToolchainError(
            f"{program} does not say its version", fix=install, details=[str(error)]
        ) from error


def plan_kernels(
    project: Project,
    patchset: Patchset,
    targets: Sequence[Target],
    nvcc: Nvcc,
    host: HostCompiler,
    cache: KernelCache,
    *,
    jobs: int = 1,
) -> KernelPlans:
    """What compiling the patchset's CUDA kernels for these targets takes.

    Parameters:
        jobs: how many architectures nvcc works on at a time; the bytes do not depend on it.

    Raises:
        BadInputError: nothing is to be built, or a kernel names no exports.
    """
    wanted = [architecture for target in targets for architecture in target.architectures]
    if not wanted:
        raise BadInputError(
            f"{', '.join(target.name for target in targets)} has no CUDA architecture",
            fix="name a cuda target, such as cuda-sm90",
        )
    folder = project.patchset_folder(patchset.name)
    plans: list[KernelPlan] = []
    skipped: list[Skipped] = []
    for kernel in patchset.kernels:
        if kernel.language is not KernelLanguage.CUDA:
            skipped.append(Skipped(kernel.name, "Triton: checked with --check-triton"))
            continue
        if not kernel.exports:
            manifest = project.label(project.patchset_file(patchset.name))
            raise BadInputError(
                f"kernel {kernel.name} of {patchset.name} names no `exports`: nobody could call it",
                fix=f"name its C functions in {manifest}",
            )
        chosen = tuple(one for one in kernel.architectures if one.rstrip("af") in wanted)
        lacking = [one for one in wanted if one not in {arch.rstrip("af") for arch in chosen}]
        if lacking:
            skipped.append(
                Skipped(
                    kernel.name, f"not declared for {', '.join(f'sm_{one}' for one in lacking)}"
                )
            )
        if chosen:
            plans.append(_plan(folder, kernel, chosen, nvcc, host, cache, jobs))
    if not plans:
        raise BadInputError(
            f"{patchset.name} has no CUDA kernel for {', '.join(f'sm_{one}' for one in wanted)}",
            fix="see `kernels` in its manifest for what there is",
            details=[f"{one.kernel}: {one.reason}" for one in skipped],
        )
    compiler = f"nvcc {nvcc.version}, {host.version}"
    return KernelPlans(patchset.name, compiler, tuple(plans), tuple(skipped))


def _plan(
    folder: Path,
    kernel: Kernel,
    architectures: tuple[str, ...],
    nvcc: Nvcc,
    host: HostCompiler,
    cache: KernelCache,
    jobs: int,
) -> KernelPlan:
    codes = [
        f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        for architecture in architectures
    ]
    arguments = [*_FLAGS, *kernel.flags, *codes, "-o", "library.so", *kernel.sources]
    machine = [
        "--threads",
        str(jobs),
        "-ccbin",
        host.program,
        *(f"-L{one}" for one in nvcc.library_folders),
    ]
    sources = tuple((path, sha256_of(folder / path)) for path in kernel.sources + kernel.headers)
    decisive = {
        "exports": kernel.exports,
        "format": _KEY_FORMAT,
        "arguments": arguments,
        "sources": dict(sources),
        "nvcc": nvcc.version,
        "host": host.version,
    }
    key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    command = (str(nvcc.program), "--keep", "--keep-dir", "keep", *machine, *arguments)
    return KernelPlan(kernel, architectures, sources, command, key, cache.contains(key))


def build_kernels(
    project: Project,
    plans: KernelPlans,
    variables: Mapping[str, str],
    cache: KernelCache,
    *,
    progress: Progress = NO_PROGRESS,
) -> KernelBuild:
    """Compile what the cache does not have, then put the libraries and the receipt in place.

    The libraries of before stay, with their receipt, until all new ones are there.

    Raises:
        BuildFailedError: a source does not compile, or its library lacks an export.
        EnvironmentProblemError: no space, or the cache cannot be written.
    """
    folder = kernels_folder(project, plans.patchset)
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_build(project, f"kernels-{plans.patchset}", progress), staging(folder) as work:
        log = folder / LOG
        made: list[tuple[KernelPlan, Path, bool]] = []
        progress.start(f"compiling {plans.patchset}", len(plans.plans), "files")
        try:
            with log.open("wb") as stream:
                for number, plan in enumerate(plans.plans):
                    room = work / str(number)
                    made.append((plan, *_library(project, plans, plan, room, stream, variables,
                                                 cache, log, progress)))  # fmt: skip
                    progress.advance(1)
        finally:
            progress.finish()
        built = tuple(_publish(folder, *one) for one in made)
        artifacts = tuple(one.artifact for one in built)
        receipt = write_receipt(folder, KernelReceipt(plans.patchset, plans.compiler, artifacts))
        names = {one.file for one in artifacts}
        for old in folder.glob("*.so"):
            if old.name not in names:
                old.unlink()
        return KernelBuild(receipt, log, built)


def _library(
    project: Project,
    plans: KernelPlans,
    plan: KernelPlan,
    room: Path,
    log: BinaryIO,
    variables: Mapping[str, str],
    cache: KernelCache,
    log_path: Path,
    progress: Progress,
) -> tuple[Path, bool]:
    """The library of one kernel, and whether the cache had it."""
    hit = cache.find(plan.key)
    if isinstance(hit, str):
        progress.notice(
            f"the cache's library of {plan.kernel.name} is damaged ({hit}); it is compiled anew"
        )
    elif hit is not None:
        log.write(f"{plan.kernel.name}: from the cache, key {plan.key}\n".encode())
        return hit.library, True
    room.mkdir()
    (room / "keep").mkdir()
    (room / "tmp").mkdir()
    patchset = project.patchset_folder(plans.patchset)
    for path, digest in plan.sources:
        target = room / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(patchset / path, target)
        if sha256_of(target) != digest:
            raise BadInputError(
                f"{plans.patchset}/{path} changed while it was being built", fix="run it again"
            )
    log.write(f"$ {' '.join(plan.command)}\n".encode())
    ended = run_logged(
        plan.command, log, cwd=room, environment=_compiler_environment(variables, room)
    )
    library = room / "library.so"
    name = f"kernel {plan.kernel.name} of {plans.patchset}"
    if not ended.succeeded:
        raise failure(ended, f"{name} does not compile", log_path)
    if not library.is_file():
        raise BuildFailedError(f"{name}: nvcc ended well and wrote no library", fix="see its log")
    _check_exports(library, plan.kernel, name)
    cache.store(plan.key, library)
    return library, False


def _compiler_environment(variables: Mapping[str, str], room: Path) -> dict[str, str]:
    kept = {key: variables[key] for key in ("PATH", "HOME", "LD_LIBRARY_PATH") if key in variables}
    return {**kept, "LC_ALL": "C", "TMPDIR": str(room / "tmp"), "SOURCE_DATE_EPOCH": "0"}


_LOAD = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
missing = [name for name in sys.argv[2:] if not hasattr(library, name)]
sys.exit("it does not export " + ", ".join(missing) if missing else 0)
"""


def _check_exports(library: Path, kernel: Kernel, name: str) -> None:
    """Load the library in a process of its own: that takes no GPU, as the runtime is inside."""
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(library), *kernel.exports], capture_output=True,
        text=True, errors="replace", stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        raise BuildFailedError(
            f"{name}: {said[-1]}",
            fix='check `exports`, and that the functions are extern "C" and visible',
        )


def _publish(folder: Path, plan: KernelPlan, library: Path, cached: bool) -> BuiltKernel:
    digest = sha256_of(library)
    # The name says what is inside, so a library that is in use is never overwritten.
    target = folder / f"{plan.kernel.name}-{digest[:12]}.so"
    if not target.is_file() or sha256_of(target) != digest:
        temporary = folder / f".{target.name}.tmp"
        try:
            shutil.copyfile(library, temporary)
            temporary.chmod(0o755)
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    artifact = Artifact(
        kernel=plan.kernel.name, file=target.name, sha256=digest, size=target.stat().st_size,
        architectures=plan.architectures, exports=plan.kernel.exports, key=plan.key,
        sources=plan.sources,
    )  # fmt: skip
    return BuiltKernel(artifact, target, cached)
