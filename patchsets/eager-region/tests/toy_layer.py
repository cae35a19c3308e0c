"""The tree's own `DeepseekV4Attention` and `DeepseekV4Indexer`, in small, on doubles of parts.

Constructor and forward are the tree's. Linear layers, norms, compressors, the indexer op and the
attention kernel are replaced by a few operators each that read and write what the real ones do:
the compressors and the fused insert write caches at the slots of the batch, and do nothing without
attention metadata; the indexer op reads the compressed K, attention reads the window's cache and
the selected indices. So a write that is lost changes the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
from recording_graph import RecordingGraph, recording_graphs
from torch import nn

HIDDEN, HEADS, PADDED_HEADS, HEAD_DIM, ROPE, RANK = 16, 2, 4, 8, 4, 6
INDEX_HEADS, INDEX_DIM, TOP_K = 2, 4, 4
SLOTS, BLOCK = 64, 4
TOKENS = 3
PREFIX = "layers.0."
RATIOS = {"sparse": 4, "compressed": 128, "window": 1}

calls: list[tuple[str, str]] = []
"""What ran: (name, "graph" while a graph is captured, else "eager")."""


def note(name: str) -> None:
    calls.append((name, "eager" if RecordingGraph.capturing is None else "graph"))


def ran(where: str) -> list[str]:
    return [name for name, place in calls if place == where]


def metadata_of_forward() -> Any:
    from vllm.forward_context import get_forward_context

    return get_forward_context().attn_metadata


class Linear(nn.Module):
    def __init__(self, name: str, inputs: int, outputs: int, *, with_bias: bool) -> None:
        super().__init__()
        self.name = name
        self.with_bias = with_bias
        generator = torch.Generator().manual_seed(len(name) + inputs + 7 * outputs)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, generator=generator), False)

    def forward(self, x: torch.Tensor) -> Any:
        note(self.name)
        y = x @ self.weight.T
        return (y, None) if self.with_bias else y


def linear(*arguments: Any, prefix: str, return_bias: bool = True, **_: Any) -> Linear:
    inputs, outputs = arguments
    outputs = sum(outputs) if isinstance(outputs, list) else outputs
    return Linear(prefix.removeprefix(PREFIX), inputs, outputs, with_bias=return_bias)


class Norm(nn.Module):
    def __init__(self, size: int, *_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size), False)


class WindowCache(nn.Module):
    def __init__(self, prefix: str, **_: Any) -> None:
        super().__init__()
        self.prefix = prefix
        self.kv_cache = torch.zeros(SLOTS // BLOCK, BLOCK, dtype=torch.uint8)


class IndexerCache(nn.Module):
    def __init__(self, prefix: str, **_: Any) -> None:
        super().__init__()
        self.prefix = prefix


class Compressor(nn.Module):
    """Writes what it is given at the slots of the batch, as the real one into state and cache."""

    def __init__(self, prefix: str, hidden_size: int, head_dim: int, **_: Any) -> None:
        super().__init__()
        self.name = prefix.removeprefix(PREFIX)
        self.fused_wkv_wgate = linear(hidden_size, [head_dim] * 2, prefix=f"{prefix}.wkv")
        self.cache = torch.zeros(SLOTS)

    def forward(self, kv_score: torch.Tensor, positions: torch.Tensor, rotary: Any) -> None:
        note(self.name)
        metadata = metadata_of_forward()
        if isinstance(metadata, dict):
            self.cache[metadata["slots"]] = kv_score.sum(-1)


class IndexerOp(nn.Module):
    def __init__(self, *arguments: Any, **_: Any) -> None:
        super().__init__()
        self.topk_indices = arguments[7]
        self.compressor: Compressor | None = None
        self.formats: list[str] = []

    def forward(self, hidden: Any, q_quant: Any, k: Any, weights: torch.Tensor) -> None:
        note("indexer_op")
        assert k is None
        self.formats.append("fp4" if isinstance(q_quant, tuple) else "fp8")
        q = q_quant[0] * q_quant[1] if isinstance(q_quant, tuple) else q_quant
        assert self.compressor is not None
        score = (q.sum((1, 2)) * weights.sum(-1)).abs() + self.compressor.cache.abs().sum()
        picked = score[:, None].long() % 97 + torch.arange(TOP_K)
        self.topk_indices[: len(picked)] = picked.to(torch.int32)


def fused_q_kv_rmsnorm(qr: Any, kv: Any, *_: Any) -> tuple[Any, Any]:
    note("norm")
    return torch.tanh(qr), torch.tanh(kv)


def fused_indexer_q_rope_quant(
    positions: Any, q: Any, cos_sin: Any, weights: Any, *_: Any, use_fp4: bool, **__: Any
) -> Any:
    note("indexer.q_quant")
    return ((q, torch.ones(len(q), 1, 1)) if use_fp4 else q), weights


def _insert(
    q: torch.Tensor,
    kv: torch.Tensor,
    cache: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    padded_heads: int,
    eps: float,
    block_size: int,
) -> torch.Tensor:
    """KV at the slots that are not padding; Q with all its padded heads."""
    real = slots >= 0
    written = (kv.sum(-1).abs() * 50 + positions).to(torch.uint8)
    cache.view(-1)[slots[real]] = written[real]
    return nn.functional.pad(q, (0, 0, 0, padded_heads - q.shape[1]))


INSERT = "fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert"
_library = torch.library.Library("_C", "FRAGMENT")
_library.define(
    f"{INSERT}(Tensor q, Tensor kv, Tensor(a!) cache, Tensor slots, Tensor positions, "
    "Tensor cos_sin, int padded_heads, float eps, int block_size) -> Tensor"
)
_library.impl(INSERT, _insert, "CPU")


class Stream:
    """Names the stream that is current; work on it is noted with its name."""

    current = "main"

    def __init__(self, name: str) -> None:
        self.name = name


class Event:
    open: ClassVar[dict[int, str]] = {}
    """The auxiliary stream of each event that no other stream has waited for."""

    def record(self) -> None:
        if Stream.current != "main":
            Event.open[id(self)] = Stream.current

    def wait(self) -> None:
        if Event.open.get(id(self)) != Stream.current:
            Event.open.pop(id(self), None)


@contextmanager
def on_stream(stream: Stream) -> Iterator[None]:
    before, Stream.current = Stream.current, stream.name
    try:
        yield
    finally:
        Stream.current = before


def mm(a: torch.Tensor, b: torch.Tensor, out_dtype: Any = None) -> torch.Tensor:
    """The CPU's has no `out_dtype`."""
    note("kv_score")
    return a @ b


def vllm_config(layer: str, *, v2: bool, fp4: bool) -> SimpleNamespace:
    hf_config = SimpleNamespace(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        q_lora_rank=RANK,
        o_lora_rank=RANK,
        head_dim=HEAD_DIM,
        qk_rope_head_dim=ROPE,
        o_groups=1,
        sliding_window=8,
        num_hidden_layers=1,
        compress_ratios=[RATIOS[layer]],
        rms_norm_eps=1e-6,
        max_position_embeddings=1024,
        index_topk=TOP_K,
        index_n_heads=INDEX_HEADS,
        index_head_dim=INDEX_DIM,
    )
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_config=hf_config, max_model_len=1024),
        quant_config=None,
        cache_config=SimpleNamespace(cache_dtype="fp8_ds_mla", block_size=256),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8, max_num_seqs=8),
        compilation_config=SimpleNamespace(static_forward_context={}),
        attention_config=SimpleNamespace(use_fp4_indexer_cache=fp4),
        use_v2_model_runner=v2,
    )


@contextmanager
def small_world(*, streams: bool = False) -> Iterator[None]:
    """Doubles in place of the parts, for constructor and forward."""
    from vllm.models.deepseek_v4 import attention

    world = {
        "MergedColumnParallelLinear": linear,
        "ColumnParallelLinear": linear,
        "RowParallelLinear": linear,
        "ReplicatedLinear": linear,
        "RMSNorm": Norm,
        "DeepseekV4SWACache": WindowCache,
        "DeepseekV4IndexerCache": IndexerCache,
        "DeepseekCompressor": Compressor,
        "SparseAttnIndexer": IndexerOp,
        "build_deepseek_v4_rope": lambda *_, **__: SimpleNamespace(cos_sin_cache=torch.ones(2)),
        "get_max_prefill_buffer_size": lambda *_: 1024,
        "get_tensor_model_parallel_world_size": lambda: 1,
        "fused_q_kv_rmsnorm": fused_q_kv_rmsnorm,
        "fused_indexer_q_rope_quant": fused_indexer_q_rope_quant,
    }
    with ExitStack() as stack:
        for name, double in world.items():
            stack.enter_context(mock.patch.object(attention, name, double))
        stack.enter_context(mock.patch("torch.cuda.Event", Event))
        stack.enter_context(mock.patch("torch.mm", mm))
        if streams:
            stack.enter_context(mock.patch("torch.cuda.stream", on_stream))
        stack.enter_context(recording_graphs())
        calls.clear()
        Event.open.clear()
        yield


def make_layer(kind: str, *, v2: bool, fp4: bool = False, streams: bool = False) -> Any:
    """A layer of the tree's class, from the tree's constructor. Call it inside `small_world`."""
    from vllm.models.deepseek_v4.attention import DeepseekV4Attention

    class Toy(DeepseekV4Attention):
        backend_cls = SimpleNamespace

        @classmethod
        def get_padded_num_q_heads(cls, num_heads: int) -> int:
            return PADDED_HEADS

        def forward_mqa(self, q: Any, kv: Any, positions: Any, output: Any) -> None:
            note("forward_mqa")
            assert not Event.open, "attention before an auxiliary stream was joined"
            window = self.swa_cache_layer.kv_cache.float().sum()
            chosen = self.topk_indices_buffer[: len(q)].float().sum(-1)
            written = self.compressor.cache.sum() if self.compressor is not None else 0
            output.copy_(q + window + written + chosen[:, None, None])

        def _o_proj(self, o: Any, positions: Any) -> Any:
            note("o_proj")
            return o.flatten(1) * 2

        def _fused_qnorm_rope_kv_insert(self, *arguments: Any) -> Any:
            note("kv_insert" if isinstance(arguments[3], dict) else "kv_insert skipped")
            return super()._fused_qnorm_rope_kv_insert(*arguments)

    layer = Toy(
        vllm_config(kind, v2=v2, fp4=fp4),
        PREFIX.rstrip("."),
        topk_indices_buffer=torch.full((8, TOP_K), -1, dtype=torch.int32),
        aux_stream_list=[Stream(f"aux{i}") for i in range(3)] if streams else None,
    )
    if layer.indexer is not None:
        layer.indexer.indexer_op.compressor = layer.indexer.compressor
    return layer


class Batch:
    """The runner's persistent buffers, and the metadata that it builds anew for each step."""

    def __init__(self) -> None:
        self.hidden = torch.zeros(TOKENS, HIDDEN)
        self.positions = torch.zeros(TOKENS, dtype=torch.int64)
        self.slots = torch.full((TOKENS,), -1, dtype=torch.int64)
        self.max_seq_len = 1

    def fill(self, seed: int, *, max_seq_len: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.hidden.copy_(torch.randn(TOKENS, HIDDEN, generator=generator))
        self.positions.copy_(torch.arange(TOKENS) + seed)
        self.slots.copy_(torch.randperm(SLOTS, generator=generator)[:TOKENS])
        self.max_seq_len = max_seq_len

    def metadata(self, layer: Any) -> dict[str, Any]:
        window = SimpleNamespace(slot_mapping=self.slots, block_size=BLOCK)
        built = {layer.swa_cache_layer.prefix: window, "slots": self.slots}
        if layer.indexer is not None:
            built[layer.indexer.k_cache.prefix] = SimpleNamespace(
                max_seq_len=self.max_seq_len, num_decode_tokens=0, num_prefill_tokens=TOKENS
            )
        return built


@contextmanager
def forward_context(metadata: Any, mode: str) -> Iterator[None]:
    from vllm.config import CUDAGraphMode
    from vllm.forward_context import override_forward_context

    context: Any = SimpleNamespace(
        attn_metadata=metadata, cudagraph_runtime_mode=CUDAGraphMode[mode]
    )
    with override_forward_context(context):
        yield


def capture(layer: Any, batch: Batch, *, metadata: Any, mode: str = "PIECEWISE") -> Any:
    """Capture one forward. Returns the capture and the output, whose memory replays write."""
    from vllm.compilation.breakable_cudagraph import BreakableCUDAGraphCapture

    captured = BreakableCUDAGraphCapture()
    with forward_context(metadata, mode), captured:
        output = layer(batch.positions, batch.hidden)
    return captured, output


def replay(captured: Any, layer: Any, batch: Batch, mode: str = "PIECEWISE") -> None:
    with forward_context(batch.metadata(layer), mode):
        captured.replay()


def run_eagerly(layer: Any, batch: Batch) -> torch.Tensor:
    with forward_context(batch.metadata(layer), "NONE"):
        return layer(batch.positions, batch.hidden)


def caches(layer: Any) -> list[torch.Tensor]:
    """All that a forward leaves behind for later ones."""
    found = [layer.swa_cache_layer.kv_cache]
    if layer.compressor is not None:
        found.append(layer.compressor.cache)
    if layer.indexer is not None:
        found += [layer.indexer.compressor.cache, layer.topk_indices_buffer[:TOKENS]]
    return found
