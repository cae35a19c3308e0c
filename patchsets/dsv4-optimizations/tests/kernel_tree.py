"""The kernels of a vLLM tree, loaded without vLLM's dependencies.

Modules of the tree are imported by their real names, from their real files. What they import of
the rest of vLLM is replaced by the few names below, so a machine needs torch and triton only. The
op registration is torch's own.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

INV_ROPE = "vllm.models.deepseek_v4.common.ops.fused_inv_rope_fp8_quant"
NVIDIA_OPS = "vllm.models.deepseek_v4.nvidia.ops"
SPARSE_PREFILL = "vllm.v1.attention.ops.sparse_prefill"

# Packages whose own __init__ would pull in the model; their modules are reached all the same.
_PACKAGES = (
    "vllm",
    "vllm.model_executor",
    "vllm.model_executor.layers",
    "vllm.model_executor.layers.fusion",
    "vllm.model_executor.layers.quantization",
    "vllm.model_executor.layers.quantization.utils",
    "vllm.models",
    "vllm.models.deepseek_v4",
    "vllm.models.deepseek_v4.common",
    "vllm.models.deepseek_v4.common.ops",
    "vllm.models.deepseek_v4.nvidia",
    "vllm.models.deepseek_v4.nvidia.ops",
    "vllm.utils",
    "vllm.v1",
    "vllm.v1.attention",
    "vllm.v1.attention.ops",
)


class KernelTree:
    """One tree a process: vLLM's names can stand for one set of files only."""

    def __init__(self, root: Path) -> None:
        import torch
        import triton
        import triton.language as tl

        if "vllm" in sys.modules:
            raise RuntimeError("vllm is imported already; kernels cannot come from another tree")
        self.root = root
        for name in _PACKAGES:
            package = ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")))]
            sys.modules[name] = package
        sys.dont_write_bytecode = True  # The tree is under verification.

        self.platform = Platform(torch)
        self.einsum_calls: list[tuple[Any, dict[str, Any]]] = []
        self.einsum: Callable[..., None] = _no_einsum
        _stub("vllm.platforms", current_platform=self.platform)
        _stub("vllm.triton_utils", triton=triton, tl=tl)
        _stub("vllm.envs", VLLM_BATCH_INVARIANT=False)
        _stub("vllm.utils.torch_utils", direct_register_custom_op=_register_op(torch))
        _stub(
            "vllm.utils.deep_gemm",
            get_tma_aligned_size=_tma_aligned_size,
            fp8_einsum=lambda *args, **kwargs: self._einsum(*args, **kwargs),
        )
        _stub("vllm.model_executor.layers.activation", SiluAndMulWithClamp=ClampedSwiglu)
        _stub(
            "vllm.model_executor.layers.quantization.utils.quant_utils",
            QuantKey=QuantKey,
            kFp8Dynamic128Sym=QuantKey.FP8_DYNAMIC_128,
        )

    def has(self, name: str) -> bool:
        return self.root.joinpath(*name.split(".")).with_suffix(".py").is_file()

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(name)

    def _einsum(self, *args: Any, **kwargs: Any) -> None:
        self.einsum_calls.append((args, kwargs))
        self.einsum(*args, **kwargs)


class QuantKey(enum.Enum):
    """Stands in for vLLM's key of how an activation is quantized."""

    FP8_DYNAMIC_128 = "fp8, one scale for 128 values of a token"
    OTHER = "anything else"


class ClampedSwiglu:
    """Stands in for ``SiluAndMulWithClamp``: the numbers it was built with."""

    def __init__(self, swiglu_limit: float, alpha: float = 1.0, beta: float = 0.0) -> None:
        self.swiglu_limit = swiglu_limit
        self.alpha = alpha
        self.beta = beta


class Platform:
    """Stands in for ``current_platform``; tests may set ``capability``."""

    def __init__(self, torch: ModuleType) -> None:
        self.on_gpu: bool = torch.cuda.is_available()
        found = torch.cuda.get_device_capability() if self.on_gpu else None
        self.capability: tuple[int, int] | None = found

    def is_cuda(self) -> bool:
        return self.capability is not None

    def is_arch_support_pdl(self) -> bool:
        return self.on_gpu and self.capability is not None and self.capability[0] >= 9

    def get_device_capability(self) -> SimpleNamespace | None:
        if self.capability is None:
            return None
        return SimpleNamespace(major=self.capability[0], minor=self.capability[1])

    def is_device_capability_family(self, family: int) -> bool:
        return self.capability is not None and self.capability[0] == family // 10


def _stub(name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    setattr(sys.modules[parent], leaf, module)


def _tma_aligned_size(size: int, element_size: int) -> int:
    per_line = 16 // element_size
    return -(-size // per_line) * per_line


def _no_einsum(*_: Any, **__: Any) -> None:
    raise AssertionError("fp8_einsum was called")


def _register_op(torch: ModuleType) -> Callable[..., None]:
    library = torch.library.Library("vllm", "FRAGMENT")

    def register(
        op_name: str,
        op_func: Callable[..., Any],
        mutates_args: list[str] | None = None,
        fake_impl: Callable[..., Any] | None = None,
    ) -> None:
        schema = torch.library.infer_schema(op_func, mutates_args=mutates_args or [])
        library.define(op_name + schema)
        library.impl(op_name, op_func, dispatch_key="CompositeExplicitAutograd")
        if fake_impl is not None:
            library._register_fake(op_name, fake_impl)

    return register
