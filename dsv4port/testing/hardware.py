"""Which tests a run leaves out because it has not got what their markers ask for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

DEVICES = ("cpu", "cuda", "musa")
WEIGHTS_VARIABLE = "DSV4PORT_WEIGHTS"
"""Environment variable that names the folder of a checkpoint."""

DESELECTED = pytest.StashKey[list[tuple[str, str, list[str]]]]()
"""Id, reason and markers of every test that was left out."""


def cuda_capability() -> tuple[int, int] | None:
    """Compute capability of the first CUDA device, None where there is none."""
    torch = _module("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return int(major), int(minor)


def musa_present() -> bool:
    """Whether there is a MUSA device. Importing ``torch_musa`` is what adds ``torch.musa``."""
    torch, added = _module("torch"), _module("torch_musa")
    return torch is not None and added is not None and bool(torch.musa.is_available())


def _module(name: str) -> Any:
    """A module that may not be installed: None then."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def leave_out(
    config: pytest.Config, items: list[pytest.Item], *, device: str, network: bool
) -> None:
    """Take what cannot run on `device` out of `items`, and note why."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    noted = config.stash.setdefault(DESELECTED, [])
    for item in items:
        reason = next(_missing(item, device, network), None)
        (kept if reason is None else left).append(item)
        if reason is not None:
            noted.append((item.nodeid, reason, sorted({one.name for one in item.iter_markers()})))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def _missing(item: pytest.Item, device: str, network: bool) -> Iterator[str]:
    # On a device kernels are compiled, in the whole process.
    if device != "cpu" and "triton_interpreter" in getattr(item, "fixturenames", ()):
        yield f"needs Triton's interpreter; the run is for {device}"
    for marker in item.iter_markers():
        if marker.name == "gpu":
            if device != "cuda":
                yield f"needs a CUDA device; the run is for {device}"
            elif (wanted := _wanted(marker)) and (have := _architecture()) not in wanted:
                yield f"needs sm_{' or sm_'.join(map(str, wanted))}; the device is sm_{have}"
        elif marker.name == "musa" and device != "musa":
            yield f"needs a MUSA device; the run is for {device}"
        elif marker.name == "needs_weights" and not os.environ.get(WEIGHTS_VARIABLE):
            yield f"needs a checkpoint; {WEIGHTS_VARIABLE} is not set"
        elif marker.name == "network" and not network:
            yield "needs a network; the run has none"


def _wanted(marker: pytest.Mark) -> tuple[int, ...]:
    """The architectures of ``gpu(sm=90)`` or ``gpu(sm=(90, 100))``."""
    value: Any = marker.kwargs.get("sm", ())
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not all(type(one) is int for one in found) or set(marker.kwargs) - {"sm"} or marker.args:
        raise pytest.UsageError(f"a marker must be gpu, gpu(sm=90) or gpu(sm=(90, 100)): {marker}")
    return found


def _architecture() -> int | None:
    capability = cuda_capability()
    return None if capability is None else capability[0] * 10 + capability[1]
