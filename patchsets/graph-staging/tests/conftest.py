"""Modules of the patched tree, loaded from their files: neither vLLM nor torch is imported."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
STAGING = "vllm/distributed/device_communicators/car_graph_staging.py"

# A machine that only lends its device may have torch and pytest alone.
if importlib.util.find_spec("hypothesis") is None:
    collect_ignore = [
        "test_capture_mode.py",
        "test_contract_guard.py",
        "test_runner_v2.py",
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


def load_beside(name: str) -> ModuleType:
    """A file of this folder that is no test and no package."""
    full_name = f"graph_staging_{name}"
    spec = importlib.util.spec_from_file_location(full_name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """`harness.py`."""
    return load_beside("harness")


@pytest.fixture(scope="session")
def deployment() -> ModuleType:
    """`deployment.py`."""
    return load_beside("deployment")


@pytest.fixture(scope="module")
def vllm(vllm_tree: Path, deployment: ModuleType) -> Iterator[Any]:
    """The tree's modules, imported as a package; without its third parties the tests skip."""
    with deployment.imported(vllm_tree) as modules:
        yield modules


@pytest.fixture
def deploy(
    vllm: Any, harness: ModuleType, deployment: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Builds deployments with runner V1; arguments are changes of the config."""
    kind = deployment.Deployment
    with deployment.deployments(vllm, harness, monkeypatch, kind) as build:
        yield build


@pytest.fixture
def deploy_v2(
    vllm: Any,
    harness: ModuleType,
    deployment: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    vllm_tree: Path,
) -> Iterator[Any]:
    """The same with runner V2, on pins where it profiles by capturing."""
    if not harness.runner_v2_profiles(vllm_tree):
        pytest.skip("runner V2 does not capture while it profiles here, and is not staged")
    kind = deployment.DeploymentV2
    with deployment.deployments(vllm, harness, monkeypatch, kind) as build:
        yield build
