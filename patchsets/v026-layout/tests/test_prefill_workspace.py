"""Index scratch of sparse prefill: the same indices as before, and no allocation after warm-up."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch

WINDOW = 8
TOPK = 16
HEAD_DIM = 4
MAX_TOKENS = 24
# Wide enough that layers with a ratio of 128 need more than the shared top-k buffer holds.
MAX_MODEL_LEN = 128 * 130
C128A_WIDTH = 256

# Per prefill request: tokens before this step, tokens in it.
BATCHES = {
    "one short request": [(0, 3)],
    "the largest batch": [(MAX_MODEL_LEN - MAX_TOKENS, MAX_TOKENS)],
    "requests of several lengths": [(0, 5), (40, 7), (0, 1), (1000, 3), (17, 8)],
}
RATIOS = (1, 4, 128)

OWN_SCRATCH = pytest.mark.usefixtures("own_scratch")


@pytest.fixture(scope="session")
def flashmla(importable_tree: Path) -> ModuleType:
    import vllm.models.deepseek_v4.nvidia.flashmla as module

    return module


@pytest.fixture
def manager(flashmla: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's workspace manager on the CPU; it keeps a list of what it was asked for."""
    import torch
    from vllm.v1.worker import workspace

    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)

    class Recording(workspace.WorkspaceManager):
        def __init__(self) -> None:
            super().__init__(torch.device("cpu"))
            self.asked: list[tuple[Any, ...]] = []

        def get_simultaneous(self, *requests: Any) -> list[Any]:
            self.asked.append(requests)
            return super().get_simultaneous(*requests)

    monkeypatch.setattr(workspace, "_manager", Recording())
    return workspace.current_workspace_manager()


def build_layer(flashmla: ModuleType, ratio: int, in_workspace: bool) -> Any:
    import torch

    layer = object.__new__(flashmla.DeepseekV4FlashMLAAttention)
    torch.nn.Module.__init__(layer)
    layer.compress_ratio = ratio
    layer.window_size = WINDOW
    layer.max_model_len = MAX_MODEL_LEN
    layer.max_num_batched_tokens = MAX_TOKENS
    generator = torch.Generator().manual_seed(ratio)
    layer.topk_indices_buffer = torch.randint(
        0, 1000, (MAX_TOKENS, TOPK), dtype=torch.int32, generator=generator
    )
    layer.prefill_scratch_in_workspace = in_workspace
    # Other patches may have put a check around the attention kernel; it is not the subject here.
    layer._direct_out_checked = False
    layer.scale = 1.0
    layer.attn_sink = None
    return layer


def warm_up(flashmla: ModuleType, layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(
        flashmla, "get_forward_context", lambda: SimpleNamespace(attn_metadata=None)
    )
    q = torch.zeros(MAX_TOKENS, 1, HEAD_DIM, dtype=torch.bfloat16)
    output = torch.ones_like(q)
    layer.forward_mqa(q, q, torch.zeros(MAX_TOKENS, dtype=torch.int64), output)
    assert not output.any()


def prefill(
    flashmla: ModuleType, layer: Any, batch: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> list[SimpleNamespace]:
    """Run the layer's prefill up to the attention kernel; what each chunk gave the kernel."""
    import torch
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata

    before = torch.tensor([b for b, _ in batch], dtype=torch.int32)
    lens = torch.tensor([n for _, n in batch], dtype=torch.int32)
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), lens.cumsum(0, dtype=torch.int32)])
    swa = SimpleNamespace(
        num_prefills=len(batch),
        num_prefill_tokens=int(lens.sum()),
        num_decodes=0,
        num_decode_tokens=0,
        prefill_seq_lens=before + lens,
        prefill_seq_lens_cpu=before + lens,
        prefill_query_lens_cpu=lens,
        prefill_gather_lens=lens + before.clamp(max=WINDOW - 1),
        prefill_max_model_len=MAX_MODEL_LEN,
        prefill_window_size=WINDOW,
        prefill_max_num_batched_tokens=MAX_TOKENS,
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        block_table=torch.zeros(len(batch), 1, dtype=torch.int32),
        block_size=64,
    )
    swa.get_prefill_chunk_plan = lambda **sizes: DeepseekSparseSWAMetadata.get_prefill_chunk_plan(
        swa, **sizes
    )
    metadata = None
    if layer.compress_ratio > 1:
        width = TOPK if layer.compress_ratio == 4 else C128A_WIDTH
        metadata = SimpleNamespace(
            block_table=swa.block_table,
            block_size=256,
            c128a_prefill_topk_indices=torch.arange(
                int(lens.sum()) * width, dtype=torch.int32
            ).view(-1, width),
        )
    chunks: list[SimpleNamespace] = []

    def kernel(**arguments: Any) -> tuple[Any, None, None]:
        chunks.append(
            SimpleNamespace(
                indices=arguments["indices"].clone(),
                lens=arguments["topk_length"].clone(),
                spans=[
                    (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes)
                    for tensor in (
                        arguments["kv"],
                        arguments["indices"],
                        arguments["topk_length"],
                    )
                ],
            )
        )
        return arguments["out"], None, None

    monkeypatch.setattr(flashmla, "dequantize_and_gather_k_cache", lambda *a, **k: None)
    monkeypatch.setattr(flashmla, "flash_mla_sparse_fwd", kernel)
    q = torch.zeros(int(lens.sum()), 1, HEAD_DIM, dtype=torch.bfloat16)
    layer._forward_prefill(
        q=q,
        positions=torch.zeros(len(q), dtype=torch.int64),
        compressed_k_cache=None,
        swa_k_cache=q,
        output=torch.zeros_like(q),
        attn_metadata=metadata,
        swa_metadata=swa,
    )
    assert sum(len(chunk.lens) for chunk in chunks) == len(q)
    return chunks


@OWN_SCRATCH
@pytest.mark.fix
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_reused_dirty_scratch_gives_the_same_indices(
    flashmla: ModuleType,
    manager: Any,
    monkeypatch: pytest.MonkeyPatch,
    ratio: int,
    batch: str,
) -> None:
    import torch

    allocating = build_layer(flashmla, ratio, in_workspace=False)
    expected = prefill(flashmla, allocating, BATCHES[batch], monkeypatch)

    reusing = build_layer(flashmla, ratio, in_workspace=True)
    warm_up(flashmla, reusing, monkeypatch)
    manager.lock()
    for dirt in (0x00, 0x7B):
        (workspace,) = manager._current_workspaces
        workspace.fill_(dirt)
        chunks = prefill(flashmla, reusing, BATCHES[batch], monkeypatch)
        assert len(chunks) == len(expected)
        for chunk, wanted in zip(chunks, expected, strict=True):
            torch.testing.assert_close(chunk.indices, wanted.indices, rtol=0, atol=0)
            torch.testing.assert_close(chunk.lens, wanted.lens, rtol=0, atol=0)
            ends = sorted(chunk.spans)
            assert all(a[1] <= b[0] for a, b in pairwise(ends))
            start = workspace.data_ptr()
            assert ends[0][0] >= start
            assert ends[-1][1] <= start + workspace.nbytes


@OWN_SCRATCH
@pytest.mark.fix
@pytest.mark.parametrize("ratio", RATIOS)
def test_every_prefill_fits_into_what_the_warm_up_reserved(
    flashmla: ModuleType, manager: Any, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    import torch

    layer = build_layer(flashmla, ratio, in_workspace=True)
    warm_up(flashmla, layer, monkeypatch)
    ((kv, *scratch),) = manager.asked
    assert kv[0][-1] == HEAD_DIM
    width = {1: 128, 4: 128, 128: 384}[ratio]
    assert scratch == [((MAX_TOKENS, width), torch.int32), ((MAX_TOKENS,), torch.int32)]
    manager.lock()
    for batch in BATCHES.values():
        manager.asked.clear()
        prefill(flashmla, layer, batch, monkeypatch)
        for requested_kv, *requested in manager.asked:
            assert requested == scratch
            assert requested_kv[1] == kv[1]


@OWN_SCRATCH
@pytest.mark.fix
@pytest.mark.parametrize("ratio", RATIOS)
def test_the_worst_chunk_needs_all_of_it(
    flashmla: ModuleType, manager: Any, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    """The warm-up run reserves for the longest request: no less would do, as scratch goes."""
    layer = build_layer(flashmla, ratio, in_workspace=True)
    warm_up(flashmla, layer, monkeypatch)
    ((_, *scratch),) = manager.asked
    chunks = prefill(flashmla, layer, BATCHES["the largest batch"], monkeypatch)
    assert [tuple(c.indices.shape) for c in chunks] == [(MAX_TOKENS, 1, scratch[0][0][1])]


@OWN_SCRATCH
@pytest.mark.parametrize("ratio", RATIOS)
def test_outside_of_the_contract_the_request_is_upstreams(
    flashmla: ModuleType, manager: Any, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    import torch

    layer = build_layer(flashmla, ratio, in_workspace=False)
    warm_up(flashmla, layer, monkeypatch)
    compressed = 0 if ratio == 1 else -(-MAX_MODEL_LEN // ratio)
    rows = compressed + WINDOW + MAX_TOKENS
    assert manager.asked == [((((4, rows, HEAD_DIM)), torch.bfloat16),)]
    handed: list[Any] = []
    real = flashmla.combine_topk_swa_indices
    monkeypatch.setattr(
        flashmla,
        "combine_topk_swa_indices",
        lambda *a, **k: handed.append(k.get("out")) or real(*a, **k),
    )
    prefill(flashmla, layer, BATCHES["one short request"], monkeypatch)
    assert handed == [None]
    assert all(len(request) == 1 for request in manager.asked)


def combine_arguments() -> dict[str, Any]:
    import torch

    return {
        "topk_indices": torch.arange(3 * TOPK, dtype=torch.int32).view(3, TOPK),
        "query_start_loc": torch.tensor([0, 2, 3], dtype=torch.int32),
        "seq_lens": torch.tensor([40, 1], dtype=torch.int32),
        "gather_lens": torch.tensor([9, 1], dtype=torch.int32),
        "window_size": WINDOW,
        "compress_ratio": 4,
        "topk": TOPK,
        "M": 100,
        "N": 10,
    }


@OWN_SCRATCH
@pytest.mark.fix
def test_out_is_what_comes_back(flashmla: ModuleType) -> None:
    import torch

    arguments = combine_arguments()
    expected = flashmla.combine_topk_swa_indices(**arguments)
    out = torch.full((3, 128), 12345, dtype=torch.int32), torch.full((3,), -7, dtype=torch.int32)
    indices, lens = flashmla.combine_topk_swa_indices(**arguments, out=out)
    assert indices is out[0]
    assert lens is out[1]
    assert torch.equal(indices, expected[0])
    assert torch.equal(lens, expected[1])
    assert [int((row >= 0).sum()) for row in indices] == lens.tolist()
    assert all(bool((row[length:] == -1).all()) for row, length in zip(indices, lens, strict=True))


@OWN_SCRATCH
@pytest.mark.fix
def test_out_of_another_form_is_refused(flashmla: ModuleType) -> None:
    import torch

    def table(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    good = table(3, 128), table(3)
    for out in (
        (table(4, 128), good[1]),
        (table(3, 256), good[1]),
        (table(3, 128, dtype=torch.int64), good[1]),
        (table(3, 256)[:, :128], good[1]),
        (table(3, 128).to("meta"), good[1]),
        (good[0], table(4)),
        (good[0], table(3, 1)),
        (good[0], table(6)[::2]),
    ):
        with pytest.raises(ValueError, match="out must be contiguous int32"):
            flashmla.combine_topk_swa_indices(**combine_arguments(), out=out)


@OWN_SCRATCH
@pytest.mark.fix
def test_the_table_of_the_deployment_is_21_megabytes(flashmla: ModuleType) -> None:
    """8195 tokens, 512 top-k indices, a window of 128."""
    width = flashmla.combined_topk_width(512, 128)
    assert width == 640
    assert 8195 * width * 4 == 20_979_200


@OWN_SCRATCH
@pytest.mark.fix
@pytest.mark.parametrize(
    ("max_model_len", "width"), [(6144, 128), (65_536, 512), (65_537, 640), (1_048_576, 8192)]
)
def test_layers_with_a_ratio_of_128(flashmla: ModuleType, max_model_len: int, width: int) -> None:
    assert flashmla.c128a_topk_width(max_model_len, 128) == width


@pytest.mark.usefixtures("upstreams_scratch")
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ratio", (1, 4))
def test_upstreams_own_scratch_holds_the_same_indices(
    flashmla: ModuleType,
    manager: Any,
    monkeypatch: pytest.MonkeyPatch,
    ratio: int,
    batch: str,
) -> None:
    """Why the series of these pins are without the patch.

    What lies behind the valid part of a row is not compared: upstream leaves it as it was.
    """
    import torch

    layer = build_layer(flashmla, ratio, in_workspace=False)
    warm_up(flashmla, layer, monkeypatch)
    ((_, *reserved),) = manager.asked
    assert reserved == [((MAX_TOKENS, 128), torch.int32), ((MAX_TOKENS,), torch.int32)]
    manager.lock()
    real = flashmla.combine_topk_swa_indices
    compared = []

    def combine(*arguments: Any, out: tuple[Any, Any]) -> tuple[Any, Any]:
        wanted, wanted_lens = real(*arguments)
        indices, lens = real(*arguments, out=out)
        assert indices is out[0]
        assert torch.equal(lens, wanted_lens)
        for row, wanted_row, length in zip(indices, wanted, lens, strict=True):
            assert torch.equal(row[:length], wanted_row[:length])
        compared.append(len(lens))
        return indices, lens

    monkeypatch.setattr(flashmla, "combine_topk_swa_indices", combine)
    (workspace,) = manager._current_workspaces
    for dirt in (0x00, 0x7B):
        workspace.fill_(dirt)
        manager.asked.clear()
        compared.clear()
        chunks = prefill(flashmla, layer, BATCHES[batch], monkeypatch)
        assert compared == [len(chunk.lens) for chunk in chunks]
        assert all(scratch == reserved for _, *scratch in manager.asked)


@pytest.mark.fix
def test_worker_and_runner_import(importable_tree: Path) -> None:
    """The modules that the patches add to them are found, and close no circle of imports."""
    import vllm.v1.worker.gpu_model_runner as runner
    import vllm.v1.worker.gpu_worker as worker

    assert runner.MixedPrefillFence.__module__ == "vllm.v1.worker.mixed_prefill_fence"
    assert worker.sparse_prefill_headroom.__module__ == "vllm.v1.worker.sparse_prefill_headroom"
