"""What a captured graph holds, and what its replays leave out: vLLM's own layer and capture."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

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
def results(vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("triton")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(vllm_tree), str(Path(__file__).parent)]),
        "VLLM_USE_BREAKABLE_CUDAGRAPH": "1",
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("captured_region_checks.py"))],
        env=environment,
        cwd=cache,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    loaded = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(name, marks=() if name in NOT_A_FIX else (pytest.mark.fix,), id=name)
        for name in CHECKS
    ],
)
def test_in_vllm_itself(results: dict[str, str], check: str) -> None:
    assert results[check] == ""
