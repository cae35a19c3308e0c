"""Files of checks that need vLLM itself: each runs in a process that imports it from the tree.

A file prints, as its last line, one JSON object: the name of each check to its traceback, or to an
empty text where it held.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

# Some of what the tree's modules import; a machine that only lends its device may lack it.
NEEDED = ("torch", "triton", "transformers", "pydantic")


def missing_packages() -> list[str]:
    """What would have to be installed to import the tree."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def run_file(file: Path, tree: Path, folder: Path, **variables: str) -> dict[str, str]:
    """Run a file of checks on the CPU, kernels interpreted; `folder` takes what Triton writes.

    Modules beside the file can be imported by it. `variables` are added to its environment.

    Raises:
        AssertionError: the file itself failed; with the end of what it said.
    """
    environment = (
        os.environ
        | variables
        | {
            "PYTHONPATH": os.pathsep.join([str(tree), str(file.parent)]),
            "TRITON_INTERPRET": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_CACHE_DIR": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
    )
    result = subprocess.run(
        [sys.executable, str(file)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    found: dict[str, str] = json.loads(result.stdout.splitlines()[-1])
    return found
