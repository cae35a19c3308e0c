"""Modules of the patched tree, a deployment inside the contract, and stand-ins for vLLM."""

from __future__ import annotations

import ast
import enum
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

POLICY = "vllm/models/deepseek_v4/dsv4port_policy.py"
RUNTIME = "vllm/v1/worker/dsv4port_runtime.py"
# From 0.27.0 on upstream has what the patch does.
OWN_SCRATCH = ("v0.24.0", "v0.26.0")

CompilationMode = enum.IntEnum("CompilationMode", {"NONE": 0, "VLLM_COMPILE": 3})
CUDAGraphMode = enum.Enum("CUDAGraphMode", {"NONE": 0, "FULL": 2, "FULL_DECODE_ONLY": (2, 0)})
AttentionBackendEnum = enum.Enum(
    "AttentionBackendEnum", ["FLASHMLA", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_DSV4"]
)


class dtype:
    """Has the class name and the repr of a ``torch.dtype``, which is all the contract reads."""

    def __repr__(self) -> str:
        return "torch.bfloat16"


def model(**identity: Any) -> SimpleNamespace:
    hf_config = SimpleNamespace(
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
        **identity,
    )
    return SimpleNamespace(
        hf_config=hf_config,
        dtype=dtype(),
        quantization="deepseek_v4_fp8",
        model_impl="auto",
        use_mla=True,
        is_moe=True,
        is_hybrid=False,
    )


@pytest.fixture
def deployment() -> SimpleNamespace:
    """DeepSeek-V4-Flash-Base with four drafts on eight CUDA devices, as a ``VllmConfig``."""
    return SimpleNamespace(
        model_config=model(architectures=["DeepseekV4ForCausalLM"], model_type="deepseek_v4"),
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
        scheduler_config=SimpleNamespace(
            max_num_seqs=64, max_num_batched_tokens=8195, async_scheduling=True
        ),
        compilation_config=SimpleNamespace(
            mode=CompilationMode["NONE"],
            cudagraph_mode=CUDAGraphMode["FULL_DECODE_ONLY"],
            cudagraph_capture_sizes=[5, 10, 20, 40, 80, 160, 320],
            static_forward_context={},
        ),
        attention_config=SimpleNamespace(backend=AttentionBackendEnum["FLASHMLA_SPARSE"]),
        speculative_config=SimpleNamespace(
            method="mtp",
            num_speculative_tokens=4,
            num_speculative_tokens_per_batch_size=None,
            draft_model_config=model(
                architectures=["DeepSeekV4MTPModel"], model_type="deepseek_mtp"
            ),
        ),
    )


# One change of a deployment for each way out of the contract.
OUTSIDE: dict[str, tuple[str, Any]] = {
    "another model": ("model_config.hf_config.model_type", "deepseek_v3"),
    "another size of it": ("model_config.hf_config.hidden_size", 7168),
    "another sharding": ("parallel_config.tensor_parallel_size", 4),
    "expert parallelism": ("parallel_config.enable_expert_parallel", True),
    "prefill split over ranks": ("parallel_config.prefill_context_parallel_size", 2),
    "another cache dtype": ("cache_config.cache_dtype", "bfloat16"),
    "another backend": (
        "attention_config.backend",
        AttentionBackendEnum["FLASHINFER_MLA_SPARSE_DSV4"],
    ),
    "another graph mode": ("compilation_config.cudagraph_mode", CUDAGraphMode["FULL"]),
    "compiled": ("compilation_config.mode", CompilationMode["VLLM_COMPILE"]),
    "no drafts": ("speculative_config", None),
    "drafts of another method": ("speculative_config.method", "eagle"),
    "one sequence at a time": ("scheduler_config.max_num_seqs", 1),
    "LoRA": ("lora_config", SimpleNamespace(max_loras=1)),
}


@pytest.fixture(params=OUTSIDE)
def outside(request: pytest.FixtureRequest, deployment: SimpleNamespace) -> SimpleNamespace:
    """The deployment with one change that takes it out of the contract."""
    path, value = OUTSIDE[request.param]
    *owners, name = path.split(".")
    owner = deployment
    for part in owners:
        owner = getattr(owner, part)
    setattr(owner, name, value)
    return deployment


class Platform:
    """Stands in for ``vllm.platforms.current_platform``."""

    def __init__(self) -> None:
        self.name = "cuda"

    @property
    def device_name(self) -> str:
        return self.name

    def is_cuda(self) -> bool:
        return self.name == "cuda"

    def is_out_of_tree(self) -> bool:
        return self.name == "musa"


@pytest.fixture(scope="session")
def policy(tree_module: Callable[[str], ModuleType]) -> ModuleType:
    return tree_module(POLICY)


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def deployment_on_musa(deployment: SimpleNamespace, platform: Platform) -> SimpleNamespace:
    """The same deployment on eight MUSA devices."""
    platform.name = "musa"
    deployment.attention_config.backend = AttentionBackendEnum["FLASHMLA"]
    return deployment


@pytest.fixture
def runtime(
    tree_module: Callable[[str], ModuleType],
    policy: ModuleType,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> ModuleType:
    """The tree's runtime policy and contract, on a platform that the test chooses."""
    module = tree_module(RUNTIME)
    stand_ins = {
        "vllm": {},
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.platforms": {"current_platform": platform},
        "vllm.models": {},
        "vllm.models.deepseek_v4": {"dsv4port_policy": policy},
        "vllm.v1": {},
        "vllm.v1.worker": {},
    }
    for name, content in stand_ins.items():
        package = ModuleType(name)
        vars(package).update(content)
        monkeypatch.setitem(sys.modules, name, package)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, package)
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.dsv4port_runtime", module)
    return module


@pytest.fixture(scope="session")
def own_scratch(pin: str) -> None:
    """Only where the series has the patch of the index scratch."""
    if pin not in OWN_SCRATCH:
        pytest.skip("at this pin upstream takes the index scratch from the workspace itself")


@pytest.fixture(scope="session")
def upstreams_scratch(pin: str) -> None:
    if pin in OWN_SCRATCH:
        pytest.skip("at this pin upstream allocates the index scratch in every chunk")


@pytest.fixture
def method_of(vllm_tree: Path) -> Callable[[str, str, str], ast.FunctionDef]:
    """The syntax tree of a method: path in the tree, class, name."""

    def find(path: str, owner: str, name: str) -> ast.FunctionDef:
        module = ast.parse((vllm_tree / path).read_text(encoding="utf-8"))
        (found,) = (
            method
            for node in module.body
            if isinstance(node, ast.ClassDef) and node.name == owner
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name == name
        )
        return found

    return find


@pytest.fixture(scope="session")
def importable_tree(vllm_tree: Path, triton_interpreter: None) -> Path:
    """The tree as `import vllm`, its Triton kernels interpreted on the CPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # The tree is under verification: a bytecode cache would be an untracked file in it.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(vllm_tree))
    import vllm

    # Tests of other patchsets put stand-ins there; they need a process of their own.
    found = Path(str(getattr(vllm, "__file__", "a stand-in"))).resolve()
    if not found.is_relative_to(vllm_tree):
        pytest.fail(f"`import vllm` found {found}, not {vllm_tree}", pytrace=False)
    return vllm_tree
