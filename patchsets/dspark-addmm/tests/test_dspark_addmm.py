"""Drafted tokens, logits and confidences of vLLM's own speculator and Markov head."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from addmm_checks import CHECKS

# True on the bare pins too: it guards what must stay as it is.
NOT_A_FIX = {"a_model_without_the_method_gets_an_addition"}


@pytest.mark.torch
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(name, marks=() if name in NOT_A_FIX else (pytest.mark.fix,), id=name)
        for name in (check.__name__ for check in CHECKS)
    ],
)
def test_in_vllm_itself(run_checks: Callable[[str], dict[str, str]], check: str) -> None:
    assert run_checks("addmm_checks.py")[check] == ""
