"""When the host waits for a step: for context work only, once, and never while capturing."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.fix

FENCE = "vllm/v1/worker/mixed_prefill_fence.py"
RUNNER = "vllm/v1/worker/gpu_model_runner.py"
DECODE_QUERY_LEN = 5


def step(
    new: tuple[str, ...] = (),
    cached: dict[str, int] | None = None,
    resumed: tuple[str, ...] = (),
    tokens: dict[str, int] | None = None,
) -> SimpleNamespace:
    """A step; ``cached`` gives the output tokens of requests, five tokens each if not said."""
    cached = cached or {}
    return SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached),
            num_output_tokens=list(cached.values()),
            resumed_req_ids=set(resumed),
        ),
        num_scheduled_tokens=dict.fromkeys([*new, *cached], DECODE_QUERY_LEN) | (tokens or {}),
        scheduled_spec_decode_tokens={},
    )


DECODES = {
    "nothing scheduled": step(),
    "one decode": step(cached={"a": 1}),
    "many decodes": step(cached={"a": 1, "b": 900, "c": 17}),
    "drafts dropped by structured output": step(cached={"a": 3, "b": 3}, tokens={"b": 1}),
}
CONTEXT = {
    "new requests only": step(new=("n",)),
    "new beside decodes": step(new=("n",), cached={"a": 1, "b": 2}),
    "a chunk of a long prompt": step(cached={"a": 1, "p": 0}, tokens={"p": 2048}),
    "the last token of a prompt": step(cached={"a": 1, "p": 0}, tokens={"p": 1}),
    "resumed, with output": step(cached={"a": 1, "r": 40}, resumed=("r",), tokens={"r": 900}),
    "resumed with one token left": step(cached={"r": 40}, resumed=("r",), tokens={"r": 1}),
    "the next chunk after resuming": step(cached={"a": 1, "r": 40}, tokens={"r": 6}),
}


@pytest.fixture
def fence(tree_module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = tree_module(FENCE)
    monkeypatch.delenv(module.SWITCH, raising=False)
    return module


@pytest.fixture
def waits(fence: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every wait of the host, and whether a graph is being captured, as the test sets it."""
    done: list[str] = []
    monkeypatch.setattr(fence, "_wait_for_current_stream", lambda: done.append("stream"))
    monkeypatch.setattr(fence, "_wait_for_device", lambda: done.append("device"))
    monkeypatch.setattr(fence, "_is_capturing", lambda: False)
    return done


@pytest.mark.parametrize("name", DECODES)
def test_decodes_are_no_context_work(fence: ModuleType, name: str) -> None:
    assert fence.has_context_work(DECODES[name], DECODE_QUERY_LEN) is False


@pytest.mark.parametrize("name", CONTEXT)
def test_context_work(fence: ModuleType, name: str) -> None:
    assert fence.has_context_work(CONTEXT[name], DECODE_QUERY_LEN) is True


def test_drafts_are_not_looked_at(fence: ModuleType) -> None:
    class Untouched(SimpleNamespace):
        def __getattribute__(self, name: str) -> Any:
            assert name != "scheduled_spec_decode_tokens"
            return super().__getattribute__(name)

    for case in (*DECODES.values(), *CONTEXT.values()):
        fence.has_context_work(Untouched(**vars(case)), DECODE_QUERY_LEN)


@pytest.fixture
def host(fence: ModuleType, runtime: ModuleType, deployment_on_musa: SimpleNamespace) -> Any:
    """A fence that is on."""
    return fence.MixedPrefillFence(deployment_on_musa, DECODE_QUERY_LEN)


def test_one_wait_for_each_mixed_step(host: Any, waits: list[str]) -> None:
    for case in DECODES.values():
        assert host.after_launch(case) is False
    assert waits == []
    for case in CONTEXT.values():
        assert host.after_launch(case) is True
    assert waits == ["device"] * len(CONTEXT)


def test_never_while_capturing(
    fence: ModuleType, host: Any, waits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "_is_capturing", lambda: True)
    for case in (*DECODES.values(), *CONTEXT.values()):
        assert host.after_launch(case) is False
    assert waits == []


def test_decided_once(
    runtime: ModuleType,
    deployment_on_musa: SimpleNamespace,
    host: Any,
    waits: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    real = runtime.decide
    monkeypatch.setattr(runtime, "decide", lambda *a: asked.append(1) or real(*a))
    assert asked == []
    for case in CONTEXT.values():
        host.after_launch(case)
    deployment_on_musa.parallel_config.tensor_parallel_size = 1
    assert host.after_launch(CONTEXT["new requests only"]) is True
    assert asked == [1]


def test_a_refusal_is_kept_too(
    fence: ModuleType,
    runtime: ModuleType,
    outside: SimpleNamespace,
    waits: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(fence.SWITCH, "1")
    host = fence.MixedPrefillFence(outside, DECODE_QUERY_LEN)
    assert host.after_launch(CONTEXT["new requests only"]) is False
    monkeypatch.setattr(runtime, "decide", lambda *a: pytest.fail("asked again"))
    assert host.after_launch(CONTEXT["new requests only"]) is False
    assert waits == []


def test_synchronous_scheduling_needs_no_fence(
    deployment_on_musa: SimpleNamespace, host: Any, waits: list[str]
) -> None:
    deployment_on_musa.scheduler_config.async_scheduling = False
    assert host.after_launch(CONTEXT["new requests only"]) is False
    assert waits == []


@pytest.mark.parametrize(
    ("name", "switch", "expected"),
    [
        ("cuda", None, []),
        ("cuda", "0", []),
        ("cuda", "1", ["stream"]),
        ("musa", None, ["device"]),
        ("musa", "0", []),
        ("musa", "1", ["device"]),
    ],
)
def test_the_default_and_the_switch(
    fence: ModuleType,
    runtime: ModuleType,
    deployment: SimpleNamespace,
    request: pytest.FixtureRequest,
    waits: list[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    switch: str | None,
    expected: list[str],
) -> None:
    if switch is not None:
        monkeypatch.setenv(fence.SWITCH, switch)
    if name == "musa":
        request.getfixturevalue("deployment_on_musa")
    fence.MixedPrefillFence(deployment, DECODE_QUERY_LEN).after_launch(
        CONTEXT["new beside decodes"]
    )
    assert waits == expected


@pytest.mark.parametrize("value", ["", "yes", "2", " 1"])
def test_a_switch_that_says_neither(
    fence: ModuleType,
    deployment: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    monkeypatch.setenv(fence.SWITCH, value)
    with pytest.raises(ValueError, match=fence.SWITCH):
        fence.MixedPrefillFence(deployment, DECODE_QUERY_LEN)


def test_the_backend_of_the_loaded_layers_counts(
    fence: ModuleType,
    runtime: ModuleType,
    deployment: SimpleNamespace,
    waits: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(fence.SWITCH, "1")
    deployment.attention_config.backend = None
    host = fence.MixedPrefillFence(deployment, DECODE_QUERY_LEN)
    # Layers are registered after the runner was built.
    deployment.compilation_config.static_forward_context["a"] = SimpleNamespace(
        backend_cls=SimpleNamespace(get_name=lambda: "FLASHMLA_SPARSE_DSV4")
    )
    assert host.after_launch(CONTEXT["new requests only"]) is True
    assert waits == ["stream"]


def test_the_runner_asks_after_the_launch(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    """Runs the end of the runner's own step, from the state it keeps to its return."""
    body = method_of(RUNNER, "GPUModelRunner", "execute_model").body
    kept = next(
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "self.execute_model_state"
    )
    run = ast.parse("def run(): pass")
    function = run.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = body[kept + 1 :]
    events = []
    output = object()
    names: dict[str, Any] = {
        "self": SimpleNamespace(
            mixed_prefill_fence=SimpleNamespace(
                after_launch=lambda given: events.append(("fence", given))
            )
        ),
        "scheduler_output": output,
        "kv_connector_output": None,
        "deferred_state_corrections_fn": lambda: events.append("corrections"),
    }
    exec(compile(run, RUNNER, "exec"), names)
    assert names["run"]() is None
    assert events == ["corrections", ("fence", output)]


def test_the_runner_knows_its_longest_decode(
    method_of: Callable[[str, str, str], ast.FunctionDef],
) -> None:
    """The fence is built after the number of drafts was set for the last time."""
    statements = [
        ast.unparse(node) for node in method_of(RUNNER, "GPUModelRunner", "__init__").body
    ]
    (built,) = (i for i, text in enumerate(statements) if "MixedPrefillFence(" in text)
    assert "decode_query_len=1 + self.num_spec_tokens" in statements[built]
    assert max(i for i, text in enumerate(statements) if "self.num_spec_tokens = " in text) < built
