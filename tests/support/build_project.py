"""Toolchains that are not there: an nvcc made of the C compiler, and environments of few files.

The stand-in for nvcc answers what dsv4port asks, and compiles a kernel's source as C, so a library
comes out that loads. What else it does, a file beside it says: see :class:`FakeCuda`.
"""

from __future__ import annotations

import shutil
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.synthetic import Change, SyntheticProject

NEEDS_CC = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("g++") is None, reason="gcc or g++ is missing"
)

SOURCE = b'#include "scale.h"\nint scale_abi(void) { return SCALE_ABI; }\n'
HEADER = b"#define SCALE_ABI 3\nint scale_abi(void);\n"

_NVCC = """#!/bin/sh
here=$(dirname "$0")
case "$1" in
  --version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0 ;;
  --dryrun) echo "#\\$ TOP=$here/.." >&2; exit 0 ;;
esac
echo called >> "$here/calls"
for source; do :; done
[ -f "$here/behaviour" ] && . "$here/behaviour"
exec gcc -shared -fPIC -x c -I. -o library.so "$source"
"""


@dataclass
class FakeCuda:
    """A toolkit whose nvcc is a shell script."""

    home: Path

    @classmethod
    def make(cls, home: Path) -> FakeCuda:
        (home / "bin").mkdir(parents=True)
        (home / "include").mkdir()
        nvcc = home / "bin" / "nvcc"
        nvcc.write_text(_NVCC)
        nvcc.chmod(0o755)
        return cls(home)

    def behave(self, script: str) -> None:
        """Shell commands that run before the compiler; empty to behave well again."""
        (self.home / "bin" / "behaviour").write_text(script)

    @property
    def calls(self) -> int:
        """How many times something was compiled."""
        file = self.home / "bin" / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0


def add_kernel(project: SyntheticProject, **row: Any) -> Path:
    """Give the demo project a patchset `gamma` with one kernel; returns its folder."""
    kernel = {
        "name": "scale",
        "sources": ["kernels/scale.cu"],
        "headers": ["kernels/scale.h"],
        "architectures": ["90", "120a"],
        "exports": ["scale_abi"],
        **row,
    }
    folder = project.root / "patchsets" / "gamma"
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "kernels" / "scale.cu").write_bytes(SOURCE)
    (folder / "kernels" / "scale.h").write_bytes(HEADER)
    project.add_patchset(
        "gamma", "v1.0.0", [Change("Add", {"gamma.py": b"x = 1\n"})], kernels=[kernel]
    )
    return folder


def make_base(folder: Path) -> Path:
    """A virtual environment that sees this one's packages, with stand-ins for what vLLM wants."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = list(folder.glob("lib/python*/site-packages"))
    own = sysconfig.get_path("purelib")
    (packages / "layer.pth").write_text(f"import site; site.addsitedir({own!r})\n")
    (packages / "torch.py").write_text("__version__ = '2.11.0'\n")
    (packages / "setuptools_scm.py").write_text("")
    return folder
