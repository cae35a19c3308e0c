"""The model builds no pool, and what used it works without: vLLM's own model, layer and kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pool_checks import CHECKS

FIX = {"the_model_builds_no_pool"}


@pytest.mark.torch
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(name, marks=(pytest.mark.fix,) if name in FIX else (), id=name)
        for name in (check.__name__ for check in CHECKS)
    ],
)
def test_in_vllm_itself(run_checks: Callable[[str], dict[str, str]], check: str) -> None:
    assert run_checks("pool_checks.py")[check] == ""
