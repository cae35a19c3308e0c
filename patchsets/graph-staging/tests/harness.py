"""Runs the tree's real custom all-reduce without vLLM, a build or several GPUs.

`vllm` and its packages are replaced by empty ones whose search path is the tree: modules load from
their real files, but no package's `__init__` runs. What they need from elsewhere is replaced by the
small doubles below. The ops keep account of every address, as the C++ class does. Torch is imported
only by the functions that need it.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

KIB = 1024
MIB = 1024 * KIB
HIDDEN_SIZE = 4096
NUM_LAYERS = 43
OPS = 2 * NUM_LAYERS + 1
BYTES_PER_TOKEN = 2 * HIDDEN_SIZE
GRAPHS = [(5, 1), (10, 2), (20, 4), (40, 8), (80, 16), (160, 32), (320, 64)]

PACKAGES = (
    "vllm",
    "vllm.compilation",
    "vllm.distributed",
    "vllm.distributed.device_communicators",
    "vllm.models",
    "vllm.models.deepseek_v4",
)
CAR = "vllm.distributed.device_communicators"


class BatchDescriptor(NamedTuple):
    """The fields of the tree's own; `test_tree_anchors.py` compares them."""

    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    has_lora: bool = False


# --- A config that the contract holds for.

CompilationMode = enum.IntEnum("CompilationMode", {"NONE": 0, "VLLM_COMPILE": 3})
CUDAGraphMode = enum.Enum("CUDAGraphMode", ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY"])
AttentionBackendEnum = enum.Enum(
    "AttentionBackendEnum",
    ["FLASHMLA", "FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"],
)


class dtype:
    """Has the class name and the repr of a `torch.dtype`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


def flash_base_config(**changes: Any) -> SimpleNamespace:
    """DeepSeek-V4-Flash-Base with four drafts; `changes` are dotted paths with `__` for a dot."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(
                architectures=["DeepseekV4ForCausalLM"],
                model_type="deepseek_v4",
                hidden_size=HIDDEN_SIZE,
                num_hidden_layers=NUM_LAYERS,
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
            dtype=dtype("bfloat16"),
            quantization="deepseek_v4_fp8",
            model_impl="auto",
            use_mla=True,
            is_moe=True,
            is_hybrid=False,
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
        cache_config=SimpleNamespace(cache_dtype="fp8"),
        scheduler_config=SimpleNamespace(
            max_num_seqs=64, max_num_batched_tokens=8195, async_scheduling=True
        ),
        compilation_config=SimpleNamespace(
            mode=CompilationMode.NONE,
            cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY,
            cudagraph_capture_sizes=[tokens for tokens, _ in GRAPHS],
        ),
        attention_config=SimpleNamespace(backend=AttentionBackendEnum.FLASHMLA_SPARSE),
        speculative_config=SimpleNamespace(
            method="mtp",
            num_speculative_tokens=4,
            num_speculative_tokens_per_batch_size=None,
        ),
        use_v2_model_runner=False,
    )
    for path, value in changes.items():
        *owners, name = path.split("__")
        owner: Any = config
        for step in owners:
            owner = getattr(owner, step)
        setattr(owner, name, value)
    return config


# --- Doubles.


class AllReduce(NamedTuple):
    """One call of `ops.all_reduce`; `reg_buffer` and `reg_size` are 0 if the input is read in
    place."""

    input_address: int
    nbytes: int
    reg_buffer: int
    reg_size: int
    captured: bool

    @property
    def address(self) -> int:
        return self.reg_buffer or self.input_address


class FakeOps(ModuleType):
    """The custom all-reduce ops: memory by number, and the account of captured addresses."""

    def __init__(self, capturing: Callable[[], bool]) -> None:
        super().__init__("vllm._custom_ops")
        self.capturing = capturing
        self.next_address = 1 << 44
        self.buffers: list[tuple[int, int]] = []
        self.calls: list[AllReduce] = []
        self.pending: list[int] = []
        self.registered: list[list[int]] = []

    def meta_size(self) -> int:
        return 2048

    def allocate_shared_buffer_and_handle(self, size: int) -> tuple[int, int]:
        address = self.next_address
        self.next_address += size + 4096
        self.buffers.append((address, size))
        return address, address

    def open_mem_handle(self, handle: int) -> int:
        return handle + (1 << 50)

    def init_custom_ar(self, *arguments: Any) -> int:
        return 1

    def register_buffer(self, pointer: int, buffers: list[int]) -> None:
        assert pointer == 1

    def all_reduce(self, pointer: int, inp: Any, out: Any, reg_buffer: int, reg_size: int) -> None:
        call = AllReduce(
            inp.data_ptr(),
            inp.numel() * inp.element_size(),
            reg_buffer,
            reg_size,
            self.capturing(),
        )
        # As the C++ checks it.
        assert not reg_buffer or call.nbytes <= reg_size
        self.calls.append(call)
        if call.captured:
            self.pending.append(call.address)

    def get_graph_buffer_ipc_meta(self, pointer: int) -> tuple[list[int], list[int]]:
        return [0] * len(self.pending), list(self.pending)

    def register_graph_buffers(self, pointer: int, handles: Any, offsets: Any) -> None:
        self.registered.append(list(self.pending))
        self.pending.clear()

    def dispose(self, pointer: int) -> None: ...

    def free_shared_buffer(self, address: int) -> None: ...

    @property
    def data_buffer(self) -> tuple[int, int]:
        """Address and size of the buffer that eager inputs are copied to."""
        return self.buffers[1]

    def owns(self, address: int) -> bool:
        """Whether an address lies in memory that lives as long as the communicator."""
        return any(start <= address < start + size for start, size in self.buffers)


class MirrorDist:
    """A process group of which only this rank is real; the others say what it says.

    `mirror` may change what a peer says: it gets the rank and this rank's value.
    """

    Backend = SimpleNamespace(NCCL="nccl")

    def __init__(self, world_size: int = 8) -> None:
        self.world_size = world_size
        self.mirror: Callable[[int, Any], Any] = lambda rank, value: value
        self.broadcasts: list[Any] = []

    def get_backend(self, group: Any) -> str:
        return "gloo"

    def get_rank(self, group: Any = None) -> int:
        return 0

    def get_world_size(self, group: Any = None) -> int:
        return self.world_size

    def get_process_group_ranks(self, group: Any) -> list[int]:
        return list(range(self.world_size))

    def all_gather(self, outputs: list[Any], tensor: Any, group: Any) -> None:
        for index, output in enumerate(outputs):
            output.copy_(tensor + index)

    def all_gather_object(self, outputs: list[Any], value: Any, group: Any) -> None:
        outputs[:] = [value] * len(outputs)

    def broadcast_object_list(self, box: list[Any], src: int, group: Any, device: str) -> None:
        assert device == "cpu"
        if src == 0:
            self.broadcasts.append(list(box))
            return
        values = list(self.broadcasts[-1])
        for index, value in enumerate(values):
            if dataclasses.is_dataclass(value) and hasattr(value, "rank"):
                values[index] = dataclasses.replace(value, rank=src)  # type: ignore[type-var]
        box[:] = [self.mirror(src, value) for value in values]


class FakePlatform:
    """A CUDA device of some capability, NVLink between all."""

    def __init__(self, capability: str = "9.0") -> None:
        self.capability = capability

    def get_device_capability(self) -> Any:
        return SimpleNamespace(
            as_version_str=lambda: self.capability, major=int(self.capability.split(".")[0])
        )

    def is_cuda(self) -> bool:
        return True

    def is_rocm(self) -> bool:
        return False

    def is_cuda_alike(self) -> bool:
        return True

    def visible_device_id_to_physical_device_id(self, index: int) -> int:
        return index

    def is_fully_connected(self, devices: list[int]) -> bool:
        return True


# --- The tree, loaded.


@contextmanager
def tree_packages(tree: Path) -> Iterator[None]:
    """`import vllm.x` takes the file of the tree; what was imported before comes back after."""
    saved = {name: module for name, module in sys.modules.items() if is_vllm(name)}
    for name in saved:
        del sys.modules[name]
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        for name in PACKAGES:
            package = ModuleType(name)
            package.__path__ = [str(tree.joinpath(*name.split(".")))]
            add_module(name, package)
        yield
    finally:
        sys.dont_write_bytecode = writes_bytecode
        for name in [name for name in sys.modules if is_vllm(name)]:
            del sys.modules[name]
        sys.modules.update(saved)


def is_vllm(name: str) -> bool:
    return name == "vllm" or name.startswith("vllm.")


def add_module(name: str, module: ModuleType, **attributes: Any) -> None:
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module
    package, _, leaf = name.rpartition(".")
    if package:
        setattr(sys.modules[package], leaf, module)


def shared_bytes(communicator: Any) -> int:
    """What collectives use of the data buffer, from its start.

    Up to vLLM 0.26 that is all-reduce alone; from 0.27 on all-gather and reduce-scatter share it.
    """
    limits = ("max_size", "max_all_gather_size", "max_reduce_scatter_size")
    return max(getattr(communicator, name, 0) for name in limits)


def runner_v2_profiles(tree: Path) -> bool:
    """Whether runner V2 profiles by capturing, from vLLM 0.29 on: there it is staged as well."""
    path = tree / "vllm/v1/worker/gpu/cudagraph_utils.py"
    return "\ndef profile_cudagraph_memory(" in path.read_text(encoding="utf-8")


def all_reduce_limits(tree: Path) -> dict[str, dict[int, int]]:
    """`CUSTOM_ALL_REDUCE_MAX_SIZES` of the tree, without importing its module."""
    path = tree / "vllm/distributed/device_communicators/all_reduce_utils.py"
    names = ("KiB", "MiB", "CUSTOM_ALL_REDUCE_MAX_SIZES")
    constants = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names
    ]
    scope: dict[str, Any] = {}
    exec(compile(ast.Module(constants, []), str(path), "exec"), scope)
    limits: dict[str, dict[int, int]] = scope["CUSTOM_ALL_REDUCE_MAX_SIZES"]
    return limits


class Car:
    """The tree's custom all-reduce on doubles; built by `custom_all_reduce`."""

    def __init__(self, tree: Path, world_size: int, capability: str) -> None:
        import torch

        self.torch = torch
        self.is_capturing = False
        self.descriptor: BatchDescriptor | None = None
        self.ops = FakeOps(lambda: self.is_capturing)
        self.dist = MirrorDist(world_size)
        self.platform = FakePlatform(capability)
        self._add_doubles(tree)
        self.module = importlib.import_module(f"{CAR}.custom_all_reduce")
        self.module.dist = self.dist  # type: ignore[attr-defined]
        self.patched = (tree / "vllm/distributed/cudagraph_capture_phase.py").is_file()
        if self.patched:
            self.staging = importlib.import_module(f"{CAR}.car_capture_staging")
            self.staging.dist = self.dist  # type: ignore[attr-defined]
            self.mode = importlib.import_module(f"{CAR}.car_capture_mode")
            self.arena = importlib.import_module(f"{CAR}.car_graph_staging")
            self.phase = importlib.import_module("vllm.distributed.cudagraph_capture_phase")
        self.counter = importlib.import_module("vllm.compilation.counter").compilation_counter

    def _add_doubles(self, tree: Path) -> None:
        def module(name: str, **attributes: Any) -> None:
            add_module(name, ModuleType(name), **attributes)

        module("vllm.envs", VLLM_SKIP_P2P_CHECK=False)
        add_module("vllm._custom_ops", self.ops)
        module("vllm.logger", init_logger=logging.getLogger)
        module("vllm.platforms", current_platform=self.platform)
        module(
            "vllm.forward_context",
            is_forward_context_available=lambda: self.descriptor is not None,
            get_forward_context=lambda: SimpleNamespace(batch_descriptor=self.descriptor),
        )
        module(
            "vllm.distributed.parallel_state",
            in_the_same_node_as=lambda group, source_rank: [True] * self.dist.world_size,
        )
        module("vllm.distributed.utils", is_weak_contiguous=lambda tensor: tensor.is_contiguous())
        module(
            f"{CAR}.all_reduce_utils",
            CUSTOM_ALL_REDUCE_MAX_SIZES=all_reduce_limits(tree),
            gpu_p2p_access_check=lambda *ranks: True,
        )

    def request(self, config: Any, **arguments: Any) -> Any:
        arguments = {"platform": "cuda", "world_size": self.dist.world_size, **arguments}
        return self.mode.staging_request(config, **arguments)

    def communicator(self, config: Any = None, *, request: Any = None, **arguments: Any) -> Any:
        """A `CustomAllreduce`, with what the config asks for if the tree knows how to ask."""
        if self.patched:
            if config is not None:
                request = self.request(config)
            if request is not None and isinstance(request, self.mode.StagingDecline):
                request = None
            arguments["staging_request"] = request
        return self.module.CustomAllreduce(group="cpu", device="cpu:0", **arguments)

    @contextmanager
    def phases(self, name: str | None) -> Iterator[None]:
        """The phase as the runner names it, where the tree has a way to."""
        if name is None or not self.patched:
            yield
            return
        with self.phase.cudagraph_capture_phase(self.arena.CapturePhase[name]):
            yield

    def forward(
        self,
        communicator: Any,
        num_tokens: int,
        num_reqs: int,
        *,
        ops: int = OPS,
        warm_up: bool = False,
        width: int = HIDDEN_SIZE,
    ) -> list[int]:
        """The all-reduces of one forward pass, captured unless it is a warm-up.

        Returns the addresses of the inputs. They are free, and may be used again, on return: like
        those of a graph that was destroyed.
        """
        torch = self.torch
        addresses = []
        tensors = []
        with ExitStack() as stack:
            if not warm_up:
                stack.enter_context(self.descriptor_of(num_tokens, num_reqs))
            for _ in range(ops):
                tensors.append(torch.empty(num_tokens, width, dtype=torch.bfloat16))
                addresses.append(tensors[-1].data_ptr())
                communicator.custom_all_reduce(tensors[-1])
        return addresses

    @contextmanager
    def descriptor_of(self, num_tokens: int, num_reqs: int) -> Iterator[None]:
        self.is_capturing = True
        self.descriptor = BatchDescriptor(num_tokens, num_reqs, uniform=True)
        try:
            yield
        finally:
            self.is_capturing = False
            self.descriptor = None

    def capture(
        self,
        communicator: Any,
        phase: str | None,
        graphs: list[tuple[int, int]],
        **arguments: Any,
    ) -> list[int]:
        """One capture context with a warm-up and a capture of each graph, largest first."""
        addresses = []
        with self.phases(phase), communicator.capture():
            for num_tokens, num_reqs in reversed(graphs):
                self.forward(communicator, num_tokens, num_reqs, warm_up=True)
                addresses += self.forward(communicator, num_tokens, num_reqs, **arguments)
        return addresses


@contextmanager
def custom_all_reduce(tree: Path, *, world_size: int = 8, capability: str = "9.0") -> Iterator[Car]:
    """The tree's custom all-reduce on doubles, on one rank of `world_size`."""
    import torch

    with tree_packages(tree):
        car = Car(tree, world_size, capability)
        asked = torch.cuda.is_current_stream_capturing
        torch.cuda.is_current_stream_capturing = lambda: car.is_capturing
        try:
            yield car
        finally:
            torch.cuda.is_current_stream_capturing = asked
