"""Who builds the pool and who uses it, read from the tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

DSV4 = "vllm/models/deepseek_v4"
USES = re.compile(r"\beager_scratch_pool\.(\w+)\(")


def texts(tree: Path) -> dict[str, str]:
    return {
        str(path.relative_to(tree)): path.read_text(encoding="utf-8")
        for path in sorted((tree / "vllm").rglob("*.py"))
    }


@pytest.mark.fix
def test_nothing_builds_the_pool(vllm_tree: Path) -> None:
    found = [
        path
        for path, text in texts(vllm_tree).items()
        if "EagerScratchPool" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("EagerScratchPool")
    ]
    assert found == []


def test_every_use_of_the_pool_stands_behind_a_question_for_none(vllm_tree: Path) -> None:
    """Four uses; the nearest condition above each one asks whether there is a pool."""
    uses = []
    for path, text in texts(vllm_tree).items():
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if found := USES.search(line):
                above = "\n".join(lines[max(0, number - 4) : number])
                assert re.search(r"eager_scratch_pool is (not )?None", above), (path, number + 1)
                uses.append((path, found.group(1)))
    assert uses == [
        (f"{DSV4}/attention.py", "q_out"),
        (f"{DSV4}/attention.py", "global_topk_outputs"),
        (f"{DSV4}/attention.py", "indexer_q_outputs"),
        (f"{DSV4}/compressor.py", "compressor_scratch"),
    ]


def test_the_compressor_allocates_where_it_is_given_no_scratch(vllm_tree: Path) -> None:
    """Its kernel cannot be interpreted: it is CuTe DSL."""
    path = vllm_tree / DSV4 / "nvidia/ops/sparse_attn_compress_cutedsl.py"
    text = path.read_text(encoding="utf-8")
    assert "    compress_scratch: torch.Tensor | None = None,\n" in text
    assert re.search(r"if compress_scratch is None:\n\s+compressed_kv = torch\.empty\(", text)


def test_the_region_is_chosen_per_runner_at_this_pin(vllm_tree: Path) -> None:
    text = (vllm_tree / DSV4 / "attention.py").read_text(encoding="utf-8")
    assert "    @eager_break_during_capture\n    def _prepare_and_attn_eager(\n" in text
    assert "if not vllm_config.use_v2_model_runner:" in text
