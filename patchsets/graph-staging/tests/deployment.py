"""One rank of eight with a runner, on doubles for the device, the forward pass and the peers.

The tree is imported as a package. Real are the runners' capture passes, `graph_capture`, the CUDA
communicator and its choice of backends, and custom all-reduce.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import pytest


@contextmanager
def imported(vllm_tree: Path) -> Iterator[SimpleNamespace]:
    """The tree's modules, imported as a package; without its third parties the tests skip."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("doubles stand for the device: run it where there is none")
    os.environ.setdefault("TRITON_INTERPRET", "1")
    sys.path.insert(0, str(vllm_tree))
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        import vllm
        import vllm.compilation.counter
        import vllm.config
        import vllm.config.vllm
        import vllm.distributed.device_communicators.cuda_communicator
        import vllm.distributed.device_communicators.custom_all_reduce
        import vllm.distributed.device_communicators.pynccl
        import vllm.distributed.device_communicators.symm_mem
        import vllm.distributed.elastic_ep.elastic_execute
        import vllm.distributed.parallel_state
        import vllm.forward_context
        import vllm.v1.cudagraph_dispatcher
        import vllm.v1.worker.gpu.cudagraph_utils
        import vllm.v1.worker.gpu.model_runner
        import vllm.v1.worker.gpu_model_runner
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "vllm":
            raise
        pytest.skip(f"the tree needs {error.name} to be imported")
    finally:
        sys.dont_write_bytecode = writes_bytecode
        sys.path.remove(str(vllm_tree))
    assert Path(str(vllm.__file__)).is_relative_to(vllm_tree), "another vLLM was imported before"
    communicators = vllm.distributed.device_communicators
    yield SimpleNamespace(
        car=communicators.custom_all_reduce,
        communicator=communicators.cuda_communicator,
        config=vllm.config,
        counter=vllm.compilation.counter.compilation_counter,
        current_config=vllm.config.vllm,
        dispatcher=vllm.v1.cudagraph_dispatcher,
        elastic=vllm.distributed.elastic_ep.elastic_execute,
        forward_context=vllm.forward_context,
        parallel_state=vllm.distributed.parallel_state,
        pynccl=communicators.pynccl,
        graphs_v2=vllm.v1.worker.gpu.cudagraph_utils,
        runner=vllm.v1.worker.gpu_model_runner,
        runner_v2=vllm.v1.worker.gpu.model_runner,
        symm_mem=communicators.symm_mem,
        torch=sys.modules["torch"],
    )


class Group:
    """A stateless CPU group."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 8


class Stream:
    """A stream that is compared and waited for."""

    def __init__(self, device: Any = None) -> None: ...

    def wait_stream(self, other: Any) -> None: ...


class NextBackend:
    """Stands for symmetric memory or NCCL: takes whatever custom all-reduce does not."""

    def __init__(self, group: Any, device: Any) -> None:
        self.disabled = False
        self.world_size = 8
        self.taken: list[int] = []

    def should_use_symm_mem(self, tensor: Any) -> bool:
        return not self.disabled

    def all_reduce(self, tensor: Any) -> Any:
        self.taken.append(tensor.numel() * tensor.element_size())
        return tensor.clone()


class Deployment:
    """One rank of eight, from the communicator's construction to the graphs."""

    def __init__(self, vllm: Any, harness: ModuleType, monkeypatch: Any, config: Any) -> None:
        self.vllm, self.config, self.torch = vllm, config, vllm.torch
        self.is_capturing = False
        self.ops = harness.FakeOps(lambda: self.is_capturing)
        self.dist = harness.MirrorDist()
        self.platform = harness.FakePlatform()
        self.platform.graph_pool_handle = lambda: (0, 0)
        self.hidden_size, self.num_ops = harness.HIDDEN_SIZE, harness.OPS
        self.phases: list[Any] = []
        self.inputs: list[int] = []
        self.fail_at: int | None = None
        self._patch(monkeypatch)
        vllm.counter.num_gpu_runner_capture_triggers = 0
        self.communicator = vllm.communicator.CudaCommunicator(
            Group(),
            device=self.torch.device("cpu:0"),
            unique_name="tp:0",
            global_ranks=list(range(8)),
            global_world_size=8,
        )
        self.car = self.communicator.ca_comm
        vllm.parallel_state._TP.device_communicator = self.communicator
        self.runner = self._runner()

    def _patch(self, monkeypatch: Any) -> None:
        vllm, torch = self.vllm, self.torch
        for module in (vllm.car, vllm.communicator, vllm.runner):
            monkeypatch.setattr(module, "current_platform", self.platform)
        monkeypatch.setattr(vllm.car, "custom_ar", True)
        monkeypatch.setattr(vllm.car, "ops", self.ops)
        monkeypatch.setattr(vllm.car, "dist", self.dist)
        monkeypatch.setattr(vllm.car, "in_the_same_node_as", lambda group, source_rank: [True] * 8)
        monkeypatch.setattr(vllm.car, "_can_p2p", lambda rank, world_size: True)
        staging = sys.modules.get(f"{vllm.car.__package__}.car_capture_staging")
        if staging is not None:
            monkeypatch.setattr(staging, "dist", self.dist)
        monkeypatch.setattr(vllm.pynccl, "PyNcclCommunicator", NextBackend)
        monkeypatch.setattr(vllm.symm_mem, "SymmMemCommunicator", NextBackend)
        monkeypatch.setattr(vllm.current_config, "_current_vllm_config", self.config)
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: self.is_capturing, raising=False
        )
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", Stream)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 37))
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.accelerator, name, lambda *arguments: None)
        monkeypatch.setattr(
            torch.accelerator, "get_memory_info", lambda: (1 << 30, 1 << 37), raising=False
        )
        for name in ("lock_workspace", "set_cudagraph_capturing_enabled"):
            monkeypatch.setattr(vllm.runner, name, lambda *arguments: None)
        monkeypatch.setattr(vllm.runner, "is_global_first_rank", lambda: False)
        monkeypatch.setattr(vllm.runner, "set_current_vllm_config", lambda config: nullcontext())
        coordinator = vllm.parallel_state.GroupCoordinator
        for name in ("_TP", "_PP", "_DP", "_WORLD"):
            group = coordinator.__new__(coordinator)
            group.device_communicator = None
            group.local_rank = 1
            monkeypatch.setattr(vllm.parallel_state, name, group)

    def _runner(self) -> Any:
        real = self.vllm.runner.GPUModelRunner
        dispatcher = self.vllm.dispatcher.CudagraphDispatcher(self.config)
        runner = SimpleNamespace(
            _cleanup_profiling_kv_cache=lambda: None,
            _create_encoder_cudagraph_manager=lambda: None,
            _dummy_run=self.dummy_run,
            _freeze_gc=nullcontext,
            _init_minimal_kv_cache_for_profiling=self.initialize_keys,
            _maybe_init_encoder_cudagraph_manager=lambda: None,
            compilation_config=self.config.compilation_config,
            cudagraph_dispatcher=dispatcher,
            device="cuda:0",
            encoder_cudagraph_manager=None,
            load_config=SimpleNamespace(use_tqdm_on_load=False),
            lora_config=None,
            max_model_len=6144,
            max_num_tokens=8195,
            maybe_remove_all_loras=lambda config: None,
            parallel_config=self.config.parallel_config,
            vllm_config=self.config,
        )
        for name in ("_capture_cudagraphs", "_warmup_and_capture"):
            setattr(runner, name, MethodType(getattr(real, name), runner))
        return runner

    def initialize_keys(self) -> None:
        self.runner.cudagraph_dispatcher.initialize_cudagraph_keys(
            self.config.compilation_config.cudagraph_mode,
            1 + self.config.num_speculative_tokens,
        )

    def dummy_run(self, num_tokens: int, **arguments: Any) -> None:
        """The all-reduces of a forward pass; captured like the graph wrapper captures them."""
        if num_tokens == self.fail_at:
            raise MemoryError("no memory")
        context, torch = self.vllm.forward_context, self.torch
        mode, descriptor = self.runner.cudagraph_dispatcher.dispatch(
            num_tokens, uniform_decode=arguments["uniform_decode"]
        )
        self.is_capturing = arguments.get("is_graph_capturing", False)
        assert not self.is_capturing or mode is arguments["cudagraph_runtime_mode"]
        name = "vllm.distributed.cudagraph_capture_phase"
        if name in sys.modules:
            self.phases.append(sys.modules[name].current_cudagraph_capture_phase())
        forward = context.ForwardContext(
            no_compile_layers={}, attn_metadata={}, slot_mapping={}, batch_descriptor=descriptor
        )
        tensors = []
        try:
            with context.override_forward_context(forward):
                for _ in range(self.num_ops):
                    tensors.append(torch.empty(num_tokens, self.hidden_size, dtype=torch.bfloat16))
                    if self.is_capturing:
                        self.inputs.append(tensors[-1].data_ptr())
                    self.communicator.all_reduce(tensors[-1])
        finally:
            self.is_capturing = False

    def profile(self) -> list[Any]:
        """The throwaway pass; returns the captured all-reduces."""
        with self.captured() as calls:
            self.vllm.runner.GPUModelRunner.profile_cudagraph_memory(self.runner)
        return calls

    def capture(self) -> list[Any]:
        """The pass of the graphs that serve; returns the captured all-reduces."""
        self.initialize_keys()
        with self.captured() as calls:
            self.vllm.runner.GPUModelRunner.capture_model(self.runner)
        return calls

    @contextmanager
    def captured(self) -> Iterator[list[Any]]:
        self.ops.calls.clear()
        self.inputs.clear()
        self.phases.clear()
        calls: list[Any] = []
        try:
            yield calls
        finally:
            calls += [call for call in self.ops.calls if call.captured]

    @property
    def arena_state(self) -> str:
        state: str = self.car._staging.arena.state.name
        return state


class Model:
    """The target, or one part of the draft: calls `forward` with the number of tokens."""

    def __init__(self, forward: Callable[[int], Any]) -> None:
        self.forward = forward

    def __call__(self, *, input_ids: Any, **inputs: Any) -> Any:
        return self.forward(len(input_ids))

    def modules(self) -> list[Any]:
        return []


class Speculator:
    """Opens capture contexts of its own, one for prefill and one for decode, after the target's."""

    def __init__(self, owner: DeploymentV2) -> None:
        self.owner = owner
        self.prefill_cudagraph_manager: Any = None
        self.decode_cudagraph_manager: Any = None

    def init_cudagraph_manager(self) -> None:
        self.prefill_cudagraph_manager = self.owner.manager("CudaGraphManager", 5)
        self.decode_cudagraph_manager = self.owner.manager("CudaGraphManager", 1)

    def capture(self) -> None:
        for manager in (self.prefill_cudagraph_manager, self.decode_cudagraph_manager):
            manager.capture(self.create_forward_fn)

    def create_forward_fn(self, desc: Any, warmup: bool) -> Callable[[Any], None]:
        owner, context = self.owner, self.owner.vllm.forward_context

        def forward(cg_mode: Any) -> None:
            # As the tree's: a batch of the draft's own, also for full graphs.
            with context.set_forward_context(
                {},
                owner.config,
                num_tokens=desc.num_tokens,
                cudagraph_runtime_mode=cg_mode,
                batch_descriptor=context.BatchDescriptor(num_tokens=desc.num_tokens),
            ):
                owner.all_reduces(desc.num_tokens, owner.draft_ops, owner.draft_inputs)

        return forward


class DeploymentV2(Deployment):
    """The same with runner V2, a target and a speculator."""

    draft_ops = 3

    def __init__(self, vllm: Any, harness: ModuleType, monkeypatch: Any, config: Any) -> None:
        self.draft_inputs: list[int] = []
        self.batches: list[Any] = []
        if config.speculative_config is not None:
            config.speculative_config.uses_dynamic_speculative_decoding = lambda: False
        config.compilation_config.static_forward_context = {}
        config.compilation_config.fast_moe_cold_start = False
        config.cache_config.use_kda_recoverssm = False
        super().__init__(vllm, harness, monkeypatch, config)

    def _patch(self, monkeypatch: Any) -> None:
        super()._patch(monkeypatch)
        vllm, torch, graphs = self.vllm, self.torch, self.vllm.graphs_v2
        type(self.platform)._global_graph_pool = None
        self.platform.get_global_graph_pool = lambda: (0, 1)
        monkeypatch.setattr(graphs, "current_platform", self.platform)
        monkeypatch.setattr(graphs, "current_stream", Stream)
        monkeypatch.setattr(graphs, "is_global_first_rank", lambda: False)
        monkeypatch.setattr(graphs, "set_graph_pool_id", lambda pool: None)
        monkeypatch.setattr(graphs, "set_current_vllm_config", lambda config: nullcontext())
        monkeypatch.setattr(
            graphs,
            "_init_minimal_kv_cache_for_profiling",
            lambda runner: self.initialize_keys(),
        )
        monkeypatch.setattr(
            graphs,
            "prepare_inputs_to_capture",
            lambda *arguments, **more: graphs.AttentionState({}, {}),
        )
        monkeypatch.setattr(graphs, "get_pp_group", lambda: self)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(vllm.runner_v2, "lock_workspace", lambda: None, raising=False)

    is_first_rank = is_last_rank = True

    @contextmanager
    def graph(self, *arguments: Any, **more: Any) -> Iterator[None]:
        self.is_capturing = True
        try:
            yield
        finally:
            self.is_capturing = False

    def _runner(self) -> Any:
        real = self.vllm.runner_v2.GPUModelRunner
        runner = SimpleNamespace(
            _draft_workspace_lane=1,
            adaptive_verification=None,
            attn_groups=[],
            block_tables=None,
            cache_config=self.config.cache_config,
            compilation_config=self.config.compilation_config,
            cudagraph_manager=None,
            input_buffers=SimpleNamespace(
                input_ids=self.torch.zeros(8195, dtype=self.torch.int32),
                positions=self.torch.zeros(8195, dtype=self.torch.int64),
                is_padding=self.torch.zeros(8195, dtype=self.torch.bool),
            ),
            intermediate_tensors=None,
            kv_cache_config=None,
            kv_connector=SimpleNamespace(reset_capture_state=lambda: None),
            lora_config=None,
            maybe_remove_all_loras=lambda config: None,
            maybe_setup_dummy_loras=lambda config: nullcontext(),
            model=Model(self.target),
            model_state=SimpleNamespace(
                supports_mm_inputs=False, prepare_dummy_inputs=lambda num_reqs, num_tokens: {}
            ),
            pcp_manager=None,
            speculator=Speculator(self),
            use_aux_hidden_state_outputs=False,
            vllm_config=self.config,
        )
        runner.capture_model = MethodType(real.capture_model, runner)
        return runner

    def manager(self, kind: str, decode_query_len: int) -> Any:
        return getattr(self.vllm.graphs_v2, kind)(
            self.config,
            self.torch.device("cpu"),
            self.config.compilation_config.cudagraph_mode,
            decode_query_len,
        )

    def initialize_keys(self) -> None:
        """What `initialize_kv_cache` does for graphs."""
        self.runner.kv_cache_config = None
        drafts = self.config.num_speculative_tokens
        self.runner.cudagraph_manager = self.manager("ModelCudaGraphManager", 1 + drafts)
        self.runner.speculator.init_cudagraph_manager()

    def target(self, num_tokens: int) -> Any:
        if num_tokens == self.fail_at:
            raise MemoryError("no memory")
        self.all_reduces(num_tokens, self.num_ops, self.inputs)
        return self.torch.empty(num_tokens, 1)

    def all_reduces(self, num_tokens: int, count: int, inputs: list[int]) -> None:
        phase = sys.modules.get("vllm.distributed.cudagraph_capture_phase")
        if phase is not None:
            self.phases.append(phase.current_cudagraph_capture_phase())
            self.batches.append(phase.current_cudagraph_capture_batch())
        tensors = []
        for _ in range(count):
            tensors.append(
                self.torch.empty(num_tokens, self.hidden_size, dtype=self.torch.bfloat16)
            )
            if self.is_capturing:
                inputs.append(tensors[-1].data_ptr())
            self.communicator.all_reduce(tensors[-1])

    def profile(self) -> list[Any]:
        with self.captured() as calls:
            self.vllm.graphs_v2.profile_cudagraph_memory(self.runner)
        return calls

    def capture(self) -> list[Any]:
        self.initialize_keys()
        with self.captured() as calls:
            self.runner.capture_model()
        return calls

    @contextmanager
    def captured(self) -> Iterator[list[Any]]:
        self.draft_inputs.clear()
        self.batches.clear()
        with super().captured() as calls:
            yield calls


@contextmanager
def deployments(vllm: Any, harness: ModuleType, monkeypatch: Any, kind: Any) -> Iterator[Any]:
    """A function that builds deployments of a kind; `changes` are those of the config."""
    built = []

    def deploy(**changes: Any) -> Any:
        real = vllm.config
        changes = {
            "compilation_config__mode": real.CompilationMode.NONE,
            "compilation_config__cudagraph_mode": real.CUDAGraphMode.FULL_DECODE_ONLY,
            "compilation_config__compile_sizes": [],
            "compilation_config__cudagraph_num_of_warmups": 1,
            "compilation_config__max_cudagraph_capture_size": 320,
            "parallel_config__use_sequence_parallel_moe": False,
            "parallel_config__all2all_backend": None,
            "model_config__dtype": vllm.torch.bfloat16,
            "profiler_config": SimpleNamespace(capture_torch_profiler=False),
            "num_speculative_tokens": 4,
            "use_v2_model_runner": kind is DeploymentV2,
            **changes,
        }
        symm_mem = changes.pop("symm_mem", False)
        monkeypatch.setattr(
            vllm.communicator.envs, "VLLM_ALLREDUCE_USE_SYMM_MEM", symm_mem, raising=False
        )
        config = harness.flash_base_config(**changes)
        built.append(kind(vllm, harness, monkeypatch, config))
        return built[-1]

    deploy.built = built  # type: ignore[attr-defined]
    yield deploy
    for deployment in built:
        # While the ops are still doubles: the destructor would call the real ones.
        deployment.car.close()
