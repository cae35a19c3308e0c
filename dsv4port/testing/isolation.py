"""``import vllm`` finds the tree under test, or the run stops: never an installed copy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def require_tree(tree: Path) -> None:
    """Refuse to run where ``import vllm`` would find anything else than the tree.

    Raises:
        pytest.UsageError: it would.
    """
    found = importlib.util.find_spec("vllm")
    origin = None if found is None else found.origin
    if origin is None or not Path(origin).resolve().is_relative_to(tree):
        raise pytest.UsageError(f"`import vllm` would find {origin}, not the tree {tree}")


def foreign_vllm(tree: Path) -> str | None:
    """Where the ``vllm`` of this process came from, if not from the tree; None if all is well.

    A stand-in that a test put in its place has no file, and is the test's own affair.
    """
    origin = getattr(sys.modules.get("vllm"), "__file__", None)
    if origin is None or Path(origin).resolve().is_relative_to(tree):
        return None
    return str(origin)
