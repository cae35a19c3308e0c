"""What the modules rely on is in the tree that they were added to."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

SECTIONS = {
    "vllm_config": ("vllm.py", "VllmConfig"),
    "model_config": ("model.py", "ModelConfig"),
    "parallel_config": ("parallel.py", "ParallelConfig"),
    "cache_config": ("cache.py", "CacheConfig"),
    "scheduler_config": ("scheduler.py", "SchedulerConfig"),
    "compilation_config": ("compilation.py", "CompilationConfig"),
    "attention_config": ("attention.py", "AttentionConfig"),
    "speculative_config": ("speculative.py", "SpeculativeConfig"),
}
DSV4 = "vllm/models/deepseek_v4"
CONVERTOR = "vllm/transformers_utils/model_arch_config_convertor.py"


def class_named(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)


def declared(path: Path, name: str) -> set[str]:
    """Fields and properties of a class."""
    names = set()
    for node in class_named(path, name).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if decorators & {"property", "cached_property"}:
                names.add(node.name)
    return names


def members(path: Path, name: str) -> set[str]:
    """Members of an enum class."""
    return {
        target.id
        for node in class_named(path, name).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def paths(policy: ModuleType) -> set[str]:
    return {
        row.path
        for table in policy.FEATURES.values()
        for row in table
        if row.path.startswith("vllm_config.")
    }


def test_every_field_of_the_contract_is_declared(vllm_tree: Path, policy: ModuleType) -> None:
    checked = set()
    for path in paths(policy):
        for owner, name in zip(path.split("."), path.split(".")[1:], strict=False):
            if owner not in SECTIONS:
                assert owner in ("hf_config", "quant_config")
                continue
            file, class_name = SECTIONS[owner]
            assert name in declared(vllm_tree / "vllm" / "config" / file, class_name), path
            checked.add(owner)
    assert checked == set(SECTIONS)


def test_every_key_of_the_model_is_read_by_the_tree(vllm_tree: Path, policy: ModuleType) -> None:
    sources = [
        path
        for path in (vllm_tree / DSV4).rglob("*.py")
        if path.name != Path(str(policy.__file__)).name
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    convertor = (vllm_tree / CONVERTOR).read_text(encoding="utf-8")
    keys = {path.split(".hf_config.")[1] for path in paths(policy) if ".hf_config." in path}
    assert len(keys) == 16
    for key in keys:
        if key in ("architectures", "model_type", "num_key_value_heads"):
            assert re.search(rf'"{key}"|\.{key}\b', convertor), key
        else:
            assert re.search(rf'config\.{key}\b|config, "{key}"', text), key


def test_the_quantization_config_has_the_block_size(vllm_tree: Path) -> None:
    fp8 = vllm_tree / "vllm/model_executor/layers/quantization/fp8.py"
    assert "self.weight_block_size" in ast.unparse(class_named(fp8, "Fp8Config"))
    base = class_named(vllm_tree / DSV4 / "quant_config.py", "DeepseekV4FP8Config").bases
    assert [ast.unparse(node) for node in base] == ["Fp8Config"]


@pytest.mark.parametrize(
    ("file", "name", "wanted"),
    [
        ("vllm/config/compilation.py", "CompilationMode", {"NONE"}),
        ("vllm/config/compilation.py", "CUDAGraphMode", {"FULL_DECODE_ONLY"}),
        (
            "vllm/v1/attention/backends/registry.py",
            "AttentionBackendEnum",
            {"FLASHMLA", "FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4"},
        ),
    ],
)
def test_the_enums_have_the_members(
    vllm_tree: Path, file: str, name: str, wanted: set[str]
) -> None:
    assert wanted <= members(vllm_tree / file, name)


def test_the_backends_are_those_of_the_attention_layer(vllm_tree: Path) -> None:
    model = ast.parse((vllm_tree / DSV4 / "nvidia/model.py").read_text(encoding="utf-8"))
    select = next(
        node
        for node in ast.walk(model)
        if isinstance(node, ast.FunctionDef) and node.name == "_select_dsv4_attn_cls"
    )
    text = ast.unparse(select)
    assert "AttentionBackendEnum.FLASHMLA_SPARSE, AttentionBackendEnum.FLASHMLA_SPARSE_DSV4" in text
    assert "AttentionBackendEnum.FLASHMLA)" not in text


def test_both_cache_dtypes_are_one_layout(vllm_tree: Path) -> None:
    text = (vllm_tree / DSV4 / "attention.py").read_text(encoding="utf-8")
    assert 'cache_config.cache_dtype = "fp8_ds_mla"' in text


def test_the_draft_keeps_the_outer_config(vllm_tree: Path) -> None:
    speculative = (vllm_tree / "vllm/config/speculative.py").read_text(encoding="utf-8")
    assert re.search(r'"architectures"(\]|:) (= )?\["DeepSeekV4MTPModel"\]', speculative)
    assert 'self.method = "mtp"' in speculative
    draft = (vllm_tree / DSV4 / "nvidia/mtp.py").read_text(encoding="utf-8")
    assert "vllm_config.speculative_config.draft_model_config.hf_config" in draft


def test_the_batch_descriptor_has_what_the_arena_reads(vllm_tree: Path) -> None:
    node = class_named(vllm_tree / "vllm/forward_context.py", "BatchDescriptor")
    fields = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    assert {"num_tokens", "num_reqs", "uniform", "has_lora"} <= fields


def test_custom_all_reduce_accepts_less_than_its_limit(vllm_tree: Path) -> None:
    path = vllm_tree / "vllm/distributed/device_communicators/custom_all_reduce.py"
    text = ast.unparse(class_named(path, "CustomAllreduce"))
    assert "inp_size < self.max_size" in text
    assert "inp_size % 16 != 0" in text


def function_named(path: Path, name: str) -> ast.FunctionDef:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)


RUNNER = "vllm/v1/worker/gpu_model_runner.py"
RUNNER_V2 = "vllm/v1/worker/gpu/model_runner.py"
GRAPHS_V2 = "vllm/v1/worker/gpu/cudagraph_utils.py"
COMMUNICATORS = "vllm/distributed/device_communicators"


@pytest.mark.fix
@pytest.mark.parametrize(
    ("name", "phase"),
    [("profile_cudagraph_memory", "PROFILING"), ("capture_model", "PERSISTENT")],
)
def test_the_runner_names_the_phase_before_it_captures(
    vllm_tree: Path, name: str, phase: str
) -> None:
    contexts = [
        [ast.unparse(item.context_expr) for item in node.items]
        for node in ast.walk(function_named(vllm_tree / RUNNER, name))
        if isinstance(node, ast.With)
    ]
    (items,) = [items for items in contexts if any(i.startswith("graph_capture(") for i in items)]
    capture = next(i for i, text in enumerate(items) if text.startswith("graph_capture("))
    assert f"cudagraph_capture_phase(CapturePhase.{phase})" in items[:capture]


@pytest.mark.fix
def test_ranks_agree_before_anything_is_allocated(vllm_tree: Path) -> None:
    path = vllm_tree / COMMUNICATORS / "custom_all_reduce.py"
    init = ast.unparse(function_named(path, "__init__"))
    assert 0 < init.find("agree_on_staging(") < init.find("create_shared_buffer(")
    # Only after the device's own limit is known.
    assert init.find("CUSTOM_ALL_REDUCE_MAX_SIZES") < init.find("agree_on_staging(")


def test_eager_inputs_are_bounded_by_the_limit(vllm_tree: Path) -> None:
    path = vllm_tree / COMMUNICATORS / "custom_all_reduce.py"
    text = ast.unparse(function_named(path, "all_reduce"))
    assert "self.buffer_ptrs[self.rank], self.max_size)" in text


def test_the_backends_before_custom_all_reduce_are_known(vllm_tree: Path) -> None:
    """A new one would take tensors that a plan counts on."""
    body = function_named(vllm_tree / COMMUNICATORS / "cuda_communicator.py", "all_reduce")
    order = [
        match.group(1)
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and (match := re.fullmatch(r"self\.(\w+_comm)", ast.unparse(node)))
    ]
    earlier = set(order[: order.index("ca_comm")])
    # quick reduce and AITER are ROCm's; pynccl is asked first for symmetric memory only.
    known = {"qr_comm", "fi_ar_comm", "fi_pcie_ipc_ar_comm", "aiter_ar_comm"}
    assert earlier - {"pynccl_comm"} <= known
    assert "symm_mem_comm" not in earlier


@pytest.mark.fix
def test_staging_declines_for_flashinfer_s_backends(vllm_tree: Path) -> None:
    """Every one that the tree asks before custom all-reduce, whatever it is called."""
    path = vllm_tree / COMMUNICATORS / "cuda_communicator.py"
    before = ast.unparse(function_named(path, "all_reduce")).split("self.ca_comm")[0]
    request = ast.unparse(function_named(path, "_car_staging_request"))
    backends = set(re.findall(r"self\.(fi_\w*ar_comm)", before))
    assert backends
    for name in backends:
        assert f"self.{name}" in request, name


def test_graphs_are_destroyed_where_we_think(vllm_tree: Path, harness: ModuleType) -> None:
    """A new place must give the slots back, or the next capture finds the arena sealed."""
    places = set()
    for path in (vllm_tree / "vllm").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"\.clear_all_graphs\(\)|concrete_cudagraph_entries = \{\}", text):
            places.add(str(path.relative_to(vllm_tree)))
    wanted = {RUNNER, "vllm/distributed/elastic_ep/elastic_execute.py"}
    if harness.runner_v2_profiles(vllm_tree):
        wanted.add(GRAPHS_V2)
    assert places == wanted


@pytest.mark.fix
def test_elastic_expert_parallelism_gives_slots_back_when_the_device_is_idle(
    vllm_tree: Path,
) -> None:
    path = vllm_tree / "vllm/distributed/elastic_ep/elastic_execute.py"
    text = ast.unparse(function_named(path, "_release_cuda_graphs"))
    assert 0 < text.find("torch.accelerator.synchronize()") < text.find("release_graph_slots()")


def test_the_layers_choose_flashmla_unless_sm12(vllm_tree: Path) -> None:
    select = function_named(vllm_tree / DSV4 / "nvidia/model.py", "_select_dsv4_attn_cls")
    assert ast.unparse(select.body[-1]) == "return DeepseekV4FlashMLAAttention"
    flashmla = class_named(vllm_tree / DSV4 / "nvidia/flashmla.py", "DeepseekV4FlashMLAAttention")
    assert "backend_cls = DeepseekV4FlashMLABackend" in ast.unparse(flashmla)
    names = [
        (vllm_tree / DSV4 / path).read_text(encoding="utf-8")
        for path in ("sparse_mla.py", "nvidia/flashmla.py")
    ]
    assert 'return "FLASHMLA_SPARSE_DSV4"' in "".join(names)


def test_runner_v2_does_not_capture_while_it_profiles(vllm_tree: Path, harness: ModuleType) -> None:
    if harness.runner_v2_profiles(vllm_tree):
        pytest.skip("it does, and is staged; see test_runner_v2.py")
    body = function_named(vllm_tree / RUNNER_V2, "profile_cudagraph_memory").body
    assert ast.unparse(body[-1]) == "return 0"
    assert "capture" not in ast.unparse(ast.Module(body, [])).replace("captured", "")


def contexts_around(function: ast.FunctionDef, call: str) -> list[str]:
    """The contexts in which a function makes a call, from the outside in."""
    found = [
        [ast.unparse(item.context_expr) for item in node.items]
        for node in ast.walk(function)
        if isinstance(node, ast.With) and call in ast.unparse(ast.Module(node.body, []))
    ]
    return [context for items in found for context in items]


@pytest.mark.fix
def test_runner_v2_names_phase_and_batch(vllm_tree: Path, harness: ModuleType) -> None:
    if not harness.runner_v2_profiles(vllm_tree):
        pytest.skip("runner V2 does not capture while it profiles here, and is not staged")
    profile = function_named(vllm_tree / GRAPHS_V2, "profile_cudagraph_memory")
    phase = "cudagraph_capture_phase(CapturePhase.PROFILING)"
    assert phase in contexts_around(profile, "runner.capture_model(")
    serve = function_named(vllm_tree / RUNNER_V2, "capture_model")
    for call in ("encoder_runner.capture(", "cudagraph_manager.capture(", "speculator.capture("):
        assert "persistent_unless_named()" in contexts_around(serve, call)
    target = next(
        node
        for node in class_named(vllm_tree / GRAPHS_V2, "ModelCudaGraphManager").body
        if isinstance(node, ast.FunctionDef) and node.name == "capture"
    )
    batch = "cudagraph_capture_batch(_captured_batch(desc))"
    assert batch in contexts_around(target, "model(**model_inputs)")
    # Nowhere else: the speculator's managers share the rest of the class.
    assert (vllm_tree / GRAPHS_V2).read_text(encoding="utf-8").count(batch) == 1


def test_the_drafter_captures_no_graphs_of_its_own(vllm_tree: Path) -> None:
    """Its all-reduces would be counted as those of the target's graph."""
    path = vllm_tree / "vllm/v1/spec_decode/llm_base_proposer.py"
    text = ast.unparse(function_named(path, "initialize_cudagraph_keys"))
    assert "cudagraph_mode.mixed_mode() in [CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL]" in text
    assert "else:\n        eagle_cudagraph_mode = CUDAGraphMode.NONE" in text
    mode = ast.unparse(class_named(vllm_tree / "vllm/config/compilation.py", "CUDAGraphMode"))
    assert "FULL_DECODE_ONLY = (FULL, NONE)" in mode


def test_full_graphs_have_no_eager_breaks(vllm_tree: Path) -> None:
    """DeepSeek-V4 captures with breaks by default; an all-reduce in one would have no slot."""
    path = vllm_tree / "vllm/compilation/breakable_cudagraph.py"
    text = ast.unparse(function_named(path, "eager_break_during_capture"))
    assert re.search(r"if mode == CUDAGraphMode\.FULL:\n\s+return fn\(", text)


@pytest.mark.parametrize("name", ["policy", "staging"])
def test_the_module_imports_the_standard_library_only(
    name: str, request: pytest.FixtureRequest
) -> None:
    import sys

    source = Path(str(request.getfixturevalue(name).__file__)).read_text(encoding="utf-8")
    imported = set()
    for node in ast.walk(ast.parse(source, feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).split(".")[0])
    assert imported
    assert imported <= sys.stdlib_module_names
