"""Pytest plugin for the tests under `patchsets/*/tests`: which tree they run on.

The tests never import dsv4port itself. They get the patched tree as a fixture, so that the same
file runs on every pin, and on the bare pin to show that a fix test is red there.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TREE_VARIABLE = "DSV4PORT_TREE"
DEFAULT_TREE = Path("vendor") / "vllm"

MARKERS = (
    "network: needs a package index",
    "torch: needs torch",
    "gpu: needs a CUDA device",
    "musa: needs a MUSA device",
    "needs_weights: needs the checkpoint of a model",
    "fix: fails on the unpatched pin, passes on the patched tree",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vllm-tree",
        metavar="DIR",
        help=f"the vLLM tree under test; default: ${TREE_VARIABLE}, else vendor/vllm",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture(scope="session")
def vllm_tree(request: pytest.FixtureRequest) -> Path:
    """The tree under test: `--vllm-tree`, else the environment variable, else the checkout."""
    named = request.config.getoption("--vllm-tree") or os.environ.get(TREE_VARIABLE)
    tree = Path(named) if named else request.config.rootpath / DEFAULT_TREE
    if (tree / "vllm" / "__init__.py").is_file():
        return tree.resolve()
    if named:
        pytest.fail(f"{tree} is no vLLM tree: it has no vllm/__init__.py", pytrace=False)
    pytest.skip(f"no patched tree: give --vllm-tree, or apply a stack to {DEFAULT_TREE}")


@pytest.fixture(scope="session")
def pin(vllm_tree: Path) -> str:
    """The pin's name, as `v0.26.0`, from the version that the release wrote into its tree."""
    text = (vllm_tree / "vllm" / "_version.py").read_text()
    found = re.search(r"^__version__ = version = '([^']+)'", text, re.MULTILINE)
    if found is None:
        pytest.fail("vllm/_version.py names no version", pytrace=False)
    return f"v{found.group(1)}"


@pytest.fixture(scope="session")
def tree_module(vllm_tree: Path) -> Callable[[str], ModuleType]:
    """Load one module of the tree from its file: neither vLLM nor torch is imported for it.

    A file that is not there fails the test: on the bare pin that is the red of a fix test.
    """
    loaded: dict[str, ModuleType] = {}

    def load(path: str) -> ModuleType:
        if path not in loaded:
            if not (vllm_tree / path).is_file():
                pytest.fail(f"the tree has no {path}", pytrace=False)
            loaded[path] = _load(vllm_tree / path)
        return loaded[path]

    return load


def _load(path: Path) -> ModuleType:
    name = f"patched_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered, because pickle looks classes up by the name of their module.
    sys.modules[name] = module
    # The tree is under verification: a bytecode cache would be an untracked file in it.
    writes_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes_bytecode
    return module
