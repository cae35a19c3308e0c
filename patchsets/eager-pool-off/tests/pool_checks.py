"""Checks that need vLLM itself: one process, one JSON object of results."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

# Nothing heavy before main(): the test beside this file only reads the names of the checks.
TOKENS, HEADS, PADDED_HEADS, HEAD_DIM, TOP_K, BLOCK = 3, 2, 4, 8, 4, 4


def config(*, ubatching: bool) -> SimpleNamespace:
    import torch

    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype=torch.bfloat16,
            hf_config=SimpleNamespace(
                vocab_size=32,
                hidden_size=16,
                hc_eps=1e-6,
                hc_mult=2,
                rms_norm_eps=1e-6,
                num_attention_heads=HEADS,
                head_dim=HEAD_DIM,
                index_n_heads=2,
                index_head_dim=64,
                index_topk=TOP_K,
                num_hidden_layers=2,
            ),
        ),
        quant_config=None,
        kernel_config=SimpleNamespace(moe_backend="auto"),
        parallel_config=SimpleNamespace(
            use_ubatching=ubatching,
            pipeline_parallel_size=1,
            tensor_parallel_size=1,
            data_parallel_size=1,
            enable_expert_parallel=False,
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8),
        speculative_config=None,
    )


@contextmanager
def model_of_doubles() -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """The tree's `DeepseekV4Model`, and with what its layers were built."""
    from torch import nn
    from vllm.models.deepseek_v4.nvidia import model

    layers: list[dict[str, Any]] = []

    def layer(*_: Any, **arguments: Any) -> nn.Module:
        layers.append(arguments)
        return nn.Identity()

    def make_layers(count: int, build: Any, prefix: str) -> Any:
        return 0, count, nn.ModuleList(build(prefix=f"{prefix}.{i}") for i in range(count))

    stage = SimpleNamespace(is_first_rank=True, is_last_rank=True)
    backend = SimpleNamespace(get_padded_num_q_heads=lambda heads: PADDED_HEADS)
    doubles = {
        "get_pp_group": lambda: stage,
        "get_tensor_model_parallel_world_size": lambda: 1,
        "_select_dsv4_attn_cls": lambda *_: backend,
        "VocabParallelEmbedding": lambda *_, **__: nn.Identity(),
        "RMSNorm": lambda *_: nn.Identity(),
        "DeepseekV4DecoderLayer": layer,
        "make_layers": make_layers,
        "current_platform": SimpleNamespace(device_type="cpu"),
    }
    with ExitStack() as stack:
        for name, double in doubles.items():
            stack.enter_context(mock.patch.object(model, name, double))
        stack.enter_context(mock.patch("torch.cuda.Stream", SimpleNamespace))
        yield model.DeepseekV4Model, layers


def the_model_builds_no_pool() -> None:
    from vllm.models.deepseek_v4.eager_scratch import DeepseekV4EagerScratchPool

    for ubatching in (False, True):
        built: list[Any] = []
        original = DeepseekV4EagerScratchPool.__init__

        def init(
            self: Any,
            *arguments: Any,
            into: list[Any] = built,
            then: Callable[..., None] = original,
        ) -> None:
            into.append(arguments)
            then(self, *arguments)

        with (
            mock.patch.object(DeepseekV4EagerScratchPool, "__init__", init),
            model_of_doubles() as (model, layers),
        ):
            assert model(vllm_config=config(ubatching=ubatching)).eager_scratch_pool is None
        assert built == []
        assert [arguments["eager_scratch_pool"] for arguments in layers] == [None, None]


def pool() -> Any:
    from vllm.models.deepseek_v4.eager_scratch import DeepseekV4EagerScratchPool

    return DeepseekV4EagerScratchPool(8, PADDED_HEADS, HEAD_DIM, 2, 64, TOP_K, "cpu")


def families_of_the_pool_share_their_bytes() -> None:
    """Why it is not built: who writes one family overwrites the other two."""
    import torch

    shared = pool()
    values, _, _ = shared.indexer_q_outputs(TOKENS)
    indices, _ = shared.global_topk_outputs(torch.zeros(TOKENS, TOP_K, dtype=torch.int32))
    scratch = shared.compressor_scratch(TOKENS)
    assert values.data_ptr() == indices.data_ptr() == scratch.data_ptr()
    indices.fill_(7)
    scratch.zero_()
    assert not indices.any()


def insert_without_a_pool_allocates() -> None:
    """The tree's own method calls the op that returns Q, and each call has a Q of its own."""
    import torch
    from vllm.models.deepseek_v4.attention import DeepseekV4Attention

    name = "fused_deepseek_v4_qnorm_rope_kv_rope_quant_insert"
    library = torch.library.Library("_C", "FRAGMENT")
    shape = (
        "Tensor cache, Tensor slots, Tensor positions, Tensor cos_sin, int padded_heads, "
        "float eps, int block_size"
    )
    called: list[str] = []

    def returning(q: Any, kv: Any, *_: Any) -> Any:
        called.append("returns")
        return q.new_zeros(q.shape[0], PADDED_HEADS, q.shape[2])

    def given(q: Any, kv: Any, out: Any, *_: Any) -> None:
        called.append("out")

    library.define(f"{name}(Tensor q, Tensor kv, {shape}) -> Tensor")
    library.define(f"{name}_out(Tensor q, Tensor kv, Tensor(a!) q_out, {shape}) -> ()")
    library.impl(name, returning, "CPU")
    library.impl(f"{name}_out", given, "CPU")

    window = SimpleNamespace(
        prefix="swa", kv_cache=torch.zeros(4, BLOCK, HEAD_DIM, dtype=torch.uint8)
    )
    layer: Any = SimpleNamespace(
        swa_cache_layer=window,
        rotary_emb=SimpleNamespace(cos_sin_cache=torch.zeros(1)),
        padded_heads=PADDED_HEADS,
        n_local_heads=HEADS,
        eps=1e-6,
        eager_scratch_pool=None,
    )
    slots = torch.zeros(TOKENS, dtype=torch.int64)
    metadata = {"swa": SimpleNamespace(slot_mapping=slots, block_size=BLOCK)}
    arguments = (
        torch.zeros(TOKENS, HEADS, HEAD_DIM),
        torch.zeros(TOKENS, HEAD_DIM),
        torch.zeros(TOKENS, dtype=torch.int64),
        metadata,
    )
    insert = DeepseekV4Attention._fused_qnorm_rope_kv_insert
    first, second = (insert(layer, *arguments) for _ in range(2))
    assert first.data_ptr() != second.data_ptr()
    assert called == ["returns", "returns"]
    layer.eager_scratch_pool = pool()
    insert(layer, *arguments)
    assert called[2:] == ["out"]


def global_topk_without_a_pool_is_the_same() -> None:
    """The tree's kernel, interpreted: equal numbers in memory of their own."""
    import torch
    from vllm.models.deepseek_v4.attention import DeepseekV4Attention
    from vllm.models.deepseek_v4.common.ops.cache_utils import (
        compute_global_topk_indices_and_lens,
    )

    local = torch.tensor([[0, 5, -1, -1], [1, 2, 3, -1], [9, -1, -1, -1]], dtype=torch.int32)
    rest = (
        torch.tensor([0, 0, 1], dtype=torch.int32),
        torch.tensor([[4, 6, 8], [1, 3, 5]], dtype=torch.int32),
        BLOCK,
        torch.tensor([True, True, True]),
    )
    buffers = DeepseekV4Attention._global_topk_output_buffers
    without: Any = SimpleNamespace(compress_ratio=4, eager_scratch_pool=None)
    within: Any = SimpleNamespace(compress_ratio=4, eager_scratch_pool=pool())
    assert buffers(without, local) is None
    plain = compute_global_topk_indices_and_lens(local, *rest, output_buffers=None)
    again = compute_global_topk_indices_and_lens(local, *rest, output_buffers=None)
    pooled = compute_global_topk_indices_and_lens(
        local, *rest, output_buffers=buffers(within, local)
    )
    assert plain[0].data_ptr() != again[0].data_ptr()
    assert all(torch.equal(a, b) for a, b in zip(plain, pooled, strict=True))
    assert plain[1].tolist() == [2, 3, 1]


CHECKS = (
    the_model_builds_no_pool,
    families_of_the_pool_share_their_bytes,
    insert_without_a_pool_allocates,
    global_topk_without_a_pool_is_the_same,
)


def main() -> None:
    results = {}
    for check in CHECKS:
        try:
            check()
        except Exception:
            results[check.__name__] = traceback.format_exc()
        else:
            results[check.__name__] = ""
    print(json.dumps(results))


if __name__ == "__main__":
    main()
