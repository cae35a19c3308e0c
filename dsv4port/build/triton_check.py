"""Compile a patchset's Triton kernels ahead of time, for each architecture, without a GPU.

The kernels live in the patched tree and are made by its own code, so the patchset brings a program
that knows them: ``PROGRAM TREE ARCHITECTURE`` prints one JSON object, group to variant to the size
of what came out in bytes. It runs in an interpreter that has torch and Triton, and must not see a
GPU: a check that depends on one would say something else elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from dsv4port.build.process import Ended, run_logged
from dsv4port.build.targets import Target
from dsv4port.errors import BadInputError
from dsv4port.manifest.patchset import Kernel, KernelLanguage, Patchset
from dsv4port.quick_dataclass import dataclass
from dsv4port.upstream.progress import NO_PROGRESS, Progress


class TritonOutcome(Enum):
    """What became of a kernel for one architecture."""

    COMPILES = "compiles"
    """Every variant came out."""
    FAILS = "fails"
    """The program failed, or a variant came out empty."""
    NOT_DECLARED = "not-declared"
    """The manifest does not name the architecture."""


@dataclass(frozen=True, slots=True)
class TritonCheck:
    """One program for one architecture: how many variants compiled, how large they are in all."""

    kernel: str
    architecture: str
    outcome: TritonOutcome
    variants: int = 0
    size: int = 0
    detail: tuple[str, ...] = ()


def triton_kernels(patchset: Patchset) -> tuple[Kernel, ...]:
    """The patchset's rows in Triton.

    Raises:
        BadInputError: there is none.
    """
    rows = tuple(one for one in patchset.kernels if one.language is KernelLanguage.TRITON)
    if not rows:
        raise BadInputError(
            f"{patchset.name} declares no Triton kernels",
            fix="add a row with `language: triton` to `kernels`, see docs/build.md",
        )
    return rows


def check_triton(
    patchset: Patchset,
    folder: Path,
    targets: Sequence[Target],
    tree: Path,
    python: Path,
    variables: Mapping[str, str],
    log: BinaryIO,
    *,
    progress: Progress = NO_PROGRESS,
) -> list[TritonCheck]:
    """Compile every Triton row for every architecture of the targets.

    Parameters:
        folder: the patchset's folder.
        tree: the patched tree.
        python: has torch and Triton.

    Raises:
        ToolchainError: the interpreter cannot be started.
    """
    wanted = [architecture for target in targets for architecture in target.architectures]
    environment = {
        **{key: value for key, value in variables.items() if key != "TRITON_INTERPRET"},
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    checks = []
    rows = triton_kernels(patchset)
    progress.start(f"compiling {patchset.name} for Triton", len(rows) * len(wanted), "files")
    try:
        for kernel in rows:
            declared = {one.rstrip("af") for one in kernel.architectures}
            for architecture in wanted:
                if architecture not in declared:
                    checks.append(
                        TritonCheck(kernel.name, architecture, TritonOutcome.NOT_DECLARED)
                    )
                    continue
                program = folder / kernel.sources[0]
                lines: list[str] = []
                ended = run_logged(
                    [str(python), str(program), str(tree), architecture], log,
                    cwd=program.parent, environment=environment, on_line=lines.append,
                )  # fmt: skip
                checks.append(_judged(kernel.name, architecture, ended, lines))
                progress.advance(1)
    finally:
        progress.finish()
    return checks


def _judged(kernel: str, architecture: str, ended: Ended, lines: Sequence[str]) -> TritonCheck:
    def failed(*detail: str) -> TritonCheck:
        return TritonCheck(kernel, architecture, TritonOutcome.FAILS, detail=detail)

    if not ended.succeeded:
        return failed(*ended.tail)
    try:
        groups = json.loads(lines[-1])
        sizes = {
            f"{group}: {variant}": int(size)
            for group, variants in groups.items()
            for variant, size in variants.items()
        }
    except (IndexError, ValueError, AttributeError, TypeError):
        return failed("its last line is not a JSON object of sizes", *ended.tail[-3:])
    empty = [name for name, size in sizes.items() if size <= 0]
    if empty or not sizes:
        return failed(*(empty or ["it compiled nothing"]))
    return TritonCheck(
        kernel, architecture, TritonOutcome.COMPILES, len(sizes), sum(sizes.values())
    )
