"""Every kernel compiles for sm_90, with Triton's own assembler and no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Not imported here: the interpreter's switch must be set before Triton is.
HERE = all(importlib.util.find_spec(name) for name in ("torch", "triton"))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.fix,
    pytest.mark.skipif(not HERE, reason="torch and triton are not installed"),
]


def test_every_kernel_compiles_for_sm90(vllm_tree: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cross_compile.py")), str(vllm_tree)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    sizes = json.loads(result.stdout.splitlines()[-1])
    assert set(sizes) == {"inverse RoPE", "O projection", "gate-up", "SwiGLU"}
    for kernel, variants in sizes.items():
        assert variants, kernel
        for variant, size in variants.items():
            assert size > 1000, (kernel, variant)
