"""A config that matches the contract, made of plain sections."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

CompilationMode = enum.Enum("CompilationMode", ["NONE", "VLLM_COMPILE"])
CUDAGraphMode = enum.Enum("CUDAGraphMode", ["NONE", "FULL_DECODE_ONLY", "FULL"])
AttentionBackendEnum = enum.Enum(
    "AttentionBackendEnum",
    ["FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"],
)


class dtype:
    """Has the class name and the repr of a ``torch.dtype``; torch is not needed for it."""

    def __repr__(self) -> str:
        return "torch.bfloat16"


def matching_config(speculation: bool = True) -> Any:
    """DeepSeek-V4-Flash-Base on eight ranks, as the contract wants it."""
    speculative = SimpleNamespace(
        method="mtp", num_speculative_tokens=4, num_speculative_tokens_per_batch_size=None
    )
    return SimpleNamespace(
        model_config=SimpleNamespace(
            dtype=dtype(),
            quantization="deepseek_v4_fp8",
            model_impl="auto",
            use_mla=True,
            is_moe=True,
            is_hybrid=False,
            hf_config=SimpleNamespace(
                architectures=["DeepseekV4ForCausalLM"],
                model_type="deepseek_v4",
                hidden_size=4096,
                num_hidden_layers=43,
                num_attention_heads=64,
                num_key_value_heads=1,
                head_dim=512,
                vocab_size=129280,
                n_routed_experts=256,
                num_experts_per_tok=6,
                n_shared_experts=1,
                moe_intermediate_size=2048,
                expert_dtype="fp8",
                hidden_act="silu",
                swiglu_limit=10.0,
                index_topk=512,
            ),
        ),
        quant_config=SimpleNamespace(weight_block_size=[128, 128]),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=8,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            enable_expert_parallel=False,
            enable_dbo=False,
            use_ubatching=False,
            disable_custom_all_reduce=False,
        ),
        lora_config=None,
        cache_config=SimpleNamespace(cache_dtype="fp8_ds_mla"),
        scheduler_config=SimpleNamespace(max_num_seqs=64, async_scheduling=True),
        compilation_config=SimpleNamespace(
            mode=CompilationMode.NONE,
            cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY,
            cudagraph_capture_sizes=[1, 2, 4, 8],
        ),
        attention_config=SimpleNamespace(backend=AttentionBackendEnum.FLASHMLA_SPARSE),
        speculative_config=speculative if speculation else None,
    )
