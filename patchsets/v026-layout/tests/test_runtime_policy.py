"""What is decided at construction: the contract's answer inside it, no to everything else."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.fix


def layer(backend: str) -> SimpleNamespace:
    return SimpleNamespace(backend_cls=SimpleNamespace(get_name=lambda: backend))


WITH_DRAFTS = {"TARGET_MTP", "DRAFT", "ARENA", "FENCE", "HEADROOM", "DIRECT_OUT"}
WITHOUT_DRAFTS = {"SHARED_SWIGLU"}


def test_the_deployment_with_drafts(runtime: ModuleType, deployment: SimpleNamespace) -> None:
    policy = runtime.decide(deployment)
    assert policy.platform == "cuda"
    assert policy.features >= WITH_DRAFTS
    assert not policy.features & WITHOUT_DRAFTS


def test_the_deployment_without_drafts(runtime: ModuleType, deployment: SimpleNamespace) -> None:
    deployment.speculative_config = None
    policy = runtime.decide(deployment)
    assert policy.features >= WITHOUT_DRAFTS
    assert not policy.features & WITH_DRAFTS


def test_outside_of_the_contract(runtime: ModuleType, outside: SimpleNamespace) -> None:
    policy = runtime.decide(outside)
    assert not policy.allows("HEADROOM")
    assert not policy.allows("FENCE")
    assert not policy.allows_layer("HEADROOM", draft=True)


@pytest.mark.parametrize(
    ("name", "backend", "allowed"),
    [
        ("cuda", "FLASHMLA_SPARSE", True),
        ("cuda", "FLASHMLA", False),
        ("musa", "FLASHMLA", True),
        ("musa", "FLASHMLA_SPARSE", False),
        ("cpu", "FLASHMLA_SPARSE", False),
    ],
)
def test_the_platform_and_its_backend(
    runtime: ModuleType,
    deployment: SimpleNamespace,
    platform: Any,
    name: str,
    backend: str,
    allowed: bool,
) -> None:
    platform.name = name
    deployment.attention_config.backend = type(deployment.attention_config.backend)[backend]
    assert runtime.decide(deployment).allows("HEADROOM") is allowed


def test_batch_invariance_is_read(
    runtime: ModuleType, deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["vllm.envs"], "VLLM_BATCH_INVARIANT", True)
    policy = runtime.decide(deployment)
    assert policy.allows("HEADROOM")
    assert not policy.allows("GATE_UP_GEMV")


@pytest.mark.parametrize("config", [None, 1, "deepseek_v4", SimpleNamespace(), object()])
def test_anything_else_is_refused(runtime: ModuleType, config: object) -> None:
    assert runtime.decide(config) is runtime.NOTHING


def test_other_models_do_not_import_the_contract(
    runtime: ModuleType, deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forbidden(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was imported")

    monkeypatch.setitem(sys.modules, "vllm.models.deepseek_v4", Forbidden("deepseek_v4"))
    deployment.model_config.hf_config.model_type = "qwen3"
    with pytest.MonkeyPatch.context() as patch:
        # An error inside decide() would be swallowed: let it out.
        patch.setattr(runtime.logger, "debug", lambda *a, **k: pytest.fail("it went wrong"))
        assert runtime.decide(deployment) is runtime.NOTHING


def test_a_tree_without_the_contract(
    runtime: ModuleType, deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "vllm.models.deepseek_v4"
    monkeypatch.delattr(sys.modules[package], "dsv4port_policy")
    # None: an import of it fails, also where another test has loaded it.
    monkeypatch.setitem(sys.modules, f"{package}.dsv4port_policy", None)
    assert runtime.decide(deployment) is runtime.NOTHING


def test_a_platform_that_raises(
    runtime: ModuleType, deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["vllm.platforms"], "current_platform", None)
    assert runtime.decide(deployment) is runtime.NOTHING


def test_a_draft_with_another_shape_stays_out(
    runtime: ModuleType, deployment: SimpleNamespace
) -> None:
    deployment.speculative_config.draft_model_config.hf_config.head_dim = 576
    policy = runtime.decide(deployment)
    assert policy.allows_layer("HEADROOM", draft=False)
    assert not policy.allows_layer("HEADROOM", draft=True)


@pytest.mark.parametrize("features", [(), ("HEADROOM",), ("DRAFT",), ("HEADROOM", "DRAFT")])
@pytest.mark.parametrize("draft", [False, True])
def test_layers_of_the_draft_need_both(
    runtime: ModuleType, features: tuple[str, ...], draft: bool
) -> None:
    policy = runtime.RuntimePolicy("cuda", frozenset(features))
    expected = "HEADROOM" in features and (not draft or "DRAFT" in features)
    assert policy.allows_layer("HEADROOM", draft=draft) is expected


def test_unknown_features_are_refused(runtime: ModuleType, deployment: SimpleNamespace) -> None:
    policy = runtime.decide(deployment)
    assert policy.allows("HEADROOM")
    assert not policy.allows("headroom")
    assert not policy.allows("")


def test_a_decision_stays(runtime: ModuleType, deployment: SimpleNamespace) -> None:
    policy = runtime.decide(deployment)
    deployment.parallel_config.tensor_parallel_size = 4
    assert policy.allows("HEADROOM")
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.features = frozenset()


def test_the_hint_counts_for_an_unset_backend_only(
    runtime: ModuleType, deployment: SimpleNamespace
) -> None:
    backends = type(deployment.attention_config.backend)
    deployment.attention_config.backend = None
    assert not runtime.decide(deployment).allows("HEADROOM")
    assert runtime.decide(deployment, "FLASHMLA_SPARSE_DSV4").allows("HEADROOM")
    deployment.attention_config.backend = backends["FLASHINFER_MLA_SPARSE_DSV4"]
    assert not runtime.decide(deployment, "FLASHMLA_SPARSE_DSV4").allows("HEADROOM")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], None),
        ([SimpleNamespace()], None),
        ([layer("A"), SimpleNamespace(), layer("A")], "A"),
        ([layer("A"), layer("B")], None),
        ([SimpleNamespace(backend_cls=None)], None),
    ],
)
def test_the_backend_of_the_layers(
    runtime: ModuleType, deployment: SimpleNamespace, layers: list[Any], expected: str | None
) -> None:
    deployment.compilation_config.static_forward_context = dict(enumerate(layers))
    assert runtime.layer_backend(deployment) == expected


def test_no_layers_to_ask(runtime: ModuleType) -> None:
    assert runtime.layer_backend(SimpleNamespace()) is None
