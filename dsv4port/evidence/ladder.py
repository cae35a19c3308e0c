"""The ladder of decode graphs for a deployment: sizes, slots, bytes, and the command to serve it.

Every number comes from the patched tree's own modules; nothing is computed a second time here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from dsv4port.errors import BadInputError
from dsv4port.evidence.deployment import deployment
from dsv4port.evidence.device_limits import all_reduce_limit
from dsv4port.evidence.serve_command import ServeCommand, parse_serve_command
from dsv4port.evidence.tree_modules import TreeModules
from dsv4port.quick_dataclass import dataclass

_NO_HINT = "FLASHMLA_SPARSE_DSV4"
"""What the model's layers choose on CUDA where no backend is configured, at the best."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An arena plan in numbers, or why there is none. Sizes in bytes.

    Parameters:
        limit: custom all-reduce takes only tensors smaller than this; None for any.
    """

    descriptors: tuple[tuple[int, int], ...]
    ops_per_graph: int
    slots: int
    eager_bytes: int
    data_bytes: int
    need_bytes: int
    arena_bytes: int
    bound_bytes: int
    limit: int | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Ladder:
    """What to capture and how to serve it."""

    requests: tuple[int, ...]
    capture_sizes: tuple[int, ...]
    plan: Plan
    compilation: str
    speculative: str | None
    command: str


@dataclass(frozen=True, slots=True)
class Check:
    """A serve command held against the stack's contract and its arena plan.

    Parameters:
        mode: how captured all-reduces get their input: ``arena``, ``single``, ``registered``,
            ``collective``, or ``upstream`` outside of the contract.
        features: for every feature of the contract, what keeps it off; empty where it is on.
        fallbacks: graphs that would take the standard collective, one line each.
        notes: what is not wrong, and worth knowing.
    """

    mode: str
    plan: Plan | None
    features: tuple[tuple[str, tuple[str, ...]], ...]
    fallbacks: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the deployment is inside of the contract and no captured graph falls back."""
        return self.mode in ("arena", "single", "registered") and not self.fallbacks


def default_requests(most: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `most`, which is always in."""
    sizes = []
    size = 1
    while size < most:
        sizes.append(size)
        size *= 2
    return (*sizes, most)


def make_ladder(
    modules: TreeModules,
    *,
    drafts: int,
    requests: Sequence[int],
    max_batched_tokens: int,
    capability: str | None,
    limit: int | None,
    model: str,
    extra: Sequence[str] = (),
) -> Ladder:
    """The ladder for `requests`, each a number of requests decoded together.

    Parameters:
        drafts: draft tokens per request; 0 serves without MTP.
        capability: of the CUDA device, as ``9.0``; decides what custom all-reduce accepts.
        limit: that in bytes, where it is known otherwise.
        extra: further words of the serve command.
    """
    ladder = tuple(sorted(set(requests)))
    sizes = tuple((1 + drafts) * one for one in ladder)
    compilation = {
        "mode": "NONE",
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "max_cudagraph_capture_size": sizes[-1],
        "cudagraph_capture_sizes": list(sizes),
        "cudagraph_copy_inputs": False,
    }
    speculative = {"method": "mtp", "num_speculative_tokens": drafts} if drafts else None
    parallel = _wanted(modules, "tensor_parallel_size")
    words = [
        "vllm", "serve", model,
        "--max-num-seqs", str(ladder[-1]),
        "--max-num-batched-tokens", str(max_batched_tokens),
        "--tensor-parallel-size", str(parallel),
        "-ac.backend", modules.policy._BACKENDS[modules.platform][0],
        "--kv-cache-dtype", "fp8",
        "--async-scheduling",
        "--compilation-config", _compact(compilation),
        *(["--speculative-config", _compact(speculative)] if speculative else []),
        *extra,
    ]  # fmt: skip
    command = shlex.join(words)
    config = deployment(modules, parse_serve_command(command))
    return Ladder(
        requests=ladder,
        capture_sizes=sizes,
        plan=_plan(modules, config, drafts, ladder, _limit(modules, parallel, capability, limit)),
        compilation=_compact(compilation),
        speculative=None if speculative is None else _compact(speculative),
        command=command,
    )


def check_command(
    modules: TreeModules,
    command: ServeCommand,
    *,
    capability: str | None,
    limit: int | None,
    planned: Sequence[int] | None = None,
) -> Check:
    """Hold a serve command against contract and plan.

    Parameters:
        planned: requests of the graphs that a plan has, to check against that one instead of the
            plan that follows from the command.
    """
    config = deployment(modules, command)
    features = tuple(_features(modules, config))
    off = {name for name, reasons in features if reasons}
    sizes = config.compilation_config.cudagraph_capture_sizes or []
    drafts = getattr(config.speculative_config, "num_speculative_tokens", 0) or 0
    seqs = config.scheduler_config.max_num_seqs
    if not all(type(one) is int and one > 0 for one in [*sizes, seqs or 1]):
        raise BadInputError(
            "capture sizes and --max-num-seqs must be whole numbers above 0",
            fix="correct the serve command",
        )
    mode = _mode(off, sizes, bool(drafts))
    if mode != "arena":
        return Check(mode, None, features, (), tuple(_notes(config, command, mode)))
    captured = modules.mode.request_ladder(sizes, tokens_per_req=1 + drafts, max_num_seqs=seqs)
    parallel = config.parallel_config.tensor_parallel_size
    bytes_limit = _limit(modules, parallel, capability, limit)
    wanted = captured if planned is None else tuple(sorted(set(planned)))
    plan = _plan(modules, config, drafts, wanted, bytes_limit)
    fallbacks = tuple(_fallbacks(modules, config, plan, captured, 1 + drafts))
    if plan.refusal is not None:
        mode = "collective"
    return Check(
        mode, plan, features, fallbacks,
        (*_notes(config, command, mode), *_uncaptured(captured, seqs, 1 + drafts)),
    )  # fmt: skip


def _plan(
    modules: TreeModules, config: Any, drafts: int, requests: Sequence[int], limit: int | None
) -> Plan:
    staging, mode = modules.staging, modules.mode
    shape = {
        "hidden_size": config.model_config.hf_config.hidden_size,
        "num_layers": config.model_config.hf_config.num_hidden_layers,
        "dtype_bytes": mode._BF16_BYTES,
        "num_speculative_tokens": drafts,
        "request_ladder": tuple(requests),
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
    }
    if limit is None:
        found = staging.build_staging_plan(**shape)
    else:
        request = mode.StagingRequest(
            mode.CaptureMode.ARENA, config.parallel_config.tensor_parallel_size, **shape
        )
        found = request.propose(limit).plan
    bound = staging.MAX_ARENA_BYTES
    if isinstance(found, staging.PlanRefusal):
        return Plan(
            (), 0, 0, 0, 0, found.need_bytes or 0, found.arena_bytes or 0, bound, limit, str(found)
        )
    return Plan(
        tuple((one.num_tokens, one.num_reqs) for one in found.descriptors),
        found.ops_per_descriptor, found.slots, found.eager_bytes, found.data_bytes,
        found.need_bytes, found.arena_bytes, bound, limit, None,
    )  # fmt: skip


def _limit(
    modules: TreeModules, world_size: int, capability: str | None, limit: int | None
) -> int | None:
    """What custom all-reduce accepts. On MUSA the tree states no limit."""
    if limit is not None or modules.platform != "cuda":
        return limit
    return all_reduce_limit(modules.limits, modules.default_limit, capability, world_size)


def _features(modules: TreeModules, config: Any) -> Iterable[tuple[str, tuple[str, ...]]]:
    policy = modules.policy
    around = policy.Environment(modules.platform, backend_hint=_NO_HINT, batch_invariant=False)
    for feature in policy.FEATURES:
        # What the draft's own config is, only its checkpoint says.
        if feature is not policy.Feature.DRAFT:
            yield feature.value, tuple(map(str, policy.explain(feature, config, around)))


def _mode(off: set[str], sizes: Sequence[int], speculating: bool) -> str:
    """The first of the contract's ways that is open, in the order of the tree's own module."""
    if "registered_inputs" not in off:
        return "registered"
    if "arena" not in off:
        return "arena"
    if "target_mtp" not in off:
        return "collective"
    if not speculating and "single_staging" not in off:
        return "registered" if list(sizes) == [1] else "single"
    return "upstream"


def _fallbacks(
    modules: TreeModules, config: Any, plan: Plan, captured: Sequence[int], tokens_per_req: int
) -> Iterable[str]:
    width = config.model_config.hf_config.hidden_size * modules.mode._BF16_BYTES
    for requests in captured:
        tokens = tokens_per_req * requests
        if (tokens, requests) in plan.descriptors:
            continue
        why = ""
        if plan.refusal is not None:
            why = "; there is no plan"
        elif plan.limit is not None and tokens * width >= plan.limit:
            why = f"; its all-reduce has {tokens * width} bytes, the limit is {plan.limit}"
        yield f"BS{requests} would fall back: ({tokens},{requests}) not in plan{why}"


def _uncaptured(captured: Sequence[int], seqs: int | None, tokens_per_req: int) -> Iterable[str]:
    largest = max(captured, default=0)
    if seqs is not None and largest < seqs:
        yield (
            f"batches of {largest + 1} to {seqs} requests run without a graph: no capture size "
            f"holds {(largest + 1) * tokens_per_req} tokens"
        )


def _notes(config: Any, command: ServeCommand, mode: str) -> Iterable[str]:
    yield "the checkpoint is taken to be the one that the contract is for"
    if mode == "upstream":
        yield "outside of the contract: vLLM's own path is taken for all of it"
    if config.attention_config.backend is None:
        yield "no attention backend is configured; what the layers choose is taken to fit"
    if command.ignored:
        yield f"not looked at: {', '.join(command.ignored)}"


def _wanted(modules: TreeModules, name: str) -> int:
    """The value that the contract's row about execution wants."""
    for row in modules.policy.EXECUTION:
        if row.path.rpartition(".")[2] == name:
            return int(row.rule.expected.removeprefix("int "))
    raise BadInputError(
        f"the contract of {modules.stack} says nothing about {name}",
        fix="name a stack with the patchset graph-staging",
    )


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
