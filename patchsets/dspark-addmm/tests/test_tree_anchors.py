"""Names and orders that the patches rely on, read from the tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SPECULATOR = "vllm/v1/worker/gpu/spec_decode/dspark/speculator.py"
INPUTS = "vllm/v1/worker/gpu/spec_decode/dflash/speculator.py"
PROCESSOR = "vllm/model_executor/layers/logits_processor.py"


def methods(tree: Path, path: str, class_name: str) -> dict[str, str]:
    module = ast.parse((tree / path).read_text(encoding="utf-8"))
    (found,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == class_name)
    return {n.name: ast.unparse(n) for n in found.body if isinstance(n, ast.FunctionDef)}


@pytest.mark.fix
def test_the_dense_path_reads_a_step_as_one_block(vllm_tree: Path) -> None:
    dense = methods(vllm_tree, SPECULATOR, "DSparkSpeculator")["_sample_sequential"]
    assert "base_logits.view(n_spec, num_reqs, vocab_size)" in dense
    assert "self._add_markov_bias(base_logits[i], markov_embed)" in dense


def test_the_top_k_path_keeps_its_order(vllm_tree: Path) -> None:
    top_k = methods(vllm_tree, SPECULATOR, "DSparkSpeculator")["_sample_sequential_topk"]
    assert "head_hidden[self.sample_indices[:num_sample]]" in top_k
    assert "base_logits.view(num_reqs, n_spec, -1)" in top_k
    assert "confidence.view(num_reqs, n_spec)" in top_k
    assert "_add_markov_bias" not in top_k


def test_the_inputs_are_ordered_by_request(vllm_tree: Path) -> None:
    """The dense path transposes them; DFlash reads them as they are."""
    text = (vllm_tree / INPUTS).read_text(encoding="utf-8")
    assert "last_hidden_states[self.sample_indices[:num_sample]]" in text
    assert "tl.store(out_sample_indices_ptr + sample_idx, query_idx, mask=is_sample)" in text


def test_what_the_processor_does_besides_the_product(vllm_tree: Path) -> None:
    """Each of these is a condition of the addmm. One more would have to become one."""
    processor = methods(vllm_tree, PROCESSOR, "LogitsProcessor")
    settings = {
        node.attr
        for name in ("forward", "_get_logits", "_apply_head")
        for node in ast.walk(ast.parse(processor[name]))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    assert settings == {
        "logits_as_input",
        "_get_logits",
        "soft_cap",
        "scale",
        "_apply_head",
        "_gather_logits",
        "org_vocab_size",
        "head_dtype",
    }
