"""Who takes index scratch from the workspace, and that there is one request for all of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytestmark = [pytest.mark.fix, pytest.mark.usefixtures("own_scratch")]

DSV4 = "vllm/models/deepseek_v4"
FLASHMLA = f"{DSV4}/nvidia/flashmla.py"
SWITCH = "prefill_scratch_in_workspace"


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == name
    ]


@pytest.mark.parametrize(("layer_id", "is_draft"), [(0, False), (42, False), (43, True)])
@pytest.mark.parametrize("draft_fits", [False, True])
def test_each_layer_decides_when_it_is_built(
    runtime: ModuleType,
    deployment: SimpleNamespace,
    method_of: Callable[[str, str, str], ast.FunctionDef],
    layer_id: int,
    is_draft: bool,
    draft_fits: bool,
) -> None:
    """Runs the layer's own statement."""
    (statement,) = (
        node
        for node in method_of(f"{DSV4}/attention.py", "DeepseekV4Attention", "__init__").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f"self.{SWITCH}"
    )
    deployment.attention_config.backend = None
    if not draft_fits:
        deployment.speculative_config.draft_model_config.hf_config.hidden_act = "gelu"
    layer = SimpleNamespace(backend_cls=SimpleNamespace(get_name=lambda: "FLASHMLA_SPARSE_DSV4"))
    names = {
        "self": layer,
        "decide": runtime.decide,
        "vllm_config": deployment,
        "config": deployment.model_config.hf_config,
        "layer_id": layer_id,
    }
    exec(compile(ast.Module([statement], type_ignores=[]), "attention.py", "exec"), names)
    assert getattr(layer, SWITCH) is (draft_fits or not is_draft)


def test_only_flashmla_reads_the_switch(vllm_tree: Path) -> None:
    """Other backends take upstream's path: they have no code for anything else."""
    readers = {
        path.relative_to(vllm_tree / DSV4).as_posix()
        for path in (vllm_tree / DSV4).rglob("*.py")
        if SWITCH in path.read_text(encoding="utf-8")
    }
    assert readers == {"attention.py", "nvidia/flashmla.py"}


def test_warm_up_and_prefill_ask_through_one_method(
    vllm_tree: Path, method_of: Callable[[str, str, str], ast.FunctionDef]
) -> None:
    owner = "DeepseekV4FlashMLAAttention"
    module = ast.parse((vllm_tree / FLASHMLA).read_text(encoding="utf-8"))
    assert len(calls(module, "get_simultaneous")) == 1
    assert len(calls(method_of(FLASHMLA, owner, "_prefill_workspace"), "get_simultaneous")) == 1
    assert len(calls(method_of(FLASHMLA, owner, "forward_mqa"), "_prefill_workspace")) == 1
    assert len(calls(method_of(FLASHMLA, owner, "_forward_prefill"), "_prefill_workspace")) == 1


def test_prefill_hands_the_scratch_on(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    method = method_of(FLASHMLA, "DeepseekV4FlashMLAAttention", "_forward_prefill")
    (combine,) = calls(method, "combine_topk_swa_indices")
    assert {key.arg: ast.unparse(key.value) for key in combine.keywords} == {"out": "scratch"}
