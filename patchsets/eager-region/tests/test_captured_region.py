"""What a captured graph holds, and what its replays leave out: vLLM's own layer and capture."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

# What the tree's modules import; a machine that only lends its device may not have all of it.
NEEDED = ("torch", "triton", "transformers", "pydantic")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
if not MISSING:
    from captured_region_checks import CHECKS, NOT_A_FIX
else:
    CHECKS, NOT_A_FIX = {}, set()

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def results(run_checks: Callable[..., dict[str, str]]) -> dict[str, str]:
    return run_checks("captured_region_checks.py", VLLM_USE_BREAKABLE_CUDAGRAPH="1")


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(name, marks=() if name in NOT_A_FIX else (pytest.mark.fix,), id=name)
        for name in CHECKS
    ],
)
def test_in_vllm_itself(results: dict[str, str], check: str) -> None:
    assert results[check] == ""
