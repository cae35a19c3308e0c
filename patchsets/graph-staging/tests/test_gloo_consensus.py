"""Two processes, a real process group: ranks agree before they allocate and before they register.

A scenario in which a rank waits for the other one ends in the timeout of the group, and fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch]

MIB = 1024 * 1024
SLOTS = 4 * MIB


@pytest.fixture(scope="module")
def seen(vllm_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw, by scenario."""
    pytest.importorskip("torch.distributed")
    store = tmp_path_factory.mktemp("gloo") / "store"
    script = Path(__file__).with_name("gloo_rank.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(vllm_tree), str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        for rank in range(2)
    ]
    results = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            results.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return results


def column(seen: list[Any], scenario: str, key: str) -> list[Any]:
    return [rank[scenario][key] for rank in seen]


def test_ranks_that_agree_stage_and_seal(seen: list[Any]) -> None:
    assert column(seen, "agree", "error") == ["", ""]
    assert column(seen, "agree", "state") == ["SEALED", "SEALED"]
    # Three addresses of the throwaway graph, six of the two that serve.
    assert column(seen, "agree", "registered") == [[3, 6], [3, 6]]
    assert column(seen, "agree", "buffer") == [
        one + SLOTS for one in column(seen, "agree", "shared")
    ]


@pytest.mark.parametrize("scenario", ["another_plan", "another_limit", "cannot_take_part"])
def test_ranks_that_differ_fall_back_together_before_they_allocate(
    seen: list[Any], scenario: str
) -> None:
    assert column(seen, scenario, "error") == ["", ""]
    assert column(seen, scenario, "state") == [None, None]
    assert column(seen, scenario, "buffer") == column(seen, scenario, "shared")
    limits = [8 * MIB, 4 * MIB if scenario == "another_limit" else 8 * MIB]
    assert column(seen, scenario, "limit") == limits
    assert column(seen, scenario, "registered") == [[6], [6]]


def test_a_rank_that_fails_does_not_leave_the_other_waiting(seen: list[Any]) -> None:
    good, bad = column(seen, "fails_for_good", "error")
    assert good.startswith("ArenaConsensusError")
    assert "rank 1: failed rank: MemoryError: no memory" in good
    assert bad == "MemoryError: no memory"
    assert column(seen, "fails_for_good", "state") == ["FAILED", "FAILED"]
    assert column(seen, "fails_for_good", "registered") == [[], []]


def test_a_failure_while_profiling_frees_the_slots_on_both(seen: list[Any]) -> None:
    bad, good = column(seen, "fails_while_profiling", "error")
    assert bad == "MemoryError: no memory"
    assert "rank 0: failed rank" in good
    assert column(seen, "fails_while_profiling", "state") == ["RELEASED", "RELEASED"]
    assert column(seen, "fails_while_profiling", "registered") == [[], []]


def test_empty_ledgers_are_exchanged(seen: list[Any]) -> None:
    assert column(seen, "nothing", "error") == ["", ""]
    assert column(seen, "nothing", "state") == ["OPEN", "OPEN"]
    assert column(seen, "nothing", "registered") == [[0], [0]]


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("nothing_on_one_rank", "rank 1: mismatch: 0 slots, rank 0 has 6"),
        ("another_order", "rank 1: mismatch: slot 0 differs from rank 0's"),
        ("another_number_of_addresses", "the ranks captured [6, 7] addresses"),
    ],
)
def test_ranks_that_captured_otherwise_register_nothing(
    seen: list[Any], scenario: str, words: str
) -> None:
    for error in column(seen, scenario, "error"):
        assert error.startswith("ArenaConsensusError")
        assert words in error
    assert column(seen, scenario, "registered") == [[], []]


def test_a_rank_with_an_op_too_few_stops_both(seen: list[Any]) -> None:
    good, bad = column(seen, "an_op_too_few", "error")
    assert good.startswith("ArenaConsensusError")
    assert "rank 1: failed rank" in good
    assert bad.startswith("ArenaManifestError")
    assert "expected 3, got 2" in bad
    assert column(seen, "an_op_too_few", "registered") == [[], []]
