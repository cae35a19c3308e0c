"""Checks that need vLLM itself, imported from the tree: one process, one JSON object of results.

Run as a program with the tree on PYTHONPATH. A check that raises is reported with its traceback;
the test beside this file turns each into one outcome.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def block_kernel(**members: Any) -> Any:
    """A block-FP8 linear kernel without its constructor, which needs a device."""
    import torch
    from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import (
        Fp8BlockScaledMMLinearKernel,
    )

    class Recording(Fp8BlockScaledMMLinearKernel):
        def apply_block_scaled_mm(self, A: Any, B: Any, As: Any, Bs: Any) -> Any:
            self.calls.append((A, B, As, Bs))
            return torch.zeros(A.shape[0], B.shape[0], dtype=torch.bfloat16)

        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, None]:
            return True, None

    kernel = Recording.__new__(Recording)
    kernel.calls = []
    kernel.config = SimpleNamespace(out_dtype=torch.bfloat16)
    kernel.use_triton = False
    kernel.quant_fp8 = lambda x, *_, **__: (x.to(torch.float8_e4m3fn), torch.ones(x.shape[0], 1))
    vars(kernel).update(members)
    return kernel


def linear_layer(path: Any) -> Any:
    import torch

    layer = torch.nn.Module()
    layer.weight = torch.zeros(8, 4, dtype=torch.float8_e4m3fn)
    layer.weight_scale_inv = torch.ones(1, 1)
    if path is not None:
        layer.single_token_gemv = path
    return layer


class Path:
    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked = 0
        self.ran = 0

    def accepts(self, *_: Any) -> bool:
        self.asked += 1
        return self.answer

    def __call__(self, *_: Any) -> str:
        self.ran += 1
        return "gemv"


def linear_kernel_asks_the_layer() -> None:
    import torch

    x = torch.zeros(1, 4, dtype=torch.bfloat16)
    kernel = block_kernel()
    accepting, refusing = Path(True), Path(False)
    assert kernel.apply_weights(linear_layer(accepting), x) == "gemv"
    assert (accepting.ran, kernel.calls) == (1, [])
    assert kernel.apply_weights(linear_layer(refusing), x).shape == (1, 8)
    assert (refusing.asked, refusing.ran, len(kernel.calls)) == (1, 0, 1)


def linear_kernel_without_a_path_is_upstreams() -> None:
    import torch

    x = torch.zeros(3, 4, dtype=torch.bfloat16)
    kernel = block_kernel()
    assert kernel.apply_weights(linear_layer(None), x).shape == (3, 8)
    assert len(kernel.calls) == 1


def linear_kernel_that_takes_bf16_does_not_ask() -> None:
    import torch

    class TakesBf16(type(block_kernel())):  # type: ignore[misc]
        apply_input_quant = False

    kernel = block_kernel()
    kernel.__class__ = TakesBf16
    path = Path(True)
    x = torch.zeros(1, 4, dtype=torch.bfloat16)
    assert kernel.apply_weights(linear_layer(path), x).shape == (1, 8)
    assert path.asked == 0


def linear_kernel_with_another_output_does_not_ask() -> None:
    import torch

    path = Path(True)
    kernel = block_kernel(config=SimpleNamespace(out_dtype=torch.float16))
    x = torch.zeros(1, 4, dtype=torch.bfloat16)
    assert kernel.apply_weights(linear_layer(path), x).dtype == torch.float16
    assert path.asked == 0


def linear_kernel_is_traced_without_a_break() -> None:
    """Every block-FP8 model with compilation goes through this function."""
    import torch

    kernel = block_kernel()
    layer = linear_layer(None)
    compiled = torch.compile(kernel.apply_weights, backend="eager", fullgraph=True)
    x = torch.zeros(3, 4, dtype=torch.bfloat16)
    assert compiled(layer, x).shape == (3, 8)


def inverse_rope_is_traced_without_a_break() -> None:
    import importlib

    import torch

    module = importlib.import_module("vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant")
    compiled = torch.compile(module.fused_inv_rope_fp8_quant, backend="eager", fullgraph=True)
    o = torch.randn(2, 2, 512).to(torch.bfloat16)
    arguments = (o, torch.arange(2), torch.randn(2, 64), 1, 2)
    for options in ({}, {"chunk_parallel": True, "scale_layout": "k_major"}):
        fp8, scale = compiled(*arguments, **options)
        assert fp8.shape == (2, 1, 1024)
        assert scale.shape == (2, 1, 8)


def deep_gemm_kernel(family: int, key: Any = None) -> Any:
    from vllm.model_executor.kernels.linear.scaled_mm import deep_gemm
    from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym

    deep_gemm.current_platform = SimpleNamespace(
        is_device_capability_family=lambda asked: asked == family
    )
    kernel = deep_gemm.DeepGemmFp8BlockScaledMMKernel.__new__(
        deep_gemm.DeepGemmFp8BlockScaledMMKernel
    )
    import torch

    kernel.config = SimpleNamespace(
        out_dtype=torch.bfloat16, activation_quant_key=key or kFp8Dynamic128Sym
    )
    kernel.calls = []

    def multiply(A: Any, B: Any, As: Any, Bs: Any) -> Any:
        kernel.calls.append((A, B, As, Bs))
        return torch.zeros(A.shape[0], B.shape[0], dtype=torch.bfloat16)

    kernel.apply_block_scaled_mm = multiply
    return kernel


def quantized(tokens: int = 3, **change: Any) -> Any:
    import torch
    from vllm.model_executor.layers.fusion.quant_activation import QuantizedActivation
    from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym

    fitting = {
        "data": torch.zeros(tokens, 256, dtype=torch.float8_e4m3fn),
        "scale": torch.ones(2, tokens).t(),
        "orig_dtype": torch.bfloat16,
        "orig_shape": torch.Size((tokens, 256)),
        "quant_key": kFp8Dynamic128Sym,
    }
    return QuantizedActivation(**fitting | change)


def down_layer() -> Any:
    import torch

    layer = torch.nn.Module()
    layer.weight = torch.zeros(4096, 256, dtype=torch.float8_e4m3fn)
    layer.weight_scale_inv = torch.ones(32, 2)
    return layer


def deep_gemm_consumes_a_quantized_activation() -> None:
    kernel = deep_gemm_kernel(90)
    layer, activation = down_layer(), quantized()
    out = kernel.apply_weights(layer, activation)
    assert out.shape == (3, 4096)
    ((a, b, a_scale, b_scale),) = kernel.calls
    assert a is activation.data
    assert a_scale is activation.scale
    assert b is layer.weight
    assert b_scale is layer.weight_scale_inv


def deep_gemm_says_which_activation_it_takes() -> None:
    from vllm.model_executor.layers.quantization.utils.quant_utils import (
        kFp8Dynamic128Sym,
        kFp8StaticTensorSym,
    )

    assert deep_gemm_kernel(90).input_quant_key() == kFp8Dynamic128Sym
    assert deep_gemm_kernel(100).input_quant_key() is None
    assert deep_gemm_kernel(90, kFp8StaticTensorSym).input_quant_key() is None


def deep_gemm_refuses_another_activation() -> None:
    import torch
    from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym

    for change in (
        {"quant_key": kFp8StaticTensorSym},
        {"scale": torch.ones(3, 2)},
        {"scale": torch.ones(1, 3).t()},
        {"scale": torch.ones(2, 3, dtype=torch.int32).t()},
        {"data": torch.zeros(3, 256, dtype=torch.bfloat16)},
        {"data": torch.zeros(3, 512, dtype=torch.float8_e4m3fn)[:, ::2]},
    ):
        kernel = deep_gemm_kernel(90)
        try:
            kernel.apply_weights(down_layer(), quantized(**change))
        except AssertionError:
            assert not kernel.calls
        else:
            raise AssertionError(f"took {change}")
    kernel = deep_gemm_kernel(100)
    try:
        kernel.apply_weights(down_layer(), quantized())
    except AssertionError:
        assert not kernel.calls
    else:
        raise AssertionError("took an activation on SM100")


def flashinfer_does_not_take_a_quantized_activation() -> None:
    from vllm.model_executor.kernels.linear.scaled_mm import flashinfer

    for name in (
        "FlashInferFp8BlockScaledMMKernel",
        "FlashInferFp8DeepGEMMDynamicBlockScaledKernel",
    ):
        cls = getattr(flashinfer, name)
        assert cls.input_quant_key(cls.__new__(cls)) is None


def the_attention_layer_decides_at_construction() -> None:
    """Through the real constructor of the layer; its base is replaced, for it needs a device."""
    import torch
    from contract_config import matching_config
    from vllm.models.deepseek_v4.attention import DeepseekV4Attention
    from vllm.models.deepseek_v4.nvidia import dsv4port_device, flashmla

    def base(self: Any, vllm_config: Any, prefix: str = "", *_: Any) -> None:
        torch.nn.Module.__init__(self)
        self.prefix = prefix

    DeepseekV4Attention.__init__ = base
    flashmla.compute_fp8_einsum_recipe = lambda: ((1, 128, 128), False)
    dsv4port_device.current_platform = SimpleNamespace(
        is_cuda=lambda: True,
        get_device_capability=lambda: SimpleNamespace(major=9, minor=0),
    )
    hinted = matching_config()
    hinted.attention_config.backend = None  # The layer's own backend fills in.
    for config in (matching_config(), hinted):
        layer = flashmla.DeepseekV4FlashMLAAttention(config, prefix="model.layers.0.attn")
        assert layer._inv_rope_chunks is True
        assert layer._o_proj_gemv_capability == (9, 0)
        assert layer._direct_out_checked is True
    other = matching_config()
    other.parallel_config.tensor_parallel_size = 4
    layer = flashmla.DeepseekV4FlashMLAAttention(other, prefix="model.layers.0.attn")
    assert layer._inv_rope_chunks is False
    assert layer._o_proj_gemv_capability is None
    assert layer._direct_out_checked is False

    seen: list[dict[str, Any]] = []
    flashmla.deep_gemm_fp8_o_proj = lambda *_, **options: seen.append(options)
    layer.rotary_emb = SimpleNamespace(cos_sin_cache=None)
    layer.wo_a = layer.wo_b = None
    layer.n_local_groups = layer.n_local_heads = layer.o_lora_rank = 1
    layer.nope_head_dim, layer.rope_head_dim = 448, 64
    layer._o_proj(None, None)
    assert seen[0]["chunk_parallel"] is False
    assert seen[0]["gemv_capability"] is None


def the_moe_installs_its_paths_at_construction() -> None:
    import torch
    from contract_config import matching_config
    from vllm.model_executor.layers.activation import SiluAndMulWithClamp
    from vllm.models.deepseek_v4.nvidia import dsv4port_device, model
    from vllm.models.deepseek_v4.nvidia.ops import gate_up_gemv

    capability = SimpleNamespace(major=9, minor=0)
    platform = SimpleNamespace(
        is_cuda=lambda: True,
        get_device_capability=lambda: capability,
        is_device_capability_family=lambda family: family == 90,
    )
    dsv4port_device.current_platform = model.current_platform = platform
    gate_up_gemv.GATE_UP_TILES = {
        gate_up_gemv_row(): gate_up_gemv.Tile("simt", 1, 4, 4, 4),
    }

    def experts(**change: Any) -> Any:
        gate_up = torch.nn.Module()
        gate_up.prefix, gate_up.tp_size = "model.layers.0.ffn.shared_experts.gate_up_proj", 8
        vars(gate_up).update(change)
        activation = SiluAndMulWithClamp.__new__(SiluAndMulWithClamp)
        torch.nn.Module.__init__(activation)
        activation.swiglu_limit, activation.alpha, activation.beta = 10.0, 1.0, 0.0
        return SimpleNamespace(gate_up_proj=gate_up, down_proj=torch.nn.Module(), act_fn=activation)

    def installed(config: Any, **change: Any) -> Any:
        owner = SimpleNamespace(shared_experts=experts(**change))
        model.DeepseekV4MoE._install_shared_expert_paths(owner, config)
        return owner.shared_experts.gate_up_proj.single_token_gemv

    assert isinstance(installed(matching_config()), gate_up_gemv.GateUpGemv)
    hinted = matching_config()
    hinted.attention_config.backend = None
    assert isinstance(installed(hinted), gate_up_gemv.GateUpGemv)
    assert installed(matching_config(), tp_size=4) is None
    other = matching_config()
    other.parallel_config.tensor_parallel_size = 4
    assert installed(other) is None


def gate_up_gemv_row() -> Any:
    from vllm.models.deepseek_v4.nvidia.ops.small_m_gemv_tiles import GemvShape

    return GemvShape(1, 512, 4096, 1, (9, 0), "float32")


def the_op_has_a_schema_with_defaults() -> None:
    """Callers that do not know the new arguments keep working."""
    import importlib

    import torch

    importlib.import_module("vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant")
    schema = torch.ops.vllm.fused_inv_rope_fp8_quant_kernel.default._schema
    added = {argument.name: argument.default_value for argument in schema.arguments[-2:]}
    assert added == {"chunk_parallel": False, "k_major_scales": False}


CHECKS: tuple[Callable[[], None], ...] = (
    linear_kernel_asks_the_layer,
    linear_kernel_without_a_path_is_upstreams,
    linear_kernel_that_takes_bf16_does_not_ask,
    linear_kernel_with_another_output_does_not_ask,
    linear_kernel_is_traced_without_a_break,
    inverse_rope_is_traced_without_a_break,
    deep_gemm_consumes_a_quantized_activation,
    deep_gemm_says_which_activation_it_takes,
    deep_gemm_refuses_another_activation,
    flashinfer_does_not_take_a_quantized_activation,
    the_op_has_a_schema_with_defaults,
    the_moe_installs_its_paths_at_construction,
    # Last: it replaces the base class's constructor.
    the_attention_layer_decides_at_construction,
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
