"""Pytest plugin for vLLM's own tests on a machine without an accelerator.

They have no markers that say what they need. A test that asks for a CUDA device, or for a package
that only comes with one, is skipped at that point, with that reason; patchsets' own tests have
markers, and would fail. And their clean-up after every test frees the accelerator's cache, which
raises where there is none: tests that passed would end as errors. There is nothing to free, so
nothing is done.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Generator

import pytest

_ASKS_FOR_A_DEVICE = (
    ("torch/cuda/__init__.py", "_lazy_init"),
    ("vllm/config/device.py", "__post_init__"),
)
"""Where errors come from that mean: there is no device. No words of a message count."""

_OF_THE_TREE = ("vllm", "tests")


def pytest_configure(config: pytest.Config) -> None:
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    if not torch.accelerator.is_available():
        torch.accelerator.empty_cache = lambda: None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        lack = _lack(call.excinfo.value)
        if lack is not None:
            path, line, _ = item.location
            report.outcome = "skipped"
            report.longrepr = (path, (line or 0) + 1, f"Skipped: {lack}")
    return report


def _lack(error: BaseException) -> str | None:
    """What the test asked for and this machine has not; None where that is not why it failed."""
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        return None if name in _OF_THE_TREE else f"it imports {name}, which is not installed"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    code = trace.tb_frame.f_code
    asked = any(
        code.co_filename.endswith(file) and code.co_name == name
        for file, name in _ASKS_FOR_A_DEVICE
    )
    return "it asks for a CUDA device" if asked else None
