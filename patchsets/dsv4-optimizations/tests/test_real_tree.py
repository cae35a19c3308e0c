"""The linear kernels, the op and the attention layer as vLLM itself builds and calls them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_tree import CHECKS

# Some of what the tree's modules import; a machine for kernels alone does not have all of it.
NEEDED = ("torch", "transformers", "pydantic")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

# True on the bare pin too: there they guard what must stay as it is.
NOT_A_FIX = {
    "linear_kernel_without_a_path_is_upstreams",
    "linear_kernel_that_takes_bf16_does_not_ask",
    "linear_kernel_with_another_output_does_not_ask",
    "linear_kernel_is_traced_without_a_break",
    "flashinfer_does_not_take_a_quantized_activation",
}


@pytest.fixture(scope="module")
def results(vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("triton")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(vllm_tree), str(Path(__file__).parent)]),
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TRITON_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("real_tree.py"))],
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
        pytest.param(name, marks=() if name in NOT_A_FIX else (pytest.mark.fix,))
        for name in (check.__name__ for check in CHECKS)
    ],
)
def test_in_vllm_itself(results: dict[str, str], check: str) -> None:
    assert results[check] == ""
