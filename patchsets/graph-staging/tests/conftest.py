"""Modules of the patched tree, loaded from their files: neither vLLM nor torch is imported."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
STAGING = "vllm/distributed/device_communicators/car_graph_staging.py"


@pytest.fixture(scope="session")
def policy(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(POLICY)


@pytest.fixture(scope="session")
def staging(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(STAGING)
