"""The contract says yes to the validated deployments and to nothing else, and never raises."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CompilationMode = enum.IntEnum(
    "CompilationMode", {"NONE": 0, "STOCK_TORCH_COMPILE": 1, "VLLM_COMPILE": 3}
)
CUDAGraphMode = enum.Enum(
    "CUDAGraphMode",
    {
        "NONE": 0,
        "PIECEWISE": 1,
        "FULL": 2,
        "FULL_DECODE_ONLY": (2, 0),
        "FULL_AND_PIECEWISE": (2, 1),
    },
)
AttentionBackendEnum = enum.Enum(
    "AttentionBackendEnum",
    ["FLASHMLA", "FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV4"],
)

FEATURES = (
    "TARGET_MTP",
    "DRAFT",
    "ARENA",
    "FENCE",
    "HEADROOM",
    "DIRECT_OUT",
    "REGISTERED_INPUTS",
    "SINGLE_STAGING",
    "SHARED_SWIGLU",
    "GATE_UP_GEMV",
)


class dtype:
    """Stands in for ``torch.dtype``, which has this class name and this repr."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


class Impostor(dtype):
    """Prints like a ``torch.dtype`` and is none."""


class Section(SimpleNamespace):
    """A part of a config; unlike ``SimpleNamespace`` itself it may change its class."""


class Text(str):
    """A string that is not exactly a ``str``."""


HF = "vllm_config.model_config.hf_config"

# Field -> values that are wrong, but of the right type; then values of another type that compare
# equal to, or look like, the right one. Everything is refused.
FIELDS: dict[str, tuple[list[Any], list[Any]]] = {
    f"{HF}.architectures": (
        [["DeepseekV3ForCausalLM"], [], ["DeepseekV4ForCausalLM", "DeepSeekV4MTPModel"]],
        ["DeepseekV4ForCausalLM", [Text("DeepseekV4ForCausalLM")], {"DeepseekV4ForCausalLM"}],
    ),
    f"{HF}.model_type": (["deepseek_v3", "", "DEEPSEEK_V4"], [Text("deepseek_v4"), b"deepseek_v4"]),
    f"{HF}.hidden_size": ([7168, 0, -4096], [4096.0, "4096", True]),
    f"{HF}.num_hidden_layers": ([61, 44, 42], [43.0, "43"]),
    f"{HF}.num_attention_heads": ([128], [64.0, "64"]),
    f"{HF}.num_key_value_heads": ([64, 0], [True, 1.0, "1"]),
    f"{HF}.head_dim": ([576], [512.0]),
    f"{HF}.vocab_size": ([129281], [129280.0]),
    f"{HF}.n_routed_experts": ([384], [256.0]),
    f"{HF}.num_experts_per_tok": ([8], [6.0]),
    f"{HF}.n_shared_experts": ([2, 0], [True, 1.0]),
    f"{HF}.moe_intermediate_size": ([3072], [2048.0]),
    f"{HF}.expert_dtype": (["fp4"], [Text("fp8"), b"fp8"]),
    f"{HF}.hidden_act": (["gelu"], [Text("silu")]),
    f"{HF}.swiglu_limit": ([7.0, 10.5, float("nan")], ["10.0", True, [10.0]]),
    f"{HF}.index_topk": ([1024, 2048], [512.0, "512"]),
    "vllm_config.model_config.dtype": (
        [dtype("float16"), dtype("float32")],
        ["bfloat16", "torch.bfloat16", Impostor("bfloat16")],
    ),
    "vllm_config.model_config.quantization": (
        ["modelopt_fp4", "mxfp4"],
        [None, Text("fp8"), b"fp8"],
    ),
    "vllm_config.model_config.model_impl": (["transformers", "terratorch"], [None]),
    "vllm_config.model_config.use_mla": ([False], [1, None, "True"]),
    "vllm_config.model_config.is_moe": ([False], [1, None]),
    "vllm_config.model_config.is_hybrid": ([True], [0, None]),
    "vllm_config.quant_config": ([None], []),
    "vllm_config.quant_config.weight_block_size": (
        [[64, 128], [128], [128, 128, 128]],
        [None, [128.0, 128.0], "128,128"],
    ),
    "vllm_config.parallel_config.tensor_parallel_size": ([1, 4, 16], [8.0, "8"]),
    "vllm_config.parallel_config.pipeline_parallel_size": ([2], [True, 1.0]),
    "vllm_config.parallel_config.data_parallel_size": ([2], [True, 1.0]),
    "vllm_config.parallel_config.decode_context_parallel_size": ([2], [True, 1.0]),
    "vllm_config.parallel_config.prefill_context_parallel_size": ([2], [True, 1.0]),
    "vllm_config.parallel_config.enable_expert_parallel": ([True], [0, None]),
    "vllm_config.parallel_config.enable_dbo": ([True], [0, None]),
    "vllm_config.parallel_config.use_ubatching": ([True], [0, None]),
    "vllm_config.parallel_config.disable_custom_all_reduce": ([True], [0, None]),
    "vllm_config.lora_config": ([Section(max_loras=1)], [False, 0]),
    "vllm_config.cache_config.cache_dtype": (
        ["auto", "bfloat16", "fp8_e5m2", "fp8_e4m3"],
        [None, Text("fp8"), b"fp8"],
    ),
    "vllm_config.scheduler_config.max_num_seqs": ([0, -1], [True, 64.0, "64"]),
    "vllm_config.scheduler_config.async_scheduling": ([False], [1, None]),
    "vllm_config.compilation_config.mode": (
        [CompilationMode.VLLM_COMPILE, CompilationMode.STOCK_TORCH_COMPILE],
        [0, None, False, "NONE", CUDAGraphMode.NONE],
    ),
    "vllm_config.compilation_config.cudagraph_mode": (
        [CUDAGraphMode.NONE, CUDAGraphMode.FULL, CUDAGraphMode.FULL_AND_PIECEWISE],
        [(2, 0), None, "FULL_DECODE_ONLY"],
    ),
    "vllm_config.compilation_config.cudagraph_capture_sizes": (
        [[5, 10], [], [0], [6]],
        [None, [5.0], [True], 5],
    ),
    "vllm_config.attention_config.backend": (
        [AttentionBackendEnum.FLASHMLA, AttentionBackendEnum.FLASHINFER_MLA_SPARSE_DSV4],
        ["FLASHMLA_SPARSE", False],
    ),
    "vllm_config.speculative_config": (
        [Section(method="eagle", num_speculative_tokens=4)],
        [False, "mtp"],
    ),
    "vllm_config.speculative_config.method": (
        ["eagle", "eagle3", "ngram", "dspark", "MTP"],
        [None, Text("mtp"), b"mtp"],
    ),
    "vllm_config.speculative_config.num_speculative_tokens": ([1, 3, 5], [4.0, "4", None]),
    "vllm_config.speculative_config.num_speculative_tokens_per_batch_size": (
        [[(1, 64, 4)]],
        [[], False],
    ),
    "environment.batch_invariant": ([True], [None, 0]),
}


def target_config(**speculative: Any) -> Section:
    """What the objects of a matching ``VllmConfig`` show, MTP with four drafts."""
    return Section(
        model_config=Section(
            hf_config=Section(
                architectures=["DeepseekV4ForCausalLM"],
                model_type="deepseek_v4",
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
            ),
            dtype=dtype("bfloat16"),
            quantization="deepseek_v4_fp8",
            model_impl="auto",
            use_mla=True,
            is_moe=True,
            is_hybrid=False,
        ),
        quant_config=Section(weight_block_size=[128, 128]),
        parallel_config=Section(
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
        cache_config=Section(cache_dtype="fp8"),
        scheduler_config=Section(max_num_seqs=64, async_scheduling=True),
        compilation_config=Section(
            mode=CompilationMode.NONE,
            cudagraph_mode=CUDAGraphMode.FULL_DECODE_ONLY,
            cudagraph_capture_sizes=[5, 10, 20, 40, 80, 160, 320],
        ),
        attention_config=Section(backend=AttentionBackendEnum.FLASHMLA_SPARSE),
        speculative_config=Section(
            method="mtp",
            num_speculative_tokens=4,
            num_speculative_tokens_per_batch_size=None,
            **speculative,
        ),
    )


def draft_model_config() -> Section:
    model_config: Section = target_config().model_config
    model_config.hf_config.architectures = ["DeepSeekV4MTPModel"]
    model_config.hf_config.model_type = "deepseek_mtp"
    return model_config


def matching(feature: str) -> Section:
    """A config that the contract of ``feature`` holds for."""
    config = target_config()
    if feature == "DRAFT":
        config.model_config = draft_model_config()
        config.speculative_config = None
    elif feature == "REGISTERED_INPUTS":
        config.scheduler_config.max_num_seqs = 1
        config.compilation_config.cudagraph_capture_sizes = [5]
    elif feature in ("SHARED_SWIGLU", "SINGLE_STAGING"):
        config.speculative_config = None
    return config


def roots(feature: str) -> Section:
    return Section(
        vllm_config=matching(feature),
        environment=Section(platform="cuda", backend_hint=None, batch_invariant=False),
    )


def owner_of(root: Any, path: str) -> tuple[Any, str]:
    *parents, name = path.split(".")
    for parent in parents:
        root = getattr(root, parent)
    return root, name


def ask(policy: ModuleType, feature: str, root: Any) -> bool:
    """Ask in every way there is; all answers must be the same."""
    member = policy.Feature[feature]
    findings = policy.explain(member, root.vllm_config, root.environment)
    verdict = policy.evaluate(member, root.vllm_config, root.environment)
    answer = policy.matches(member, root.vllm_config, root.environment)
    assert type(answer) is bool
    assert answer is bool(verdict) is verdict.holds is (findings == ())
    assert all(str(finding) for finding in findings)
    return answer


def rows() -> Iterator[tuple[str, str]]:
    """Every field that a feature looks at, from this file's own list."""
    spec = "vllm_config.speculative_config"
    only_in = {
        f"{spec}.method": {
            "TARGET_MTP",
            "ARENA",
            "FENCE",
            "HEADROOM",
            "DIRECT_OUT",
            "REGISTERED_INPUTS",
        },
        f"{spec}.num_speculative_tokens": {"ARENA"},
        f"{spec}.num_speculative_tokens_per_batch_size": {"ARENA"},
        spec: {"DRAFT", "SINGLE_STAGING", "SHARED_SWIGLU", "GATE_UP_GEMV"},
        "vllm_config.scheduler_config.async_scheduling": {"FENCE"},
        "vllm_config.compilation_config.cudagraph_capture_sizes": {"REGISTERED_INPUTS"},
        "vllm_config.parallel_config.disable_custom_all_reduce": {
            "ARENA",
            "REGISTERED_INPUTS",
            "SINGLE_STAGING",
        },
        "environment.batch_invariant": {"SHARED_SWIGLU", "GATE_UP_GEMV"},
    }
    for feature in FEATURES:
        for path in FIELDS:
            if feature in only_in.get(path, FEATURES):
                yield feature, path


ROWS = list(rows())


def features_with(path: str) -> list[str]:
    return [feature for feature, row in ROWS if row == path]


def test_every_row_of_every_feature_is_mutated_below(policy: ModuleType) -> None:
    # Other patchsets add features of their own, and test them.
    assert {feature.name for feature in policy.Feature} >= set(FEATURES)
    in_tree = {
        (feature.name, row.path)
        for feature, table in policy.FEATURES.items()
        for row in table
        if feature.name in FEATURES
    }
    assert in_tree == set(ROWS)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_matching_config_is_accepted(policy: ModuleType, feature: str) -> None:
    root = roots(feature)
    findings = policy.explain(policy.Feature[feature], root.vllm_config, root.environment)
    assert findings == ()
    assert ask(policy, feature, root)


@pytest.mark.parametrize("path", FIELDS)
def test_one_wrong_value_is_refused_and_named(policy: ModuleType, path: str) -> None:
    for feature in features_with(path):
        for wrong in FIELDS[path][0]:
            root = roots(feature)
            setattr(*owner_of(root, path), wrong)
            assert not ask(policy, feature, root), wrong
            findings = policy.explain(policy.Feature[feature], root.vllm_config, root.environment)
            assert path in [finding.path for finding in findings]


@pytest.mark.parametrize("path", FIELDS)
def test_one_value_of_another_type_is_refused(policy: ModuleType, path: str) -> None:
    for feature in features_with(path):
        for odd in FIELDS[path][1]:
            root = roots(feature)
            setattr(*owner_of(root, path), odd)
            assert not ask(policy, feature, root), odd


@pytest.mark.parametrize("path", FIELDS)
def test_one_missing_field_is_refused_and_named(policy: ModuleType, path: str) -> None:
    for feature in features_with(path):
        root = roots(feature)
        delattr(*owner_of(root, path))
        assert not ask(policy, feature, root)
        findings = policy.explain(policy.Feature[feature], root.vllm_config, root.environment)
        assert path in [finding.path for finding in findings if finding.actual == "nothing"]


@pytest.mark.parametrize("path", FIELDS)
def test_one_field_that_raises_is_refused(policy: ModuleType, path: str) -> None:
    for feature in features_with(path):
        root = roots(feature)
        owner, name = owner_of(root, path)

        def fail(_: object) -> None:
            raise RuntimeError("not resolved yet")

        owner.__class__ = type("Raising", (Section,), {name: property(fail)})
        assert not ask(policy, feature, root)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_missing_section_is_refused(policy: ModuleType, feature: str) -> None:
    sections = [name for name in vars(target_config()) if name != "speculative_config"]
    for section in sections:
        for replacement in (None, 1, "x"):
            root = roots(feature)
            if section == "lora_config" and replacement is None:
                continue
            setattr(root.vllm_config, section, replacement)
            assert not ask(policy, feature, root), (section, replacement)


@pytest.mark.parametrize("spelling", ["fp8", "fp8_ds_mla"])
@pytest.mark.parametrize("feature", FEATURES)
def test_both_spellings_of_the_cache_dtype_are_one(
    policy: ModuleType, feature: str, spelling: str
) -> None:
    root = roots(feature)
    root.vllm_config.cache_config.cache_dtype = spelling
    assert ask(policy, feature, root)


@pytest.mark.parametrize("spelling", ["fp8", "deepseek_v4_fp8"])
def test_both_spellings_of_the_quantization_are_one(policy: ModuleType, spelling: str) -> None:
    root = roots("TARGET_MTP")
    root.vllm_config.model_config.quantization = spelling
    assert ask(policy, "TARGET_MTP", root)


@pytest.mark.parametrize("method", ["mtp", "deepseek_mtp"])
def test_both_spellings_of_the_method_are_one(policy: ModuleType, method: str) -> None:
    root = roots("ARENA")
    root.vllm_config.speculative_config.method = method
    assert ask(policy, "ARENA", root)


@pytest.mark.parametrize("limit", [10, 10.0])
def test_the_limit_may_be_an_int(policy: ModuleType, limit: float) -> None:
    root = roots("SHARED_SWIGLU")
    root.vllm_config.model_config.hf_config.swiglu_limit = limit
    assert ask(policy, "SHARED_SWIGLU", root)


PLAIN, SPARSE, DSV4, OTHER = AttentionBackendEnum


@pytest.mark.parametrize(
    ("platform", "backend", "hint", "accepted"),
    [
        ("cuda", SPARSE, None, True),
        ("cuda", DSV4, None, True),
        ("cuda", PLAIN, None, False),
        ("cuda", PLAIN, "FLASHMLA_SPARSE_DSV4", False),
        ("cuda", OTHER, "FLASHMLA_SPARSE_DSV4", False),
        ("cuda", SPARSE, "FLASHINFER_MLA_SPARSE_DSV4", True),
        ("cuda", None, None, False),
        ("cuda", None, "FLASHMLA_SPARSE", True),
        ("cuda", None, "FLASHMLA_SPARSE_DSV4", True),
        ("cuda", None, "FLASHMLA", False),
        ("cuda", None, "FLASHINFER_MLA_SPARSE_DSV4", False),
        ("cuda", None, SPARSE, False),
        ("musa", PLAIN, None, True),
        ("musa", None, "FLASHMLA", True),
        ("musa", None, None, False),
        ("musa", SPARSE, None, False),
        ("rocm", SPARSE, None, False),
        ("", SPARSE, None, False),
        (None, SPARSE, None, False),
        (Text("cuda"), SPARSE, None, False),
    ],
)
def test_the_hint_fills_in_for_an_unset_backend_only(
    policy: ModuleType, platform: Any, backend: Any, hint: Any, accepted: bool
) -> None:
    root = roots("TARGET_MTP")
    root.environment.platform = platform
    root.vllm_config.attention_config.backend = backend
    root.environment.backend_hint = hint
    assert ask(policy, "TARGET_MTP", root) is accepted


def test_a_backend_of_another_enum_is_refused(policy: ModuleType) -> None:
    root = roots("TARGET_MTP")
    MLAPrefillBackendEnum = enum.Enum("MLAPrefillBackendEnum", ["FLASHMLA_SPARSE"])
    root.vllm_config.attention_config.backend = MLAPrefillBackendEnum["FLASHMLA_SPARSE"]
    assert not ask(policy, "TARGET_MTP", root)


@pytest.mark.parametrize("feature", ["DIRECT_OUT", "HEADROOM", "FENCE"])
def test_multi_batch_features_need_more_than_one_sequence(policy: ModuleType, feature: str) -> None:
    for max_num_seqs, accepted in ((1, False), (2, True), (64, True)):
        root = roots(feature)
        root.vllm_config.scheduler_config.max_num_seqs = max_num_seqs
        assert ask(policy, feature, root) is accepted


@pytest.mark.parametrize("max_num_seqs", [2, 64])
def test_registered_inputs_need_one_sequence(policy: ModuleType, max_num_seqs: int) -> None:
    root = roots("REGISTERED_INPUTS")
    root.vllm_config.scheduler_config.max_num_seqs = max_num_seqs
    assert not ask(policy, "REGISTERED_INPUTS", root)


@pytest.mark.parametrize("max_num_seqs", [1, 4, 16, 64])
@pytest.mark.parametrize(
    "feature", ["SHARED_SWIGLU", "GATE_UP_GEMV", "TARGET_MTP", "ARENA", "SINGLE_STAGING"]
)
def test_the_batch_size_does_not_matter_elsewhere(
    policy: ModuleType, feature: str, max_num_seqs: int
) -> None:
    root = roots(feature)
    root.vllm_config.scheduler_config.max_num_seqs = max_num_seqs
    assert ask(policy, feature, root)


@pytest.mark.parametrize(
    ("feature", "without", "with_mtp"),
    [
        ("TARGET_MTP", False, True),
        ("ARENA", False, True),
        ("SINGLE_STAGING", True, False),
        ("SHARED_SWIGLU", True, False),
        ("GATE_UP_GEMV", True, True),
    ],
)
def test_speculation(policy: ModuleType, feature: str, without: bool, with_mtp: bool) -> None:
    root = roots(feature)
    root.vllm_config.speculative_config = None
    assert ask(policy, feature, root) is without
    root.vllm_config.speculative_config = target_config().speculative_config
    assert ask(policy, feature, root) is with_mtp


def test_target_and_draft_are_not_confused(policy: ModuleType) -> None:
    root = roots("DRAFT")
    root.vllm_config.model_config = target_config().model_config
    assert not ask(policy, "DRAFT", root)
    root = roots("TARGET_MTP")
    root.vllm_config.model_config = draft_model_config()
    assert not ask(policy, "TARGET_MTP", root)


def test_the_draft_is_judged_by_its_view(policy: ModuleType) -> None:
    config = target_config(draft_model_config=draft_model_config())
    root = Section(vllm_config=config, environment=policy.Environment("cuda"))
    assert not ask(policy, "DRAFT", root)
    root.vllm_config = policy.draft_view(config)
    assert ask(policy, "DRAFT", root)
    config.parallel_config.tensor_parallel_size = 4
    root.vllm_config = policy.draft_view(config)
    assert not ask(policy, "DRAFT", root)


@pytest.mark.parametrize("config", [None, 1, Section(), Section(speculative_config=None)])
def test_there_is_no_draft_view_of_anything_else(policy: ModuleType, config: Any) -> None:
    assert policy.draft_view(config) is None
    assert not policy.matches(policy.Feature.DRAFT, None, policy.Environment("cuda"))


def test_there_is_no_draft_view_of_another_method(policy: ModuleType) -> None:
    config = target_config(draft_model_config=draft_model_config())
    config.speculative_config.method = "eagle"
    assert policy.draft_view(config) is None


class Hostile:
    """Raises, or lies, wherever Python lets it."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __eq__(self, other: object) -> bool:
        raise ValueError("eq")

    def __hash__(self) -> int:
        raise ValueError("hash")

    def __bool__(self) -> bool:
        raise ValueError("bool")

    def __repr__(self) -> str:
        raise ValueError("repr")

    def __len__(self) -> int:
        raise ValueError("len")

    def __iter__(self) -> Iterator[Any]:
        raise ValueError("iter")


class Agreeable:
    """Has every attribute, and equals everything."""

    def __getattr__(self, name: str) -> Agreeable:
        return self

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class LyingClass:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise ValueError("class")


# Makers, since pytest itself looks at parameters that are objects.
GARBAGE: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "zero": lambda: 0,
    "text": lambda: "garbage",
    "bytes": lambda: b"",
    "list": list,
    "dict": dict,
    "object": object,
    "hostile": Hostile,
    "agreeable": Agreeable,
    "lying class": LyingClass,
    "class": lambda: type,
    "empty section": Section,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_without_an_exception(policy: ModuleType, kind: str) -> None:
    garbage = GARBAGE[kind]()
    environment = policy.Environment("cuda", batch_invariant=False)
    for feature in policy.Feature:
        assert policy.matches(feature, garbage, environment) is False
        assert policy.matches(feature, matching(feature.name), garbage) is False
    assert policy.matches(garbage, target_config(), environment) is False
    assert policy.explain(garbage, target_config(), environment)
    assert policy.evaluate_once(garbage, garbage, garbage, garbage).holds is False
    assert policy.stored(garbage, garbage) is False
    policy.draft_view(garbage)


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("path", sorted(FIELDS))
def test_garbage_in_a_field_is_refused(policy: ModuleType, path: str, kind: str) -> None:
    garbage = GARBAGE[kind]()
    for feature in features_with(path):
        root = roots(feature)
        owner, name = owner_of(root, path)
        if garbage is None and (path == "vllm_config.speculative_config" or not vars(owner)[name]):
            continue  # None is what this feature wants, or may have, here.
        setattr(owner, name, garbage)
        assert not ask(policy, feature, root)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=4)
)
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.tuples(scalars, scalars))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(row=st.sampled_from(ROWS), value=values)
def test_any_value_gets_an_answer_and_a_yes_only_by_exact_type(
    policy: ModuleType, row: tuple[str, str], value: Any
) -> None:
    feature, path = row
    root = roots(feature)
    owner, name = owner_of(root, path)
    good = vars(owner)[name]
    setattr(owner, name, value)
    if ask(policy, feature, root) and value is not None:
        assert type(value) is type(good) or path.endswith(("swiglu_limit", "capture_sizes"))


def test_a_finding_says_what_was_expected_and_found(policy: ModuleType) -> None:
    config = target_config()
    config.parallel_config.tensor_parallel_size = 4
    config.cache_config.cache_dtype = "x" * 500
    findings = policy.explain(policy.Feature.TARGET_MTP, config, policy.Environment("cuda"))
    assert [finding.path for finding in findings] == [
        "vllm_config.parallel_config.tensor_parallel_size",
        "vllm_config.cache_config.cache_dtype",
    ]
    assert str(findings[0]).endswith("tensor_parallel_size: expected int 8, got 4")
    assert len(str(findings[1])) < 200


class Owner:
    pass


def test_the_verdict_is_taken_once_and_kept_on_its_owner(policy: ModuleType) -> None:
    owner, other = Owner(), Owner()
    environment = policy.Environment("cuda")
    config = target_config()
    feature = policy.Feature.ARENA
    assert not policy.stored(owner, feature)
    assert policy.evaluate_once(owner, feature, config, environment)
    assert policy.stored(owner, feature)
    config.parallel_config.tensor_parallel_size = 1
    assert policy.evaluate_once(owner, feature, None, None)
    assert policy.stored(owner, feature)
    assert not policy.stored(owner, policy.Feature.FENCE)
    assert not policy.stored(other, feature)
    assert not policy.evaluate_once(other, feature, config, environment)
    assert not policy.stored(other, feature)


def test_a_negative_verdict_stays(policy: ModuleType) -> None:
    owner = Owner()
    environment = policy.Environment("cuda")
    assert not policy.evaluate_once(owner, policy.Feature.ARENA, None, environment)
    assert not policy.evaluate_once(owner, policy.Feature.ARENA, target_config(), environment)


def test_a_class_does_not_lend_its_verdict_to_its_instances(policy: ModuleType) -> None:
    class Layer:
        _dsv4port_verdicts: ClassVar = {
            policy.Feature.ARENA: policy.Verdict(policy.Feature.ARENA, ())
        }

    assert not policy.stored(Layer(), policy.Feature.ARENA)


def test_an_owner_that_overrides_setattr_keeps_its_verdict(policy: ModuleType) -> None:
    class Module:
        def __setattr__(self, name: str, value: object) -> None:
            raise TypeError(name)

    owner = Module()
    assert policy.evaluate_once(
        owner, policy.Feature.ARENA, target_config(), policy.Environment("cuda")
    )
    assert policy.stored(owner, policy.Feature.ARENA)


def test_an_owner_without_room_gets_a_refusal(policy: ModuleType) -> None:
    class Slotted:
        __slots__ = ()

    verdict = policy.evaluate_once(
        Slotted(), policy.Feature.ARENA, target_config(), policy.Environment("cuda")
    )
    assert not verdict
    assert verdict.findings[0].path == "owner"
