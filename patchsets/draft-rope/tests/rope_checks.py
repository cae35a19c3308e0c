"""Checks that need vLLM itself: one process, one JSON object of results."""

from __future__ import annotations

import copy
import itertools
import json
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

HEAD_DIM, ROPE_DIM, POSITIONS = 32, 16, 256
THETA, COMPRESS_THETA = 10000.0, 160000.0
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": POSITIONS // 4,
    "beta_fast": 32,
    "beta_slow": 1,
}
# (compress ratio, whether the layer is a draft's)
LAYERS = ((4, False), (128, False), (1, False), (1, True))


def flat_config(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        rope_theta=THETA, compress_rope_theta=COMPRESS_THETA, rope_parameters={**YARN, **changes}
    )


def nested_config(main: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        rope_theta=THETA,
        compress_rope_theta=COMPRESS_THETA,
        rope_parameters={"main": main, "compress": dict(YARN)},
    )


def build(config: Any, compress_ratio: int, draft: bool) -> Any:
    """The tree's function, without what `get_rope` kept from earlier calls."""
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers import rotary_embedding
    from vllm.models.deepseek_v4.common.rope import build_deepseek_v4_rope

    flag = {"use_unscaled_rope": True} if draft else {}
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu"))):
        rotary_embedding._ROPE_DICT.clear()
        return build_deepseek_v4_rope(
            config,
            head_dim=HEAD_DIM,
            rope_head_dim=ROPE_DIM,
            max_position_embeddings=POSITIONS,
            compress_ratio=compress_ratio,
            **flag,
        )


def plain(theta: float) -> Any:
    """cos and sin of RoPE as in Su et al., arXiv 2104.09864: [positions, dim], fp32."""
    import torch

    inverse = theta ** -(torch.arange(0, ROPE_DIM, 2, dtype=torch.float64) / ROPE_DIM)
    angles = torch.outer(torch.arange(POSITIONS, dtype=torch.float64), inverse)
    return torch.cat([angles.cos(), angles.sin()], -1).float()


def is_plain(rope: Any, theta: float) -> bool:
    import torch

    found = rope.cos_sin_cache
    expected = plain(theta)
    # The tree multiplies in fp32: one rounding of an angle below 256 is 1.5e-5.
    return (
        found.dtype == torch.float32
        and found.shape == expected.shape
        and bool(torch.allclose(found, expected, rtol=0, atol=5e-5))
    )


def the_config_is_not_written() -> None:
    for config in (flat_config(), nested_config(dict(YARN))):
        before = copy.deepcopy(vars(config))
        for compress_ratio, draft in LAYERS:
            build(config, compress_ratio, draft)
            assert vars(config) == before


def builds_in_either_order_are_the_same() -> None:
    import torch

    alone = {layer: build(flat_config(), *layer).cos_sin_cache for layer in LAYERS}
    for order in itertools.permutations(LAYERS):
        config = flat_config()
        for layer in order:
            assert torch.equal(build(config, *layer).cos_sin_cache, alone[layer]), (order, layer)


def draft_layers_are_plain() -> None:
    for scaling in (True, False):
        config = flat_config(apply_yarn_scaling=scaling, attn_factor=2.0)
        assert is_plain(build(config, 1, True), THETA)
    for main in (dict(YARN), {"rope_type": "default"}):
        assert is_plain(build(nested_config(main), 1, True), THETA)


def target_layers_keep_their_scaling() -> None:
    """As on the bare pin: `get_rope` with what it was given there."""
    import torch
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import get_rope

    for compress_ratio, theta in ((4, COMPRESS_THETA), (128, COMPRESS_THETA), (1, THETA)):
        found = build(flat_config(), compress_ratio, False)
        with set_current_vllm_config(VllmConfig(device_config=DeviceConfig("cpu"))):
            expected = get_rope(
                HEAD_DIM,
                max_position=POSITIONS,
                rope_parameters={
                    **YARN,
                    "rope_theta": theta,
                    "rope_type": "deepseek_yarn",
                    "mscale": 0,
                    "mscale_all_dim": 0,
                    "is_deepseek_v4": True,
                    "rope_dim": ROPE_DIM,
                },
                is_neox_style=False,
            )
        assert type(found) is type(expected)
        assert torch.equal(found.cos_sin_cache, expected.cos_sin_cache)
        assert not is_plain(found, theta)


def nested_parameters_are_chosen_by_layer() -> None:
    import torch

    config = nested_config({"rope_type": "default"})
    scaled = build(flat_config(), 4, False).cos_sin_cache
    assert torch.equal(build(config, 4, False).cos_sin_cache, scaled)
    assert torch.equal(build(config, 128, False).cos_sin_cache, scaled)
    window = build(config, 1, False)
    assert is_plain(window, THETA)
    assert type(window) is type(build(config, 4, False))
    yarn_in_main = build(nested_config(dict(YARN)), 1, False).cos_sin_cache
    assert torch.equal(yarn_in_main, build(flat_config(), 1, False).cos_sin_cache)


def nested_parameters_without_a_type_are_refused() -> None:
    try:
        build(nested_config({"factor": 4.0}), 1, False)
    except ValueError as error:
        assert "rope_parameters['main'] has no rope_type" in str(error)
    else:
        raise AssertionError("not refused")


def the_layer_asks_for_it_beyond_the_target() -> None:
    """The tree's constructor, as far as the rotary embedding."""
    from torch import nn
    from vllm.models.deepseek_v4 import attention

    class Reached(Exception):
        pass

    def rope(config: Any, **arguments: Any) -> None:
        raise Reached(arguments)

    class Layer(attention.DeepseekV4Attention):  # type: ignore[misc]
        @classmethod
        def get_padded_num_q_heads(cls, num_heads: int) -> int:
            return num_heads

        forward_mqa = _o_proj = None

    hf_config = SimpleNamespace(
        hidden_size=16,
        num_attention_heads=2,
        q_lora_rank=8,
        o_lora_rank=8,
        head_dim=HEAD_DIM,
        qk_rope_head_dim=ROPE_DIM,
        o_groups=1,
        sliding_window=8,
        num_hidden_layers=3,
        compress_ratios=[0, 4, 128],
        rms_norm_eps=1e-6,
        max_position_embeddings=POSITIONS,
    )
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=hf_config), quant_config=None, cache_config=None
    )
    asked = []
    linear = ("MergedColumnParallelLinear", "ColumnParallelLinear", "RowParallelLinear", "RMSNorm")
    for layer in range(5):
        with (
            mock.patch.object(attention, "build_deepseek_v4_rope", rope),
            mock.patch.object(attention, "get_tensor_model_parallel_world_size", lambda: 1),
            mock.patch.multiple(attention, **{n: lambda *_, **__: nn.Identity() for n in linear}),
        ):
            try:
                Layer(config, f"model.layers.{layer}.attn")
            except Reached as reached:
                arguments = reached.args[0]
                asked.append((arguments["compress_ratio"], arguments.get("use_unscaled_rope")))
    assert asked == [(1, False), (4, False), (128, False), (1, True), (1, True)]


CHECKS: tuple[Callable[[], None], ...] = (
    the_config_is_not_written,
    builds_in_either_order_are_the_same,
    draft_layers_are_plain,
    target_layers_keep_their_scaling,
    nested_parameters_are_chosen_by_layer,
    nested_parameters_without_a_type_are_refused,
    the_layer_asks_for_it_beyond_the_target,
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
