"""On a CUDA device: index scratch at the deployment's size, and what the fence waits for."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.fix]

CACHE_UTILS = "vllm/models/deepseek_v4/common/ops/cache_utils.py"
WANTED = {
    "_SPARSE_PREFILL_TOPK_ALIGNMENT",
    "combined_topk_width",
    "combine_topk_swa_indices",
    "_check_combine_out",
    "_combine_topk_swa_indices_kernel",
}
TOKENS = 8195
WINDOW = 128
# Compress ratio, width of the top-k table. The last one is that of a model length of 131,072.
LAYERS = [(1, 0), (4, 512), (128, 128), (128, 1024)]


def name_of(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


@pytest.fixture(scope="module")
def device() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(scope="module")
def ops(
    device: None, own_scratch: None, vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> ModuleType:
    """The tree's own kernel and its caller, without the rest of vLLM: torch and Triton do."""
    source = (vllm_tree / CACHE_UTILS).read_text(encoding="utf-8")
    nodes = {name_of(node): node for node in ast.parse(source).body}
    missing = WANTED - set(nodes)
    if missing:
        pytest.fail(f"{CACHE_UTILS} has no {', '.join(sorted(missing))}", pytrace=False)
    file = tmp_path_factory.mktemp("ops") / "combine.py"
    header = "import torch\nimport triton\nimport triton.language as tl\n\n"
    file.write_text(
        header + "\n\n".join(ast.unparse(node) for name, node in nodes.items() if name in WANTED)
    )
    spec = importlib.util.spec_from_file_location("combine", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(ratio: int, topk: int) -> dict[str, Any]:
    """Four requests, one of them in the middle of its prompt, with all tokens of a step."""
    import torch

    lens = torch.tensor([4096, 1, 98, 4000], dtype=torch.int32)
    before = torch.tensor([0, 0, 6000, 100_000], dtype=torch.int32)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), lens.cumsum(0, dtype=torch.int32)])
    assert int(starts[-1]) == TOKENS
    width = max(topk, 512)
    generator = torch.Generator().manual_seed(ratio)
    table = torch.randint(0, 1536, (TOKENS, width), dtype=torch.int32, generator=generator)
    return {
        "topk_indices": table.cuda(),
        "query_start_loc": starts.cuda(),
        "seq_lens": (before + lens).cuda(),
        "gather_lens": (lens + before.clamp(max=WINDOW - 1)).cuda(),
        "window_size": WINDOW,
        "compress_ratio": ratio,
        "topk": topk,
        "M": 20_000,
        "N": 1536,
    }


@pytest.mark.parametrize(("ratio", "topk"), LAYERS)
def test_dirty_scratch_gives_the_same_indices_and_nothing_is_allocated(
    ops: ModuleType, ratio: int, topk: int
) -> None:
    import torch

    given = arguments(ratio, topk)
    expected, expected_lens = ops.combine_topk_swa_indices(**given)
    shape = (TOKENS, ops.combined_topk_width(topk, WINDOW))
    for dirt in (0, 0x7B7B7B7B, -1):
        out = (
            torch.full(shape, dirt, dtype=torch.int32, device="cuda"),
            torch.full(shape[:1], dirt, dtype=torch.int32, device="cuda"),
        )
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        indices, lens = ops.combine_topk_swa_indices(**given, out=out)
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
        assert torch.equal(indices, expected)
        assert torch.equal(lens, expected_lens)
        assert indices.data_ptr() == out[0].data_ptr()


def test_without_out_the_table_is_allocated(ops: ModuleType) -> None:
    """So the count above would see an allocation."""
    import torch

    given = arguments(4, 512)
    before = torch.cuda.memory_stats()["allocated_bytes.all.allocated"]
    ops.combine_topk_swa_indices(**given)
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] - before >= TOKENS * 640 * 4


@pytest.fixture
def fence(device: None, tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module("vllm/v1/worker/mixed_prefill_fence.py")


@pytest.mark.parametrize("wait", ["_wait_for_current_stream", "_wait_for_device"])
def test_the_host_waits_until_the_step_is_done(fence: ModuleType, wait: str) -> None:
    import torch

    done = torch.cuda.Event()
    torch.cuda._sleep(200_000_000)
    done.record()
    assert not done.query()
    getattr(fence, wait)()
    assert done.query()


def test_a_capture_is_seen_and_survives(fence: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    host = fence.MixedPrefillFence(object(), 5)
    monkeypatch.setattr(host, "_decide", lambda: fence._wait_for_device)
    step = SimpleNamespace(scheduled_new_reqs=[object()])
    tensor = torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor += 1
        assert host.after_launch(step) is False
    graph.replay()
    torch.cuda.synchronize()
    assert tensor.item() == 1
    assert host.after_launch(step) is True
