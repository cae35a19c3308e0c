"""Who hands the ids of new blocks on, and how groups are numbered: read from the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FIELD = "new_block_ids_to_zero"
RUNNER_V2 = "vllm/v1/worker/gpu/model_runner.py"


def source(tree: Path, path: str) -> str:
    return (tree / path).read_text(encoding="utf-8")


def flat(text: str) -> str:
    """Without line breaks, so that a formatter does not matter."""
    return re.sub(r"\s+", "", text)


@pytest.mark.fix
def test_both_runners_zero_by_group(vllm_tree: Path) -> None:
    v2 = flat(source(vllm_tree, RUNNER_V2))
    assert f"self.kv_block_zeroer.zero_blocks_by_group(scheduler_output.{FIELD})" in v2
    v1 = flat(source(vllm_tree, "vllm/v1/worker/gpu_model_runner.py"))
    assert "self._kv_block_zeroer.zero_blocks_by_group(block_ids)" in v1
    output = source(vllm_tree, "vllm/v1/core/sched/output.py")
    assert f"    {FIELD}: dict[int, list[int]] | None = None\n" in output


@pytest.mark.fix
def test_the_cpu_runner_takes_the_ids_of_all_groups(vllm_tree: Path) -> None:
    text = source(vllm_tree, "vllm/v1/worker/cpu_model_runner.py")
    assert "for block_id in chain.from_iterable(block_ids.values()):" in text


def test_nobody_else_reads_the_ids(vllm_tree: Path) -> None:
    """A reader that took the dict for a list would see group numbers as ids."""
    readers = {
        str(path.relative_to(vllm_tree))
        for path in (vllm_tree / "vllm").rglob("*.py")
        if f".{FIELD}" in path.read_text(encoding="utf-8")
    }
    assert readers == {RUNNER_V2, "vllm/v1/worker/gpu_model_runner.py"}


def test_managers_are_in_the_order_of_the_groups(vllm_tree: Path) -> None:
    text = flat(source(vllm_tree, "vllm/v1/core/kv_cache_coordinator.py"))
    found = re.search(r"self\.single_type_managers=tuple\(.*?kv_cache_group_id=i,", text)
    assert found
    assert "fori,kv_cache_groupinenumerate(self.kv_cache_config.kv_cache_groups)" in text


def test_every_attention_group_records_its_new_blocks(vllm_tree: Path) -> None:
    text = source(vllm_tree, "vllm/v1/core/single_type_kv_cache_manager.py")
    found = re.search(r"self\._record_new_block_ids = (.*?)\n\s+self\.", text, re.DOTALL)
    assert found
    assert "AttentionSpec" in found.group(1)
