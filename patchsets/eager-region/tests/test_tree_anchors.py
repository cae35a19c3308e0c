"""What the patches rely on is in the tree, and nothing in it goes around them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DSV4 = "vllm/models/deepseek_v4"
ATTENTION = f"{DSV4}/attention.py"
RUNNER_V1 = "vllm/v1/worker/gpu_model_runner.py"
RUNNER_V2 = "vllm/v1/worker/gpu"


def methods(tree: Path, path: str, class_name: str) -> dict[str, ast.FunctionDef]:
    module = ast.parse((tree / path).read_text(encoding="utf-8"))
    (found,) = (n for n in module.body if isinstance(n, ast.ClassDef) and n.name == class_name)
    return {n.name: n for n in found.body if isinstance(n, ast.FunctionDef)}


def called(function: ast.AST) -> set[str]:
    return {ast.unparse(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}


def decorated_as_break(function: ast.FunctionDef) -> bool:
    return [ast.unparse(d) for d in function.decorator_list] == ["eager_break_during_capture"]


def sources(tree: Path, folder: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((tree / folder).rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


@pytest.mark.fix
def test_the_break_holds_selection_and_attention_alone(vllm_tree: Path) -> None:
    layer = methods(vllm_tree, ATTENTION, "DeepseekV4Attention")
    assert decorated_as_break(layer["_sparse_indexer_and_attn"])
    assert called(layer["_sparse_indexer_and_attn"]) == {
        "self.indexer.select_topk",
        "self.forward_mqa",
    }
    assert decorated_as_break(layer["_prepare_and_attn_eager"])
    assert called(layer["_prepare_and_attn_eager"]) == {"self._prepare_and_attn"}
    assert not layer["_prepare_and_attn"].decorator_list


@pytest.mark.fix
def test_the_narrow_region_has_no_pool_below_it(vllm_tree: Path) -> None:
    assert "_sparse_indexer_and_attn" in methods(vllm_tree, ATTENTION, "DeepseekV4Attention")
    for path, text in sources(vllm_tree, "vllm"):
        if "DeepseekV4EagerScratchPool" not in text:
            continue
        calls = called(ast.parse(text))
        assert "DeepseekV4EagerScratchPool" not in calls, f"{path} builds the pool"


@pytest.mark.fix
def test_nothing_overrides_or_calls_what_is_gone(vllm_tree: Path) -> None:
    gone = re.compile(r"\battention_impl\b|\battn_gemm_parallel_execute\b")
    found = [
        f"{path.relative_to(vllm_tree)}:{number}"
        for path, text in sources(vllm_tree, DSV4)
        for number, line in enumerate(text.splitlines(), 1)
        if gone.search(line)
    ]
    assert found == []


def test_every_patch_that_narrows_also_chooses_per_runner(pin: str) -> None:
    """So no commit of a series has the one without the other."""
    folder = Path(__file__).parents[1] / pin
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.patch"))]
    narrowing = [text for text in texts if "+    def _sparse_indexer_and_attn(" in text]
    assert len(narrowing) == 1
    assert "+    return vllm_config.use_v2_model_runner and not" in narrowing[0]
    assert "+    def _prepare_and_attn_eager(" in narrowing[0]


def test_runner_v1_captures_piecewise_graphs_without_metadata(vllm_tree: Path) -> None:
    text = (vllm_tree / RUNNER_V1).read_text(encoding="utf-8")
    assert "if force_attention or cudagraph_runtime_mode == CUDAGraphMode.FULL:" in text


def test_runner_v2_captures_piecewise_graphs_with_metadata(vllm_tree: Path, pin: str) -> None:
    text = (vllm_tree / RUNNER_V2 / "cudagraph_utils.py").read_text(encoding="utf-8")
    if pin == "v0.26.0":
        assert "and not self.use_breakable_cg\n" in text
        assert "assert (attn_metadata is not None) == self.use_breakable_cg" in text
    else:
        assert "skip_attn" not in text
        assert "for_capture=full_cudagraph" in text


def test_parallel_drafters_capture_full_graphs_only(vllm_tree: Path) -> None:
    """Theirs would have no metadata either, and the layers of DSpark are of this class."""
    path = vllm_tree / RUNNER_V2 / "spec_decode" / "dflash" / "speculator.py"
    (chosen,) = (
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "init_cudagraph_manager"
    )
    modes = {
        ast.unparse(node.value)
        for node in ast.walk(chosen)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cudagraph_mode"
    }
    assert modes == {"CUDAGraphMode.FULL_DECODE_ONLY", "CUDAGraphMode.NONE"}


def test_runner_v2_never_lets_the_c128_compressor_skip(vllm_tree: Path) -> None:
    """A skip is decided on the host: captured, it would hold for every batch.

    It needs the numbers of computed tokens on the host, which runner V2 does not hand over.
    """
    compressor = (vllm_tree / DSV4 / "compressor.py").read_text(encoding="utf-8")
    if "c128_boundary" in compressor:
        assert "and state_metadata.c128_boundary is False" in compressor
        assert "starts = metadata._num_computed_tokens_cpu\n    if starts is None:" in compressor
    assert [
        p for p, text in sources(vllm_tree, RUNNER_V2) if "num_computed_tokens_cpu=" in text
    ] == []


def test_captured_producers_read_buffers_that_stay(vllm_tree: Path) -> None:
    """The builder of the compressors' metadata writes into a tensor of its own."""
    builder = methods(vllm_tree, f"{DSV4}/compressor.py", "CompressorMetadataBuilder")
    assert "self.token_to_req_indices = torch.zeros(" in ast.unparse(builder["__init__"])
    assert "common_attn_metadata.token_to_req_indices(self.token_to_req_indices)" in ast.unparse(
        builder["build"]
    )
