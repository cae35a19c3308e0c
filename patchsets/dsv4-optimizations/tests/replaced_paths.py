"""The kernels that the optimizations replace, where this machine has them.

DeepGEMM comes as the package that vLLM's release bundles, vLLM's own CUDA operators as a library
built from the pin's sources. The environment says where they are; without them the comparisons
that need them do not take place, and nothing is switched on by them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

DEEP_GEMM = "DSV4PORT_DEEP_GEMM"  # The folder that holds the package deep_gemm.
UPSTREAM_OPS = "DSV4PORT_UPSTREAM_OPS"  # A library that registers torch.ops._C.


def deep_gemm() -> ModuleType | None:
    folder = os.environ.get(DEEP_GEMM)
    if not folder:
        return None
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import deep_gemm as module

    # As vLLM does on devices with programmatic dependent launch.
    module.set_pdl(True)
    return module


def upstream_ops() -> Any | None:
    library = os.environ.get(UPSTREAM_OPS)
    if not library:
        return None
    torch.ops.load_library(str(Path(library).resolve()))
    return torch.ops._C


def einsum(
    module: ModuleType,
    a: torch.Tensor,
    a_scale: torch.Tensor,
    w: torch.Tensor,
    w_scale: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """The O projection as upstream runs it on SM90."""
    module.fp8_einsum("bhr,hdr->bhd", (a, a_scale), (w, w_scale), out, recipe=(1, 128, 128))


def quantize(ops: Any, x: torch.Tensor, q: torch.Tensor, scale: torch.Tensor, ue8m0: bool) -> None:
    ops.per_token_group_fp8_quant(x, q, scale, 128, 1e-10, -448.0, 448.0, ue8m0, True, True)


def column_scales(tokens: int, groups: int, device: str) -> torch.Tensor:
    """Scales as QuantFP8 lays them out for DeepGEMM."""
    aligned = -(-tokens // 4) * 4
    return torch.empty_strided((tokens, groups), (1, aligned), device=device)
