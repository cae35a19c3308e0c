"""A deployment as the contract sees it: the model it is for, and what a command says."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.evidence.serve_command import ServeCommand
from dsv4port.evidence.tree_modules import TreeModules

_COMPILATION_MODES = ("NONE", "STOCK_TORCH_COMPILE", "DYNAMO_TRACE_ONCE", "VLLM_COMPILE")


def deployment(modules: TreeModules, command: ServeCommand) -> SimpleNamespace:
    """What the modules of the tree would be asked about, as a stand-in for a ``VllmConfig``.

    A command does not say what the checkpoint is, so the model is taken to be the one that the
    contract is for; its sizes come from the contract's own rows. What the command leaves to
    vLLM's defaults is that default where it is fixed, and None where vLLM chooses by device.

    Raises:
        BadInputError: a row of the contract says nothing that a value could be taken from.
    """
    config = _model(modules.policy)
    values, compilation = command.values, command.objects.get("--compilation-config", {})
    dbo = values.get("--enable-dbo", False)
    config.parallel_config = SimpleNamespace(
        tensor_parallel_size=values.get("--tensor-parallel-size", 1),
        pipeline_parallel_size=values.get("--pipeline-parallel-size", 1),
        data_parallel_size=values.get("--data-parallel-size", 1),
        decode_context_parallel_size=values.get("--decode-context-parallel-size", 1),
        prefill_context_parallel_size=values.get("--prefill-context-parallel-size", 1),
        enable_expert_parallel=values.get("--enable-expert-parallel", False),
        enable_dbo=dbo,
        use_ubatching=dbo or values.get("--ubatch-size", 0) > 1,
        disable_custom_all_reduce=values.get("--disable-custom-all-reduce", False),
    )
    config.lora_config = SimpleNamespace() if values.get("--enable-lora") else None
    config.cache_config = SimpleNamespace(cache_dtype=values.get("--kv-cache-dtype", "auto"))
    config.scheduler_config = SimpleNamespace(
        max_num_seqs=values.get("--max-num-seqs"),
        max_num_batched_tokens=values.get("--max-num-batched-tokens"),
        async_scheduling=values.get("--async-scheduling"),
    )
    sizes = compilation.get("cudagraph_capture_sizes")
    eager = values.get("--enforce-eager", False)
    config.compilation_config = SimpleNamespace(
        mode=_mode(compilation.get("mode")),
        cudagraph_mode=_member(
            "CUDAGraphMode", "NONE" if eager else compilation.get("cudagraph_mode")
        ),
        cudagraph_capture_sizes=sizes if isinstance(sizes, list) else None,
    )
    backend = command.objects.get("--attention-config", {}).get("backend")
    config.attention_config = SimpleNamespace(backend=_member("AttentionBackendEnum", backend))
    speculative = command.objects.get("--speculative-config")
    config.speculative_config = (
        None
        if speculative is None
        else SimpleNamespace(
            method=speculative.get("method"),
            num_speculative_tokens=speculative.get("num_speculative_tokens"),
            num_speculative_tokens_per_batch_size=speculative.get(
                "num_speculative_tokens_per_batch_size"
            ),
        )
    )
    config.use_v2_model_runner = False
    if "--quantization" in values:
        config.model_config.quantization = values["--quantization"]
    if values.get("--dtype", "auto") != "auto":
        config.model_config.dtype = _dtype(values["--dtype"])
    return config


def _model(policy: Any) -> SimpleNamespace:
    """A config that holds every row about the model, made from what the rows say they expect."""
    rows = (*policy.IDENTITY_TARGET, *policy.MODEL)
    root = SimpleNamespace()
    for row in rows:
        _put(root, row.path.split(".")[1:], _expected(row.rule.expected))
    findings = [row.check({"vllm_config": root}) for row in rows]
    wrong = [str(one) for one in findings if one is not None]
    if wrong:
        raise BadInputError(
            "the contract's rows about the model cannot be read", details=wrong,
            fix="this version does not know the stack's contract; use a newer one",
        )  # fmt: skip
    return root


def _put(root: SimpleNamespace, path: list[str], value: object) -> None:
    for name in path[:-1]:
        if not isinstance(getattr(root, name, None), SimpleNamespace):
            setattr(root, name, SimpleNamespace())
        root = getattr(root, name)
    if not hasattr(root, path[-1]):
        setattr(root, path[-1], value)


def _expected(words: str) -> object:
    """A value that fits a rule's description of itself; the row is asked afterwards."""
    kind, _, rest = words.partition(" ")
    if kind in ("int", "number"):
        return _literal(rest)
    if words.startswith("torch."):
        return _dtype(words.removeprefix("torch."))
    if words == "a value":
        return SimpleNamespace()
    return _literal(words.partition(" or ")[0])


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


class _Dtype:
    """Has the class name and the text of a ``torch.dtype``, which is all that is asked of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_Dtype.__name__ = "dtype"


def _dtype(name: str) -> object:
    return _Dtype(name)


def _mode(value: object) -> object:
    if type(value) is int and 0 <= value < len(_COMPILATION_MODES):
        value = _COMPILATION_MODES[value]
    return _member("CompilationMode", value)


def _member(kind: str, value: object) -> object:
    """A member of an enum of vLLM's, by name; anything else stays as it is."""
    if not isinstance(value, str) or not value.isidentifier():
        return value
    made: Iterable[Any] = enum.Enum(kind, [value.upper()])  # type: ignore[misc]
    return next(iter(made))
