"""Which bytes of new blocks are zeroed: vLLM's own zeroer, kernel, managers and scheduler."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from zeroing_checks import CHECKS


@pytest.mark.torch
@pytest.mark.fix
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_in_vllm_itself(run_checks: Callable[[str], dict[str, str]], check: str) -> None:
    assert run_checks("zeroing_checks.py")[check] == ""
