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
    assert '"architectures": ["DeepSeekV4MTPModel"]' in speculative
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
