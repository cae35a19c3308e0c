"""Pytest plugin for vLLM's own tests on a machine without an accelerator.

Their clean-up after every test frees the accelerator's cache, which raises where there is none:
tests that passed would end as errors. There is nothing to free, so nothing is done.
"""

from __future__ import annotations

import importlib
import importlib.util

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    if not torch.accelerator.is_available():
        torch.accelerator.empty_cache = lambda: None
