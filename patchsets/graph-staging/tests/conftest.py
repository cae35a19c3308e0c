"""Modules of the patched tree, loaded from their files: neither vLLM nor torch is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

TREE_VARIABLE = "DSV4PORT_TREE"
CHECKOUT = Path(__file__).parents[3] / "vendor" / "vllm"
POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
STAGING = "vllm/distributed/device_communicators/car_graph_staging.py"


@pytest.fixture(scope="session")
def vllm_tree() -> Path:
    """The patched tree: where the environment variable points, else the project's checkout."""
    named = os.environ.get(TREE_VARIABLE)
    if not named and not CHECKOUT.exists():
        pytest.skip(f"no patched tree: set {TREE_VARIABLE}, or apply a stack to vendor/vllm")
    tree = Path(named) if named else CHECKOUT
    missing = [path for path in (POLICY, STAGING) if not (tree / path).is_file()]
    if missing:
        source = TREE_VARIABLE if named else "the checkout"
        pytest.fail(
            f"{source} ({tree}) lacks {' and '.join(missing)}: apply graph-staging to it",
            pytrace=False,
        )
    return tree


@pytest.fixture(scope="session")
def policy(vllm_tree: Path) -> ModuleType:
    return _load(vllm_tree / POLICY)


@pytest.fixture(scope="session")
def staging(vllm_tree: Path) -> ModuleType:
    return _load(vllm_tree / STAGING)


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
