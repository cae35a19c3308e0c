"""Checks that need vLLM itself run in a process of their own, which imports it from the tree."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

# Some of what the tree's modules import; a machine that only lends its device may lack it.
NEEDED = ("torch", "triton", "transformers", "pydantic")


@pytest.fixture(scope="session")
def run_checks(
    vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """Run a file of checks on the tree: its name to each check's traceback, "" where it held."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    done: dict[str, dict[str, str]] = {}

    def run(file: str) -> dict[str, str]:
        if file not in done:
            folder = tmp_path_factory.mktemp("triton")
            environment = os.environ | {
                "PYTHONPATH": os.pathsep.join([str(vllm_tree), str(HERE)]),
                "TRITON_INTERPRET": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "TRITON_CACHE_DIR": str(folder),
                "PYTHONDONTWRITEBYTECODE": "1",
                "VLLM_LOGGING_LEVEL": "ERROR",
            }
            result = subprocess.run(
                [sys.executable, str(HERE / file)],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert result.returncode == 0, result.stderr[-2000:]
            done[file] = json.loads(result.stdout.splitlines()[-1])
        return done[file]

    return run
