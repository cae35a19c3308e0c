"""Where the patches sit: the calls that must be there, once, and the ones that must be gone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.fix

ROOT = "vllm/models/deepseek_v4/nvidia"
FLASH_MLA = f"{ROOT}/flashmla.py"
MODEL = f"{ROOT}/model.py"
O_PROJ = f"{ROOT}/ops/o_proj.py"
INV_ROPE = "vllm/models/deepseek_v4/common/ops/fused_inv_rope_fp8_quant.py"


def parse(tree: Path, path: str) -> ast.Module:
    return ast.parse((tree / path).read_text(encoding="utf-8"))


def function(module: ast.Module, qualified: str) -> ast.FunctionDef:
    body: list[ast.stmt] = module.body
    *classes, name = qualified.split(".")
    for class_name in classes:
        (found,) = [
            node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name
        ]
        body = found.body
    found_functions = [
        node for node in body if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    if not found_functions:
        pytest.fail(f"there is no {qualified}", pytrace=False)
    return found_functions[0]


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    return [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == name
    ]


def keywords(call: ast.Call) -> dict[str | None, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}


def test_the_layer_asks_for_each_path_once_and_at_construction(vllm_tree: Path) -> None:
    module = parse(vllm_tree, FLASH_MLA)
    asked = [
        ast.unparse(call.args[1])
        for call in calls(function(module, "DeepseekV4FlashMLAAttention.__init__"), "evaluate_once")
    ]
    assert asked == ["Feature.INV_ROPE_CHUNKS", "Feature.O_PROJ_GEMV", "Feature.DIRECT_OUT"]
    assert len(calls(module, "evaluate_once")) == len(asked)
    assert not calls(module, "get_current_vllm_config")


def test_the_layer_hands_its_verdicts_to_the_projection(vllm_tree: Path) -> None:
    projection = function(parse(vllm_tree, FLASH_MLA), "DeepseekV4FlashMLAAttention._o_proj")
    (call,) = calls(projection, "deep_gemm_fp8_o_proj")
    assert keywords(call)["chunk_parallel"] == "self._inv_rope_chunks"
    assert keywords(call)["gemv_capability"] == "self._o_proj_gemv_capability"


def test_other_backends_do_not_ask_for_the_paths(vllm_tree: Path) -> None:
    module = parse(vllm_tree, f"{ROOT}/flashinfer_sparse.py")
    found = calls(module, "deep_gemm_fp8_o_proj")
    assert found
    for call in found:
        assert {"chunk_parallel", "gemv_capability"}.isdisjoint(keywords(call))
    # What they do not say is upstream's path.
    arguments = function(parse(vllm_tree, O_PROJ), "deep_gemm_fp8_o_proj").args
    defaults = {
        argument.arg: default and ast.unparse(default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    }
    assert defaults["chunk_parallel"] == "False"
    assert defaults["gemv_capability"] == "None"


def test_gemv_and_order_of_the_scales_are_one_decision(vllm_tree: Path) -> None:
    projection = function(parse(vllm_tree, O_PROJ), "deep_gemm_fp8_o_proj")
    (quantization,) = calls(projection, "fused_inv_rope_fp8_quant")
    layout = keywords(quantization)["scale_layout"]
    assert layout == "'mn_major' if tile is None else 'k_major'"
    (choice,) = [
        node
        for node in ast.walk(projection)
        if isinstance(node, ast.If) and calls(node, "fp8_einsum")
    ]
    assert ast.unparse(choice.test) == "tile is None"
    assert [len(calls(part, "fp8_einsum")) for part in choice.body] == [1]
    assert [len(calls(part, "small_m_gemv")) for part in choice.orelse] == [1]


def test_sparse_prefill_goes_through_the_contract_and_nowhere_else(vllm_tree: Path) -> None:
    module = parse(vllm_tree, FLASH_MLA)
    prefill = function(module, "DeepseekV4FlashMLAAttention._forward_prefill")
    (call,) = calls(prefill, "sparse_prefill_into")
    assert keywords(call)["provider"] == "flash_mla_sparse_fwd"
    assert keywords(call)["takes_out"] == "True"
    assert keywords(call)["checked"] == "self._direct_out_checked"
    assert not calls(module, "flash_mla_sparse_fwd")


def test_the_moe_installs_its_paths_right_after_the_shared_expert(vllm_tree: Path) -> None:
    constructor = function(parse(vllm_tree, MODEL), "DeepseekV4MoE.__init__")
    (branch,) = [
        node
        for node in ast.walk(constructor)
        if isinstance(node, ast.If) and "n_shared_experts" in ast.unparse(node.test)
    ]
    last_two = [ast.unparse(statement) for statement in branch.orelse[-2:]]
    assert last_two[0].startswith("self.shared_experts = DeepseekV4MLP(")
    assert last_two[1] == "self._install_shared_expert_paths(vllm_config)"


def test_the_launch_names_its_warps_and_programmatic_launch(vllm_tree: Path) -> None:
    """The second is upstream's own from 0.27.0 on."""
    launcher = function(parse(vllm_tree, INV_ROPE), "_fused_inv_rope_fp8_quant_kernel_impl")
    (launch,) = [
        call
        for call in ast.walk(launcher)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)
    ]
    assert keywords(launch)["launch_pdl"] == "use_gdc"
    assert keywords(launch)["num_warps"].startswith("_num_warps(num_tokens, ")
    assert None not in keywords(launch)  # Nothing is unpacked into it.
