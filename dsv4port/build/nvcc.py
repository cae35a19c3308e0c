"""Finding nvcc: ``CUDA_HOME``, then PATH, then the ``nvidia-cuda-nvcc`` wheels."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from dsv4port.errors import ToolchainError
from dsv4port.quick_dataclass import dataclass

_INSTALL = (
    "install the CUDA toolkit and set CUDA_HOME, or `pip install nvidia-cuda-nvcc "
    "nvidia-cuda-runtime nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl`"
)
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)")
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_TIMEOUT = 60.0


class Origin(Enum):
    """What led to an nvcc."""

    CUDA_HOME = "CUDA_HOME"
    """The environment variable."""
    PATH = "PATH"
    """The search path."""
    WHEEL = "wheel"
    """An installed Python package."""


@dataclass(frozen=True, slots=True)
class Nvcc:
    """A CUDA compiler that answered.

    Parameters:
        program: what is run.
        home: the root of the toolkit, with ``include`` and ``lib64`` or ``lib``.
        version: for example ``13.0.88``.
    """

    program: Path
    home: Path
    version: str
    origin: Origin

    @property
    def library_folders(self) -> tuple[Path, ...]:
        """Folders nvcc would not look into by itself: wheels have ``lib`` and no ``lib64``."""
        if (self.home / "lib64").is_dir() or not (self.home / "lib").is_dir():
            return ()
        return (self.home / "lib",)


def find_nvcc(environment: Mapping[str, str], site_folders: Iterable[Path] = ()) -> Nvcc:
    """The nvcc to use.

    Parameters:
        site_folders: where Python packages are installed.

    Raises:
        ToolchainError: there is none, CUDA_HOME is set and has none, or it does not run.
    """
    home = environment.get("CUDA_HOME")
    if home:
        program = Path(home) / "bin" / "nvcc"
        if not os.access(program, os.X_OK):
            # Taking another one would build with a toolkit that the user did not name.
            raise ToolchainError(
                f"CUDA_HOME is {home}, and there is no bin/nvcc in it",
                fix="set CUDA_HOME to the toolkit's folder, or unset it to search PATH",
            )
        return _asked(program, Origin.CUDA_HOME)
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        program = Path(folder or ".") / "nvcc"
        if program.is_file() and os.access(program, os.X_OK):
            return _asked(program.absolute(), Origin.PATH)
    for folder_of_packages in site_folders:
        for program in sorted(folder_of_packages.glob("nvidia/*/bin/nvcc"), reverse=True):
            if os.access(program, os.X_OK):
                return _asked(program, Origin.WHEEL)
    raise ToolchainError(
        "nvcc was not found: neither by CUDA_HOME, nor on PATH, nor among Python's packages",
        fix=_INSTALL,
    )


def _asked(program: Path, origin: Origin) -> Nvcc:
    match = _RELEASE.search(_answer(program, "--version"))
    if match is None:
        raise ToolchainError(f"{program} does not say its version", fix=_INSTALL)
    # What is on PATH may be a script that calls the real one, so its own folder says nothing.
    top = _TOP.search(_answer(program, "--dryrun", "-E", "-x", "cu", os.devnull))
    home = Path(top.group(1).strip()) if top is not None else program.resolve().parent.parent
    return Nvcc(program, Path(os.path.normpath(home)), match.group(1), origin)


def _answer(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{program} cannot be run: {error}", fix=_INSTALL) from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise ToolchainError(
            f"`{program} {arguments[0]}` ended with exit code {done.returncode}",
            fix=_INSTALL, details=said,
        )  # fmt: skip
    return done.stdout + done.stderr
