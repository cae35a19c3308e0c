"""Checks that need vLLM itself: one process, one JSON object of results.

The zeroer, its kernel (interpreted), the managers' front and the scheduler's method are the tree's.
"""

from __future__ import annotations

import inspect
import json
import random
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

BLOCKS = 6
DIRT = 0x5A


class Layer(NamedTuple):
    """Where a layer's page lies in each block: bytes, multiples of 4."""

    group: int
    offset: int
    page: int


class Layout(NamedTuple):
    """One allocation of `BLOCKS` tiles that all groups share, as packed caches have it."""

    tile: int
    layers: list[Layer]

    def bytes_of(self, group: int | None, blocks: list[int]) -> set[int]:
        """Offsets of the pages that a group has in these blocks; all groups' for None."""
        return {
            block * self.tile + layer.offset + byte
            for layer in self.layers
            if group in (None, layer.group)
            for block in blocks
            for byte in range(layer.page)
        }


def random_layout(chance: random.Random) -> Layout:
    """Groups from the start of the tile on, so that they overlay, with pages of their own size."""
    tile = 4 * chance.randint(6, 24)
    layers = []
    for group in range(chance.randint(2, 4)):
        offset = 0
        while offset < tile and (offset == 0 or chance.random() < 0.7):
            page = 4 * chance.randint(1, (tile - offset) // 4)
            layers.append(Layer(group, offset, page))
            offset += page
    chance.shuffle(layers)
    return Layout(tile, layers)


def zeroer(layout: Layout) -> tuple[Any, Any]:
    """The tree's zeroer on a dirty allocation. Returns both; the latter as bytes."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec
    from vllm.v1.worker.utils import AttentionGroup, KVBlockZeroer

    memory = torch.full((BLOCKS * layout.tile,), DIRT, dtype=torch.uint8)
    context = {
        str(index): SimpleNamespace(
            kv_cache=memory.as_strided((BLOCKS, layer.page), (layout.tile, 1), layer.offset)
        )
        for index, layer in enumerate(layout.layers)
    }
    spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=torch.uint8)
    backend: Any = SimpleNamespace(get_kv_cache_block_dim=lambda *_, **__: 0)
    groups = [
        AttentionGroup(backend, [str(index)], spec, layer.group)
        for index, layer in enumerate(layout.layers)
    ]
    count = 1 + max(layer.group for layer in layout.layers)
    arguments: dict[str, Any] = {
        "attn_groups_iter": groups,
        "kernel_block_sizes": [16] * count,
        "cache_dtype": "auto",
        "static_forward_context": context,
        "num_blocks": BLOCKS,
    }
    known = inspect.signature(KVBlockZeroer.__init__).parameters
    made = KVBlockZeroer(
        torch.device("cpu"), **{name: arguments[name] for name in arguments if name in known}
    )
    return made, memory


def on_cpu() -> Any:
    import torch
    from vllm.v1.worker import utils

    def tensor(values: list[int], *, device: Any, dtype: Any) -> Any:
        return torch.tensor(values, device=device, dtype=dtype)

    return mock.patch.object(utils, "async_tensor_h2d", tensor)


def cleared(memory: Any) -> set[int]:
    """Offsets of the bytes that are no longer dirty; all of them must be zero."""
    changed = (memory != DIRT).nonzero().flatten()
    assert not memory[changed].any()
    return set(changed.tolist())


def every_page_of_a_new_block_is_cleared_and_nothing_else() -> None:
    """Overlaid groups with pages of different size: 60 random layouts, all groups at once."""
    for seed in range(60):
        chance = random.Random(seed)
        layout = random_layout(chance)
        made, memory = zeroer(layout)
        groups = sorted({layer.group for layer in layout.layers})
        free = list(range(BLOCKS))
        chance.shuffle(free)
        new = {group: [free.pop()] for group in groups if free}
        if free:
            new[groups[-1]].append(free.pop())
        with on_cpu():
            made.zero_blocks_by_group(new)
        expected = set().union(*(layout.bytes_of(group, ids) for group, ids in new.items()))
        assert cleared(memory) == expected, (seed, layout, new)
        assert expected <= layout.bytes_of(None, [b for ids in new.values() for b in ids])


def a_larger_page_behind_a_smaller_one_is_cleared_whole() -> None:
    """The group that comes second has the larger page at the same address."""
    layout = Layout(32, [Layer(0, 0, 8), Layer(1, 0, 32)])
    made, memory = zeroer(layout)
    with on_cpu():
        made.zero_blocks_by_group({1: [3]})
    assert cleared(memory) == set(range(96, 128))
    with on_cpu():
        made.zero_blocks_by_group({0: [1]})
    assert cleared(memory) == set(range(96, 128)) | set(range(32, 40))


def groups_share_the_block_size_of_the_warm_up() -> None:
    for seed in range(5):
        made, _ = zeroer(random_layout(random.Random(seed)))
        assert {meta[4] for meta in made._group_meta.values()} == {made._meta[4]}


def nothing_to_zero_is_no_launch() -> None:
    from vllm.v1.worker import utils

    made, memory = zeroer(Layout(16, [Layer(0, 0, 16)]))
    with mock.patch.object(utils, "_zero_kv_blocks_kernel") as kernel, on_cpu():
        made.zero_blocks_by_group({})
        made.zero_blocks_by_group({0: []})
        # A group whose layers are on other workers.
        made.zero_blocks_by_group({7: [1]})
    assert kernel.mock_calls == []
    assert not cleared(memory)


def the_managers_are_drained_by_group() -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    class Manager:
        def __init__(self, ids: list[int]) -> None:
            self.ids = ids

        def take_new_block_ids(self) -> list[int]:
            ids, self.ids = self.ids, []
            return ids

    manager = KVCacheManager.__new__(KVCacheManager)
    managers = (Manager([4, 5]), Manager([]), Manager([9]))
    manager.coordinator = SimpleNamespace(single_type_managers=managers)
    assert manager.take_new_block_ids() == {0: [4, 5], 2: [9]}
    assert manager.take_new_block_ids() == {}


def the_scheduler_leaves_out_what_a_connector_loads() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    def ask(new: dict[int, list[int]], skip: set[int], *, needed: bool = True) -> Any:
        scheduler: Any = Scheduler.__new__(Scheduler)
        scheduler.needs_kv_cache_zeroing = needed
        scheduler.kv_cache_manager = SimpleNamespace(take_new_block_ids=lambda: new)
        scheduler._skip_zero_block_ids = skip
        return scheduler._get_new_block_ids_to_zero()

    skip = {2, 9}
    assert ask({0: [1, 2], 3: [9]}, skip) == {0: [1]}
    assert skip == set()
    assert ask({0: [1]}, set()) == {0: [1]}
    assert ask({0: [1]}, {1}) is None
    assert ask({}, set()) is None
    assert ask({0: [1]}, set(), needed=False) is None


def runner_v1_hands_the_groups_on() -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    given: list[Any] = []
    runner: Any = SimpleNamespace(
        _kv_block_zeroer=SimpleNamespace(zero_blocks_by_group=given.append)
    )
    GPUModelRunner._zero_block_ids(runner, {0: [1], 2: [3]})
    assert given == [{0: [1], 2: [3]}]


CHECKS: tuple[Callable[[], None], ...] = (
    every_page_of_a_new_block_is_cleared_and_nothing_else,
    a_larger_page_behind_a_smaller_one_is_cleared_whole,
    groups_share_the_block_size_of_the_warm_up,
    nothing_to_zero_is_no_launch,
    the_managers_are_drained_by_group,
    the_scheduler_leaves_out_what_a_connector_loads,
    runner_v1_hands_the_groups_on,
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
