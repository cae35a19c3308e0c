"""Kernels on the GPU where there is one, else on the CPU in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from kernel_tree import KernelTree


@pytest.fixture(scope="session")
def device() -> str:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            pytest.fail("triton was imported before TRITON_INTERPRET=1 was set", pytrace=False)
        os.environ["TRITON_INTERPRET"] = "1"
    return "cpu"


@pytest.fixture(scope="session")
def gpu(device: str) -> str:
    if device != "cuda":
        pytest.skip("no CUDA device")
    return device


@pytest.fixture(scope="session")
def kernels(vllm_tree: Path, device: str) -> KernelTree:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    from kernel_tree import KernelTree

    return KernelTree(vllm_tree)


@pytest.fixture(scope="session")
def kernel_module(kernels: KernelTree) -> Callable[[str], ModuleType]:
    """A module of the tree. One that is not there fails the test: the red of a fix."""

    def load(name: str) -> ModuleType:
        if not kernels.has(name):
            pytest.fail(f"the tree has no {name}", pytrace=False)
        return kernels.module(name)

    return load
