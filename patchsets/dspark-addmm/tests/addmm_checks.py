"""Checks that need vLLM itself: one process, one JSON object of results.

The speculator, the Markov head and the logits processor are the tree's, built without their
constructors, which need a device and a process group.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

REQUESTS, STEPS, MAX_REQUESTS, HIDDEN, RANK = 3, 4, 5, 8, 4
TARGET_VOCAB, PADDED = 32, 64


def processor(vocab: int, **changes: Any) -> Any:
    from torch import nn
    from vllm.model_executor.layers.logits_processor import LogitsProcessor

    made = LogitsProcessor.__new__(LogitsProcessor)
    nn.Module.__init__(made)
    settings = {
        "scale": 1.0,
        "vocab_size": vocab,
        "org_vocab_size": vocab,
        "logits_as_input": False,
        "soft_cap": None,
        "use_all_gather": False,
        "head_dtype": None,
        **changes,
    }
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def head(vocab: int, *, dtype: Any, seed: int = 0) -> Any:
    """The tree's head: small whole numbers, so that sums are exact, and poisoned padding."""
    import torch
    from torch import nn
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
    from vllm.model_executor.models.qwen3_dspark import DSparkMarkovHead

    generator = torch.Generator().manual_seed(seed)
    made = DSparkMarkovHead.__new__(DSparkMarkovHead)
    nn.Module.__init__(made)
    made.markov_w1 = nn.Embedding(TARGET_VOCAB, RANK, dtype=dtype)
    weights = torch.randint(-4, 5, (PADDED, RANK), generator=generator).to(dtype)
    weights[vocab:] = float("nan")
    made.markov_w1.weight.data = torch.randint(-4, 5, (TARGET_VOCAB, RANK), generator=generator).to(
        dtype
    )
    made.markov_w1.weight.requires_grad_(False)
    made.markov_w2 = nn.Module()
    made.markov_w2.weight = nn.Parameter(weights, requires_grad=False)
    made.markov_w2.quant_method = UnquantizedEmbeddingMethod()
    made.markov_w2.tp_size = 1
    made.markov_w2.bias = None
    return made


def in_place(on: bool) -> Any:
    """The tests have no CUDA device: say that there is one, or not."""
    from vllm.model_executor.models import qwen3_dspark

    return mock.patch.object(qwen3_dspark, "_on_cuda", lambda tensor: on)


class Model:
    """What the speculator calls of a draft model, with the tree's head and its own `add`."""

    def __init__(self, vocab: int, *, dtype: Any, mapping: Any = None) -> None:
        import torch
        from vllm.model_executor.models.qwen3_dspark import Qwen3DSparkForCausalLM

        self.model = SimpleNamespace(markov_head=head(vocab, dtype=dtype))
        self.logits_processor = processor(vocab)
        self.draft_id_to_target_id = mapping
        generator = torch.Generator().manual_seed(1)
        self.lm_head = torch.randint(-4, 5, (vocab, HIDDEN), generator=generator).to(dtype)
        self.confidence_rows: list[tuple[Any, Any]] = []
        self.base: list[Any] = []
        of = Qwen3DSparkForCausalLM
        for name in ("markov_embed", "markov_bias", "add_markov_bias", "map_draft_to_target"):
            if hasattr(of, name):
                setattr(self, name, getattr(of, name).__get__(self))

    def compute_draft_logits(self, hidden: Any) -> Any:
        logits = hidden @ self.lm_head.T
        self.base.append(logits.clone())
        return logits

    def compute_confidence(self, hidden: Any, embed: Any) -> Any:
        return hidden.sum(-1).float() * 1000 + embed.sum(-1).float()


def speculator(model: Model, *, confidence: bool = False) -> Any:
    import torch
    from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

    made: Any = DSparkSpeculator.__new__(DSparkSpeculator)
    count = MAX_REQUESTS * STEPS
    generator = torch.Generator().manual_seed(2)
    settings = {
        "model": model,
        "num_speculative_steps": STEPS,
        "_draft_topk": None,
        "_anchor_idx": torch.arange(MAX_REQUESTS) * STEPS,
        "_step_cols": torch.arange(STEPS, dtype=torch.int32),
        "_d2t_scatter_index": None,
        "_draft_scatter_buf": None,
        # Any order of rows: the hidden states of a sample lie where the inputs put them.
        "sample_indices": torch.randperm(count, generator=generator),
        "sample_idx_mapping": torch.arange(count) // STEPS + 10,
        "sample_pos": torch.arange(count) + 100,
        "input_buffers": SimpleNamespace(input_ids=torch.arange(count) % TARGET_VOCAB),
        "draft_tokens": torch.full((MAX_REQUESTS, STEPS), -7),
        "draft_logits": None,
        "draft_token_confidence_probs": torch.full((MAX_REQUESTS, STEPS), -7.0),
        "enable_adaptive_verification": confidence,
        "use_confidence_head": confidence,
        "_maybe_predict_acceptance": lambda *_: None,
        "draft_watermarker": None,
        "temperature": None,
        "seeds": None,
        "use_fp64_gumbel": False,
    }
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def hidden_states(dtype: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(3)
    return torch.randint(-3, 4, (MAX_REQUESTS * STEPS, HIDDEN), generator=generator).to(dtype)


def reference(made: Any, hidden: Any) -> tuple[Any, Any, Any]:
    """Tokens, logits and embeddings, one request and step after the other, in fp64.

    Returns: draft tokens [R, S] as target ids; logits [R, S, V]; embeddings [R, S, r].
    """
    import torch

    model = made.model
    vocab = model.logits_processor.org_vocab_size
    w1 = model.model.markov_head.markov_w1.weight.double()
    w2 = model.model.markov_head.markov_w2.weight[:vocab].double()
    tokens = torch.zeros(REQUESTS, STEPS, dtype=torch.int64)
    logits = torch.zeros(REQUESTS, STEPS, vocab, dtype=torch.float64)
    embeds = torch.zeros(REQUESTS, STEPS, RANK, dtype=torch.float64)
    for request in range(REQUESTS):
        last = int(made.input_buffers.input_ids[request * STEPS])
        for step in range(STEPS):
            row = hidden[made.sample_indices[request * STEPS + step]].double()
            embeds[request, step] = w1[last]
            logits[request, step] = model.lm_head.double() @ row + w2 @ w1[last]
            last = int(logits[request, step].argmax())
            if model.draft_id_to_target_id is not None:
                last += int(model.draft_id_to_target_id[last])
            tokens[request, step] = last
    return tokens, logits, embeds


def sample(made: Any, hidden: Any, *, fast: bool) -> None:
    with in_place(fast):
        made._sample_sequential(REQUESTS, hidden)


def greedy_tokens_are_those_of_one_row_at_a_time() -> None:
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        for fast in (True, False):
            made = speculator(Model(TARGET_VOCAB, dtype=dtype))
            hidden = hidden_states(dtype)
            before = hidden.clone()
            sample(made, hidden, fast=fast)
            tokens, _, _ = reference(made, hidden)
            assert torch.equal(made.draft_tokens[:REQUESTS], tokens), (dtype, fast)
            assert (made.draft_tokens[REQUESTS:] == -7).all(), "rows of no request were written"
            assert torch.equal(hidden, before)


def each_step_is_added_in_place() -> None:
    """The logits of a step are one block, and the addmm gives them back."""
    import torch

    model = Model(TARGET_VOCAB, dtype=torch.float32)
    made = speculator(model)
    given: list[Any] = []
    add = model.add_markov_bias  # type: ignore[attr-defined]

    def recording(logits: Any, embed: Any) -> Any:
        assert logits.is_contiguous()
        result = add(logits, embed)
        given.append((logits.data_ptr(), result.data_ptr(), logits.shape))
        return result

    model.add_markov_bias = recording  # type: ignore[attr-defined]
    sample(made, hidden_states(torch.float32), fast=True)
    size = REQUESTS * TARGET_VOCAB * 4
    assert len(given) == STEPS
    assert [start - given[0][0] for start, _, _ in given] == [i * size for i in range(STEPS)]
    assert all(start == end for start, end, _ in given)


def addmm_is_within_one_rounding() -> None:
    """Against fp64: half a unit of the result; the two operations round the bias as well."""
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        epsilon = torch.finfo(dtype).eps
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            made = head(TARGET_VOCAB, dtype=dtype, seed=seed)
            weight = torch.randn(PADDED, RANK, generator=generator).to(dtype)
            made.markov_w2.weight.data.copy_(weight)
            base = (torch.randn(REQUESTS, TARGET_VOCAB, generator=generator) * 8).to(dtype)
            embed = torch.randn(REQUESTS, RANK, generator=generator).to(dtype)
            with in_place(True):
                fast = made.add_bias(base.clone(), embed, processor(TARGET_VOCAB))
            with in_place(False):
                slow = made.add_bias(base.clone(), embed, processor(TARGET_VOCAB))
            bias = embed.double() @ weight[:TARGET_VOCAB].double().T
            exact = base.double() + bias
            # fp32 also rounds the products as it sums them: RANK of them.
            terms = embed.double().abs() @ weight[:TARGET_VOCAB].double().abs().T
            summing = (base.double().abs() + terms) * torch.finfo(torch.float32).eps * RANK
            one = exact.abs() * epsilon / 2 + summing
            assert ((fast.double() - exact).abs() <= one * 1.01).all(), (dtype, seed)
            two = one + bias.abs() * epsilon
            assert ((slow.double() - exact).abs() <= two * 1.01).all(), (dtype, seed)
            assert ((fast.double() - slow.double()).abs() <= one + two).all()


def every_condition_falls_back() -> None:
    import torch
    from torch import nn

    class Other:
        def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return x @ layer.weight.T * 3

    def quantized(made: Any, settings: dict[str, Any]) -> None:
        made.markov_w2.quant_method = Other()

    def sharded(made: Any, settings: dict[str, Any]) -> None:
        made.markov_w2.tp_size = 2

    def scaled(made: Any, settings: dict[str, Any]) -> None:
        settings["scale"] = 0.5

    def capped(made: Any, settings: dict[str, Any]) -> None:
        settings["soft_cap"] = 30.0

    def other_head_dtype(made: Any, settings: dict[str, Any]) -> None:
        settings["head_dtype"] = torch.float64

    def as_input(made: Any, settings: dict[str, Any]) -> None:
        settings["logits_as_input"] = True

    def other_weight(made: Any, settings: dict[str, Any]) -> None:
        made.markov_w2.weight = nn.Parameter(made.markov_w2.weight.double(), False)

    def with_bias(made: Any, settings: dict[str, Any]) -> None:
        made.markov_w2.bias = torch.ones(PADDED)

    def nothing(made: Any, settings: dict[str, Any]) -> None:
        pass

    def ask(change: Callable[..., None], *, cuda: bool = True, strided: bool = False) -> bool:
        made = head(TARGET_VOCAB, dtype=torch.float32)
        settings: dict[str, Any] = {}
        change(made, settings)
        logits = torch.ones(REQUESTS, TARGET_VOCAB)
        if strided:
            logits = torch.ones(REQUESTS, PADDED)[:, :TARGET_VOCAB]
        with in_place(cuda):
            return bool(
                made._adds_in_place(
                    logits, torch.ones(REQUESTS, RANK), processor(TARGET_VOCAB, **settings)
                )
            )

    assert ask(nothing)
    assert not ask(nothing, cuda=False)
    assert not ask(nothing, strided=True)
    for change in (quantized, sharded, scaled, capped, other_head_dtype, as_input, other_weight):
        assert not ask(change), change.__name__
    assert not ask(with_bias)

    # And then the result is that of the processor, and the logits are not written.
    for change in (quantized, scaled, capped):
        made = head(TARGET_VOCAB, dtype=torch.float32)
        settings: dict[str, Any] = {}
        change(made, settings)
        logits = torch.arange(REQUESTS * TARGET_VOCAB).float().view(REQUESTS, -1)
        before, embed = logits.clone(), torch.ones(REQUESTS, RANK)
        with in_place(True):
            result = made.add_bias(logits, embed, processor(TARGET_VOCAB, **settings))
        expected = before + made.bias(embed, processor(TARGET_VOCAB, **settings))
        assert torch.equal(result, expected), change.__name__
        assert torch.equal(logits, before)


def reduced_vocabulary_is_scattered_after_the_bias() -> None:
    """Draft columns go to their target ids, all others are -inf, and so is what comes next."""
    import torch
    from vllm.v1.worker.gpu.spec_decode.dspark import speculator as module

    vocab = 10
    # Draft id i stands for target id 3 i + 1.
    mapping = 2 * torch.arange(vocab) + 1
    for fast in (True, False):
        model = Model(vocab, dtype=torch.float32, mapping=mapping)
        made = speculator(model)
        made.draft_logits = torch.zeros(MAX_REQUESTS, STEPS, TARGET_VOCAB)
        made._d2t_scatter_index = torch.arange(vocab) + mapping
        made._draft_scatter_buf = torch.full((MAX_REQUESTS, TARGET_VOCAB), float("-inf"))
        seen: list[Any] = []

        def gumbel(logits: Any, idx_map: Any, *_: Any, into: list[Any] = seen, **named: Any) -> Any:
            into.append(logits.clone())
            named["logits_cache"][:REQUESTS, int(named["logits_cache_col"])] = logits
            return logits.argmax(-1)

        hidden = hidden_states(torch.float32)
        with mock.patch.object(module, "gumbel_sample", gumbel):
            sample(made, hidden, fast=fast)
        tokens, logits, _ = reference(made, hidden)
        assert torch.equal(made.draft_tokens[:REQUESTS], tokens)
        assert set(tokens.flatten().tolist()) <= {3 * i + 1 for i in range(vocab)}
        columns = made._d2t_scatter_index
        others = [i for i in range(TARGET_VOCAB) if i not in columns.tolist()]
        for step, found in enumerate(seen):
            assert torch.equal(found[:, columns].double(), logits[:, step])
            assert (found[:, others] == float("-inf")).all()
        # What was kept for the rejection is each step's own, not what a later one wrote.
        assert torch.equal(made.draft_logits[:REQUESTS][..., columns].double(), logits)


def confidence_belongs_to_its_request_and_step() -> None:
    import torch

    for fast in (True, False):
        made = speculator(Model(TARGET_VOCAB, dtype=torch.float32), confidence=True)
        hidden = hidden_states(torch.float32)
        sample(made, hidden, fast=fast)
        _, _, embeds = reference(made, hidden)
        for request in range(REQUESTS):
            for step in range(STEPS):
                row = hidden[made.sample_indices[request * STEPS + step]]
                expected = float(row.sum()) * 1000 + float(embeds[request, step].sum())
                assert float(made.draft_token_confidence_probs[request, step]) == expected
        assert (made.draft_token_confidence_probs[REQUESTS:] == -7).all()


def a_model_without_the_method_gets_an_addition() -> None:
    import torch

    model = Model(TARGET_VOCAB, dtype=torch.float32)
    if hasattr(model, "add_markov_bias"):
        del model.add_markov_bias
    made = speculator(model)
    hidden = hidden_states(torch.float32)
    made._sample_sequential(REQUESTS, hidden)
    assert torch.equal(made.draft_tokens[:REQUESTS], reference(made, hidden)[0])


CHECKS: tuple[Callable[[], None], ...] = (
    greedy_tokens_are_those_of_one_row_at_a_time,
    each_step_is_added_in_place,
    addmm_is_within_one_rounding,
    every_condition_falls_back,
    reduced_vocabulary_is_scattered_after_the_bias,
    confidence_belongs_to_its_request_and_step,
    a_model_without_the_method_gets_an_addition,
)


def main() -> None:
    results = {}
    for check in CHECKS:
        try:
            check()
        except Exception:
            results[check.__name__] = traceback.format_exc()
        else:
            results[check.__name__] = ""
    print(json.dumps(results))


if __name__ == "__main__":
    main()
