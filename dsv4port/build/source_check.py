"""Compile CUDA sources of a tree one by one, as far as the headers at hand allow.

A whole build of vLLM needs sources that its CMake fetches. Most single files need torch's headers
and CUDA's, and an error in one of them is found in seconds. Macros that vLLM's CMake sets for
single files are not set here, so code behind them is not seen.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from dsv4port.build.nvcc import Nvcc
from dsv4port.build.process import Ended, run_logged
from dsv4port.errors import BadInputError, ToolchainError
from dsv4port.manifest.values import suggestion
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.progress import NO_PROGRESS, Progress

SOURCES = (".cu", ".cpp", ".cc")
HEADERS = (".cuh", ".h", ".hpp", ".inl")

_STAND_INS = Path(__file__).with_name("stand_ins")
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_STANDARD = re.compile(r"set\s*\(\s*CMAKE_CUDA_STANDARD\s+(\d+)")
_TARGET_VERSION = re.compile(r"TORCH_TARGET_VERSION=(0x[0-9A-Fa-f]+ULL)")
_FLAGS = ("-O1", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-DENABLE_FP8", "-DUSE_CUDA",
          "-DTORCH_EXTENSION_NAME=_C", "-Xcompiler", "-fPIC")  # fmt: skip

_OTHER_DEVICES = {"rocm": "ROCm", "cpu": "the CPU", "xpu": "XPU"}
_FROM_ELSEWHERE = (
    ("cutlass/", "CUTLASS: set VLLM_CUTLASS_SRC_DIR, or install nvidia-cutlass"),
    ("cute/", "CUTLASS: set VLLM_CUTLASS_SRC_DIR, or install nvidia-cutlass"),
    ("cublas", "cuBLAS: install the nvidia-cublas wheel"),
    ("cusparse", "cuSPARSE: install the nvidia-cusparse wheel"),
    ("cusolver", "cuSOLVER: install the nvidia-cusolver wheel"),
    ("cudnn", "cuDNN: install the nvidia-cudnn wheel"),
    ("nccl", "NCCL: install the nvidia-nccl wheel"),
    ("hip/", "ROCm"),
    ("deep_gemm/", "DeepGEMM, which vLLM's CMake fetches"),
    ("qutlass/", "QuTLASS, which vLLM's CMake fetches"),
)


class SourceOutcome(Enum):
    """What became of a file."""

    COMPILES = "compiles"
    """It does."""
    FAILS = "fails"
    """It does not; the detail has the compiler's words."""
    NOT_CHECKABLE = "not-checkable"
    """It needs something that is not here; the detail names it. Never counted as a pass."""


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """One file for one architecture."""

    file: str
    architecture: str
    outcome: SourceOutcome
    detail: str


@dataclass(frozen=True, slots=True)
class Headers:
    """Folders with headers. ``stand_in`` says whether cuBLAS's are only stood in for."""

    folders: tuple[Path, ...]
    cutlass: Path | None
    stand_in: bool


def cuda_sources(tree: Path) -> list[str]:
    """Every CUDA source of a tree."""
    return sorted(path.relative_to(tree).as_posix() for path in (tree / "csrc").rglob("*.cu"))


def chosen_sources(tree: Path, files: Iterable[str]) -> list[str]:
    """The sources to compile for some files: themselves, or for a header all that include it.

    Raises:
        BadInputError: a file is not there, or is neither source nor header.
    """
    sources = [
        path.relative_to(tree).as_posix()
        for path in sorted((tree / "csrc").rglob("*"))
        if path.suffix in SOURCES + HEADERS and path.is_file()
    ]
    found: set[str] = set()
    includes: dict[str, set[str]] | None = None
    for file in files:
        if not (tree / file).is_file():
            raise BadInputError(
                f"{tree} has no {file}{suggestion(file, sources)}",
                fix="name files relative to the tree",
            )
        if file.endswith(SOURCES):
            found.add(file)
        elif file.endswith(HEADERS):
            if includes is None:
                includes = _includes(tree, sources)
            found |= _users(file, includes)
        else:
            raise BadInputError(
                f"{file} is no C++ or CUDA file", fix=f"name {', '.join(SOURCES + HEADERS)} files"
            )
    return sorted(found)


def find_headers(
    python: Path, nvcc: Nvcc, variables: Mapping[str, str], packages: Sequence[Path]
) -> Headers:
    """Where torch's, Python's, CUTLASS's and cuBLAS's headers are.

    Raises:
        ToolchainError: the interpreter has no torch.
    """
    code = (
        "import importlib.util, json, sysconfig; s = importlib.util.find_spec('torch');"
        "print(json.dumps([s.submodule_search_locations[0] if s else None,"
        " sysconfig.get_path('include')]))"
    )
    try:
        done = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        torch, include = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ToolchainError(
            f"{python} does not run as a Python interpreter", fix="name another with --python",
            details=[str(error)],
        ) from error  # fmt: skip
    if torch is None:
        raise ToolchainError(
            f"{python} has no torch, whose headers the sources include",
            fix="name an interpreter that has torch with --python; the CPU wheel will do",
        )
    below = Path(torch) / "include"
    folders = [below, below / "torch" / "csrc" / "api" / "include", Path(include)]
    wheels = [one for folder in packages for one in sorted(folder.glob("nvidia/*/include"))]
    has_cublas = [
        one for one in [nvcc.home / "include", *wheels] if (one / "cublas_v2.h").is_file()
    ]
    stand_in = not has_cublas
    folders += wheels + ([_STAND_INS] if stand_in else [])
    return Headers(tuple(folders), _cutlass(variables, packages), stand_in)


def check_sources(
    tree: Path,
    files: Sequence[str],
    architectures: Sequence[str],
    nvcc: Nvcc,
    headers: Headers,
    variables: Mapping[str, str],
    work: Path,
    log: BinaryIO,
    *,
    progress: Progress = NO_PROGRESS,
) -> list[SourceCheck]:
    """Compile each file for each architecture, one after the other.

    Parameters:
        architectures: compute capabilities without the dot; their ``a`` variants are compiled,
            as vLLM does.
        work: an empty folder for what comes out.
    """
    checks = []
    cmake = tree / "CMakeLists.txt"
    settings = cmake.read_text("utf-8", "replace") if cmake.is_file() else ""
    progress.start("compiling sources", len(files) * len(architectures), "files")
    try:
        for file in files:
            for architecture in architectures:
                checks.append(
                    _check(tree, file, architecture, settings, nvcc, headers, variables, work, log)
                )
                progress.advance(1)
    finally:
        progress.finish()
    return checks


def _check(
    tree: Path,
    file: str,
    architecture: str,
    settings: str,
    nvcc: Nvcc,
    headers: Headers,
    variables: Mapping[str, str],
    work: Path,
    log: BinaryIO,
) -> SourceCheck:
    for part in file.split("/")[:-1]:
        if part in _OTHER_DEVICES:
            detail = f"it is for {_OTHER_DEVICES[part]}"
            return SourceCheck(file, architecture, SourceOutcome.NOT_CHECKABLE, detail)
    standard = _STANDARD.search(settings)
    version = _TARGET_VERSION.search(settings)
    folders = [tree, tree / "csrc", *headers.folders]
    if headers.cutlass is not None:
        folders += [headers.cutlass / "include", headers.cutlass / "tools" / "util" / "include"]
    command = [
        str(nvcc.program), "-c", file, "-o", str(work / "out.o"), *_FLAGS,
        f"-std=c++{standard[1] if standard else 17}",
        *([f"-DTORCH_TARGET_VERSION={version[1]}"] if version else []),
        f"-gencode=arch=compute_{architecture}a,code=sm_{architecture}a",
        *(f"-I{one}" for one in folders[:2]), *(f"-isystem={one}" for one in folders[2:]),
    ]  # fmt: skip
    log.write(f"$ {' '.join(command)}\n".encode())
    errors: list[str] = []

    def hear(line: str) -> None:
        if "error" in line and len(errors) < 3:
            errors.append(line.strip())

    environment = {**variables, "LC_ALL": "C", "TMPDIR": str(work)}
    ended = run_logged(command, log, cwd=tree, environment=environment, on_line=hear)
    outcome, detail = _judged(ended, errors)
    if outcome is SourceOutcome.COMPILES:
        size = (work / "out.o").stat().st_size
        detail = f"{size / 1024:.0f} KiB"
        if headers.stand_in:
            detail += ", with a stand-in for cuBLAS's header"
    return SourceCheck(file, architecture, outcome, detail)


def _judged(ended: Ended, errors: Sequence[str]) -> tuple[SourceOutcome, str]:
    if ended.succeeded:
        return SourceOutcome.COMPILES, ""
    for line in (*errors, *ended.tail):
        match = _MISSING.search(line)
        if match is None:
            continue
        for start, whose in _FROM_ELSEWHERE:
            if match[1].startswith(start):
                return SourceOutcome.NOT_CHECKABLE, f"it needs {match[1]} of {whose}"
    return SourceOutcome.FAILS, "; ".join(errors or ended.tail[-3:])


def _cutlass(variables: Mapping[str, str], packages: Sequence[Path]) -> Path | None:
    named = variables.get("VLLM_CUTLASS_SRC_DIR")
    candidates = [Path(named)] if named else []
    for folder in packages:
        candidates += [folder / "flashinfer/data/cutlass", folder / "cutlass_library/source"]
    return next((one for one in candidates if (one / "include/cutlass").is_dir()), None)


def _includes(tree: Path, sources: Sequence[str]) -> dict[str, set[str]]:
    """File name of a header to the files that include one of that name."""
    found: dict[str, set[str]] = {}
    for file in sources:
        for name in _INCLUDE.findall((tree / file).read_text("utf-8", "replace")):
            found.setdefault(name.rsplit("/", 1)[-1], set()).add(file)
    return found


def _users(header: str, includes: Mapping[str, set[str]]) -> set[str]:
    """The sources that include a header, however indirectly; too many rather than too few."""
    seen: set[str] = set()
    waiting = [header]
    while waiting:
        for file in includes.get(waiting.pop().rsplit("/", 1)[-1], set()) - seen:
            seen.add(file)
            if file.endswith(HEADERS):
                waiting.append(file)
    return {file for file in seen if file.endswith(SOURCES)}
