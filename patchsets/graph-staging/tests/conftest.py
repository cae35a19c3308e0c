"""Modules of the patched tree, loaded from their files: neither vLLM nor torch is imported."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
STAGING = "vllm/distributed/device_communicators/car_graph_staging.py"

# A machine that only lends its device may have torch and pytest alone.
if importlib.util.find_spec("hypothesis") is None:
    collect_ignore = [
        "test_capture_mode.py",
        "test_contract_guard.py",
        "test_staging_arena.py",
        "test_staging_plan.py",
    ]
    warnings.warn(f"without hypothesis not collected: {', '.join(collect_ignore)}", stacklevel=1)


@pytest.fixture(scope="session")
def policy(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(POLICY)


@pytest.fixture(scope="session")
def staging(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(STAGING)


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """`harness.py`, which is no test and no package."""
    name = "graph_staging_harness"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("harness.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
