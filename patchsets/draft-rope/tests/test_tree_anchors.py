"""Which layers are a draft's, and who builds their RoPE: read from the tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

DSV4 = "vllm/models/deepseek_v4"


def calls(tree: Path) -> list[tuple[str, ast.Call]]:
    found = []
    for path in sorted((tree / "vllm").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "build_deepseek_v4_rope(" in text:
            found += [
                (str(path.relative_to(tree)), node)
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "build_deepseek_v4_rope"
            ]
    return found


@pytest.mark.fix
def test_the_only_caller_says_whether_the_layer_is_a_drafts(vllm_tree: Path) -> None:
    ((path, call),) = calls(vllm_tree)
    assert path == f"{DSV4}/attention.py"
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    assert given["use_unscaled_rope"] == "layer_id >= config.num_hidden_layers"


@pytest.mark.parametrize("platform", ["nvidia", "amd", "xpu"])
def test_layers_of_drafts_are_numbered_beyond_the_target(vllm_tree: Path, platform: str) -> None:
    folder = vllm_tree / DSV4 / platform
    mtp = (folder / "mtp.py").read_text(encoding="utf-8")
    assert "self.mtp_start_layer_idx = config.num_hidden_layers" in mtp
    dspark = (folder / "dspark.py").read_text(encoding="utf-8")
    assert "self.num_hidden_layers = config.num_hidden_layers" in dspark
    assert 'f"layers.{self.num_hidden_layers + i}"' in dspark
