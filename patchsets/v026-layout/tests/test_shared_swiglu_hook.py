"""The shared expert asks for the fused path first, and activates once where that says no."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

MODEL = "vllm/models/deepseek_v4/nvidia/model.py"

Forward = Callable[[Any, str], str]


@pytest.fixture
def forward(method_of: Callable[[str, str, str], ast.FunctionDef]) -> Forward:
    """The model's own method."""
    names: dict[str, Any] = {}
    method = method_of(MODEL, "DeepseekV4MLP", "forward")
    exec(compile(ast.Module([method], type_ignores=[]), MODEL, "exec"), names)
    function: Forward = names["forward"]
    return function


class Layer(SimpleNamespace):
    """A shared expert that writes down what it is asked to do."""

    def __init__(self, fused: Callable[[str], str | None] | None) -> None:
        super().__init__(done=[])
        self.gate_up_proj = lambda x: (self.note("gate_up", x), None)
        self.act_fn = lambda x: self.note("act", x)
        self.down_proj = lambda x: (self.note("down", x), None)
        self.shared_swiglu = None if fused is None else lambda x: self.note("fused", x, fused)

    def note(
        self, step: str, x: str, result: Callable[[str], str | None] = lambda x: x
    ) -> str | None:
        self.done.append(step)
        value = result(x)
        return None if value is None else f"{step}({value})"


def test_without_the_hook_the_path_is_upstreams(forward: Forward) -> None:
    layer = Layer(None)
    assert forward(layer, "x") == "down(act(gate_up(x)))"
    assert layer.done == ["gate_up", "act", "down"]


@pytest.mark.fix
def test_the_fused_path_replaces_the_activation(forward: Forward) -> None:
    layer = Layer(lambda x: x)
    assert forward(layer, "x") == "down(fused(gate_up(x)))"
    assert layer.done == ["gate_up", "fused", "down"]


@pytest.mark.fix
def test_where_it_says_no_the_activation_runs_once(forward: Forward) -> None:
    layer = Layer(lambda x: None)
    assert forward(layer, "x") == "down(act(gate_up(x)))"
    assert layer.done == ["gate_up", "fused", "act", "down"]


@pytest.mark.fix
def test_a_layer_is_built_without_it(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    (attribute,) = (
        node
        for node in method_of(MODEL, "DeepseekV4MLP", "__init__").body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "self.shared_swiglu"
    )
    assert attribute.value is not None
    assert ast.unparse(attribute.value) == "None"


@pytest.mark.fix
def test_only_the_shared_expert_of_this_model_gets_it(vllm_tree: Path) -> None:
    """It is decided in the mixture of experts, from the layers and the config it is built with."""
    module = ast.parse((vllm_tree / MODEL).read_text(encoding="utf-8"))
    setters = [
        (owner.name, ast.unparse(node))
        for owner in module.body
        if isinstance(owner, ast.ClassDef)
        for node in ast.walk(owner)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".shared_swiglu")
    ]
    ((owner, setter),) = setters
    assert owner == "DeepseekV4MoE"
    assert setter.startswith("self.shared_experts.shared_swiglu = SharedSwiglu.for_layers(")
