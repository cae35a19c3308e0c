"""The shared expert's forward: what runs with the fused path, without it, and when it declines."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MODEL = "vllm/models/deepseek_v4/nvidia/model.py"
FUSED = "vllm/models/deepseek_v4/nvidia/ops/shared_swiglu.py"


@pytest.fixture
def forward(vllm_tree: Path) -> Callable[..., Any]:
    """``DeepseekV4MLP.forward`` alone: the module around it needs vLLM's compiled parts."""
    source = (vllm_tree / MODEL).read_text()
    # The bare pin has neither, and is red.
    if "shared_swiglu" not in source and (vllm_tree / FUSED).is_file():
        pytest.skip("at this pin the hook comes with the patchset of the pin's layout")
    (mlp,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "DeepseekV4MLP"
    ]
    (method,) = [
        node for node in mlp.body if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]
    scope: dict[str, Any] = {}
    exec(compile(ast.Module([method], []), MODEL, "exec"), scope)
    return scope["forward"]


class Mlp:
    def __init__(self, shared_swiglu: Any) -> None:
        self.log: list[Any] = []
        self.shared_swiglu = shared_swiglu

    def gate_up_proj(self, x: Any) -> tuple[Any, None]:
        self.log.append("gate_up")
        return ("gate_up", x), None

    def act_fn(self, gate_up: Any) -> Any:
        self.log.append("act_fn")
        return ("activated", gate_up)

    def down_proj(self, x: Any) -> tuple[Any, None]:
        self.log.append("down")
        return ("down", x), None


@pytest.mark.parametrize("path", [None, lambda gate_up: None], ids=["no path", "not mine"])
def test_without_the_path_the_activation_runs_exactly_once(
    forward: Callable[..., Any], path: Any
) -> None:
    mlp = Mlp(path)
    assert forward(mlp, "x") == ("down", ("activated", ("gate_up", "x")))
    assert mlp.log == ["gate_up", "act_fn", "down"]


@pytest.mark.fix
def test_with_the_path_the_activation_does_not_run(forward: Callable[..., Any]) -> None:
    seen = []

    def path(gate_up: Any) -> str:
        seen.append(gate_up)
        return "quantized"

    mlp = Mlp(path)
    assert forward(mlp, "x") == ("down", "quantized")
    assert mlp.log == ["gate_up", "down"]
    assert seen == [("gate_up", "x")]
