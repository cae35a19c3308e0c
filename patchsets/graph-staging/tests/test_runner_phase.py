"""Runner V1 as it is in the tree: both capture passes, down to the addresses that are registered.

Real are the runner's two passes and its dispatcher, `graph_capture`, the CUDA communicator and its
choice of backends, custom all-reduce and the elastic executor. Doubles stand for the device, the
model's forward pass and the other ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch]


@pytest.fixture(scope="module")
def vllm(vllm_tree: Path) -> Iterator[SimpleNamespace]:
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
        runner=vllm.v1.worker.gpu_model_runner,
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
        for name in ("_TP", "_PP", "_WORLD"):
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


@pytest.fixture
def deploy(vllm: Any, harness: ModuleType, monkeypatch: Any) -> Iterator[Any]:
    deployments = []

    def deploy(**changes: Any) -> Deployment:
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
            **changes,
        }
        symm_mem = changes.pop("symm_mem", False)
        monkeypatch.setattr(
            vllm.communicator.envs, "VLLM_ALLREDUCE_USE_SYMM_MEM", symm_mem, raising=False
        )
        config = harness.flash_base_config(**changes)
        deployments.append(Deployment(vllm, harness, monkeypatch, config))
        return deployments[-1]

    yield deploy
    for deployment in deployments:
        # While the ops are still doubles: the destructor would call the real ones.
        deployment.car.close()


@pytest.mark.fix
def test_profiling_leaves_no_handle_on_memory_of_its_graphs(deploy: Any) -> None:
    """On the bare pin each of the 174 addresses belongs to a tensor that is freed."""
    deployment = deploy()
    calls = deployment.profile()
    assert len(calls) == 174
    (registered,) = deployment.ops.registered
    assert not set(registered) & set(deployment.inputs)
    assert all(deployment.ops.owns(address) for address in registered)


@pytest.mark.fix
def test_both_passes_of_the_runner(deploy: Any) -> None:
    """Profiling takes 174 slots and seals nothing; the pass that serves takes 609 and seals."""
    deployment = deploy()
    profiling = deployment.profile()
    assert {(call.reg_buffer, call.reg_size) for call in profiling} != {(0, 0)}
    assert deployment.arena_state == "RELEASED"
    assert {phase.name for phase in deployment.phases} == {"PROFILING"}
    persistent = deployment.capture()
    assert deployment.arena_state == "SEALED"
    assert {phase.name for phase in deployment.phases} == {"PERSISTENT"}
    assert (len(profiling), len(persistent)) == (174, 609)
    spans = sorted((call.reg_buffer, call.reg_buffer + call.nbytes) for call in persistent)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(deployment.ops.owns(start) for start, _ in spans)


@pytest.mark.fix
def test_graphs_of_32_and_64_requests_are_staged(deploy: Any) -> None:
    deployment = deploy()
    deployment.profile()
    sizes = [call.reg_size for call in deployment.capture()]
    for num_tokens in (5, 10, 20, 40, 80, 160, 320):
        assert sizes.count(num_tokens * 8192) == 87


@pytest.mark.fix
def test_with_symmetric_memory_three_graphs_are_staged(deploy: Any) -> None:
    """Eight ranks on sm_90: larger tensors go to symmetric memory, in both passes."""
    deployment = deploy(symm_mem=True)
    assert deployment.car.max_size == 256 * 1024
    assert deployment.profile() == []
    taken = deployment.communicator.symm_mem_comm.taken
    assert set(taken) == {160 * 8192, 320 * 8192}
    persistent = deployment.capture()
    assert len(persistent) == 261
    assert all(deployment.ops.owns(call.reg_buffer) for call in persistent)
    assert deployment.arena_state == "SEALED"


def test_a_profiling_pass_that_fails_leaves_no_phase_and_no_slot(deploy: Any) -> None:
    deployment = deploy()
    deployment.fail_at = 160
    with pytest.raises(MemoryError):
        deployment.profile()
    assert deployment.arena_state == "RELEASED"
    phase = sys.modules["vllm.distributed.cudagraph_capture_phase"]
    assert phase.current_cudagraph_capture_phase() is None
    assert deployment.ops.registered == []
    deployment.fail_at = None
    assert len(deployment.capture()) == 609


def test_a_pass_that_serves_and_fails_is_not_repeated(deploy: Any) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.fail_at = 5
    with pytest.raises(MemoryError):
        deployment.capture()
    assert deployment.arena_state == "FAILED"
    deployment.fail_at = None
    with pytest.raises(RuntimeError, match="release_all"):
        deployment.capture()


def test_a_counter_set_back_does_not_open_the_arena(deploy: Any, vllm: Any) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.capture()
    vllm.counter.num_gpu_runner_capture_triggers = 0
    with pytest.raises(RuntimeError, match="sealed"):
        deployment.capture()
    with pytest.raises(RuntimeError, match="sealed"):
        deployment.profile()
    assert deployment.arena_state == "SEALED"


def test_elastic_expert_parallelism_gives_the_slots_back(
    deploy: Any, vllm: Any, monkeypatch: Any
) -> None:
    deployment = deploy()
    deployment.profile()
    deployment.capture()
    model = vllm.torch.nn.Linear(1, 1)
    runner = SimpleNamespace(model=model, get_model=lambda: model)
    monkeypatch.setattr(vllm.torch.compiler, "reset", lambda: None)
    monkeypatch.setattr(vllm.elastic, "set_current_vllm_config", lambda config: nullcontext())
    executor = SimpleNamespace(
        worker=SimpleNamespace(model_runner=runner, vllm_config=deployment.config)
    )
    vllm.elastic.ElasticEPScalingExecutor._release_cuda_graphs(executor)
    assert deployment.arena_state == "RELEASED"
    assert len(deployment.capture()) == 609
    assert deployment.arena_state == "SEALED"
    for communicator in (None, SimpleNamespace(ca_comm=None), SimpleNamespace(ca_comm=object())):
        vllm.parallel_state._TP.device_communicator = communicator
        vllm.elastic.ElasticEPScalingExecutor._release_cuda_graphs(executor)


@pytest.mark.parametrize(
    "changes",
    [
        {"model_config__hf_config__model_type": "deepseek_v3"},
        {"model_config__hf_config__num_hidden_layers": 61},
        {"parallel_config__tensor_parallel_size": 4},
        {"parallel_config__enable_expert_parallel": True},
        {"cache_config__cache_dtype": "auto"},
        {"quant_config": None},
        {"use_v2_model_runner": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_any_other_deployment_takes_upstream_s_path(
    deploy: Any, harness: ModuleType, changes: dict[str, Any]
) -> None:
    deployment = deploy(**changes)
    assert deployment.car._staging is None
    assert deployment.ops.data_buffer[1] == harness.shared_bytes(deployment.car)
    for run in (deployment.profile, deployment.capture):
        calls = run()
        assert {(call.reg_buffer, call.reg_size) for call in calls} == {(0, 0)}
        assert deployment.ops.registered[-1] == deployment.inputs
    assert [len(addresses) for addresses in deployment.ops.registered] == [174, 609]


def test_another_dtype_graph_mode_and_backend_take_upstream_s_path(deploy: Any, vllm: Any) -> None:
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    for changes in (
        {"model_config__dtype": vllm.torch.float16},
        {"compilation_config__cudagraph_mode": vllm.config.CUDAGraphMode.FULL},
        {"attention_config__backend": AttentionBackendEnum.FLASHINFER_MLA_SPARSE_DSV4},
    ):
        deployment = deploy(**changes)
        assert deployment.car._staging is None
        calls = deployment.capture()
        assert {(call.reg_buffer, call.reg_size) for call in calls} == {(0, 0)}
        assert deployment.ops.registered == [deployment.inputs]


def test_the_layers_choose_flashmla_if_no_backend_is_set(deploy: Any) -> None:
    deployment = deploy(attention_config__backend=None)
    assert deployment.car._staging.mode.name == "ARENA"


def test_an_earlier_backend_leaves_all_ranks_on_upstream_s_path(
    deploy: Any, vllm: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(vllm.communicator, "is_symmetric_memory_enabled", lambda: True)
    monkeypatch.setattr(vllm.communicator, "register_nccl_symmetric_ops", lambda communicator: None)
    deployment = deploy()
    assert deployment.car._staging is None
    assert deployment.dist.broadcasts == [[None]]


def test_without_a_plan_the_next_backend_is_warmed_up_and_captured(deploy: Any) -> None:
    deployment = deploy(
        speculative_config__num_speculative_tokens=3,
        num_speculative_tokens=3,
        compilation_config__cudagraph_capture_sizes=[4, 8],
        compilation_config__max_cudagraph_capture_size=8,
        symm_mem=True,
    )
    assert deployment.car._staging.mode.name == "COLLECTIVE"
    assert deployment.profile() == []
    # Each graph once to warm up and once to capture.
    assert len(deployment.communicator.symm_mem_comm.taken) == 2 * 2 * 87
