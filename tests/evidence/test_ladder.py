"""``dsv4port ladder``: the seeds' deployment, its refusals, and commands that would fall back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.ladder_project import ladder_project
from support.synthetic import SyntheticProject

MIB = 1024 * 1024
SEVEN = [[5, 1], [10, 2], [20, 4], [40, 8], [80, 16], [160, 32], [320, 64]]
COMPILATION = {
    "mode": "NONE",
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "max_cudagraph_capture_size": 320,
    "cudagraph_capture_sizes": [5, 10, 20, 40, 80, 160, 320],
    "cudagraph_copy_inputs": False,
}
COMMAND = (
    "vllm serve m --max-num-seqs 64 --max-num-batched-tokens 8195 --tensor-parallel-size 8 "
    "-ac.backend FLASHMLA --kv-cache-dtype fp8 --async-scheduling "
    f"--compilation-config '{json.dumps(COMPILATION)}' "
    """--speculative-config '{"method":"mtp","num_speculative_tokens":4}'"""
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SyntheticProject:
    return ladder_project(tmp_path_factory.mktemp("ladder") / "base")


def ladder(project: SyntheticProject, *arguments: str, code: int = 0) -> dict[str, Any]:
    answer = project.run("ladder", *arguments, "--json").json
    assert answer["exit_code"] == code, answer
    return answer


def test_the_seven_graphs_in_exactly_512_mib(project: SyntheticProject) -> None:
    arguments = ("--mtp", "4", "--max-reqs", "64", "--max-batched-tokens", "8195")
    found = ladder(project, "on-musa", *arguments)["ladder"]
    assert found["requests"] == [1, 2, 4, 8, 16, 32, 64]
    assert found["capture_sizes"] == [5, 10, 20, 40, 80, 160, 320]
    assert found["plan"]["descriptors"] == SEVEN
    assert found["plan"]["slots"] == 609
    assert found["plan"]["arena_bytes"] == found["plan"]["bound_bytes"] == 512 * MIB
    assert json.loads(found["compilation_config"]) == COMPILATION
    assert json.loads(found["speculative_config"]) == {
        "method": "mtp", "num_speculative_tokens": 4
    }  # fmt: skip


@pytest.mark.parametrize("stack", ["on-cuda", "on-musa"])
def test_the_command_it_gives_passes_its_own_check(project: SyntheticProject, stack: str) -> None:
    command = ladder(project, stack)["ladder"]["command"]
    assert ladder(project, stack, "--check", command)["check"]["mode"] == "arena"


def test_what_does_not_fit_is_refused_with_its_numbers(project: SyntheticProject) -> None:
    found = ladder(project, "on-musa", "--max-batched-tokens", "8705", code=1)["ladder"]
    assert "516.00 MiB" in found["plan"]["refusal"]
    assert found["plan"]["descriptors"] == []
    assert ladder(project, "on-musa", "--max-batched-tokens", "8704")["ladder"]["plan"]["slots"]


def test_what_a_device_accepts_limits_the_plan(project: SyntheticProject) -> None:
    hopper = ladder(project, "on-cuda", "--capability", "9.0")["ladder"]["plan"]
    assert (hopper["limit"], hopper["descriptors"]) == (256 * 1024, SEVEN[:3])
    other = ladder(project, "on-cuda", "--capability", "12.0")["ladder"]["plan"]
    assert (other["limit"], other["descriptors"]) == (8 * MIB, SEVEN)
    given = ladder(project, "on-cuda", "--capability", "9.0", "--limit", "400000")["ladder"]["plan"]
    assert (given["limit"], given["descriptors"]) == (400000, SEVEN[:4])


def test_without_mtp(project: SyntheticProject) -> None:
    found = ladder(project, "on-musa", "--mtp", "0", "--reqs", "1,64,8")["ladder"]
    assert found["capture_sizes"] == [1, 8, 64]
    assert found["speculative_config"] is None
    check = ladder(project, "on-musa", "--check", found["command"])["check"]
    assert (check["mode"], check["plan"]) == ("single", None)


def test_a_command_inside_of_the_contract(project: SyntheticProject, tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(f"PORT=1\n{COMMAND} --port $PORT\n")
    check = ladder(project, "on-musa", "--check", str(file))["check"]
    on = {row["feature"] for row in check["features"] if row["holds"]}
    assert {"arena", "fence", "headroom", "direct_out"} <= on
    assert "single_staging" not in on
    assert check["plan"]["descriptors"] == SEVEN and check["fallbacks"] == []
    assert "not looked at: --port" in check["remarks"]


def test_graphs_that_another_plan_lacks(project: SyntheticProject) -> None:
    arguments = ("--check", COMMAND, "--planned", "1,2,4,8,16")
    check = ladder(project, "on-musa", *arguments, code=1)["check"]
    assert check["fallbacks"] == [
        "BS32 would fall back: (160,32) not in plan",
        "BS64 would fall back: (320,64) not in plan",
    ]


@pytest.mark.parametrize(
    ("stack", "old", "new", "mode", "words"),
    [
        ("on-cuda", "", "", "upstream", "FLASHMLA_SPARSE"),
        ("on-musa", "-parallel-size 8", "-parallel-size 4", "upstream", "tensor_parallel_size"),
        ("on-musa", "FULL_DECODE_ONLY", "FULL", "upstream", "cudagraph_mode"),
        ("on-musa", "-cache-dtype fp8", "-cache-dtype auto", "upstream", "cache_dtype"),
        ("on-musa", "serve m", "serve m -ep", "upstream", "enable_expert_parallel"),
        ("on-musa", '_tokens":4', '_tokens":3', "collective", "num_speculative_tokens"),
        ("on-musa", "--max-num-seqs 64", "", "upstream", "max_num_seqs"),
        ("on-musa", "-tokens 8195", "-tokens 8705", "collective", ""),
    ],
)
def test_commands_outside_of_it(
    project: SyntheticProject, stack: str, old: str, new: str, mode: str, words: str
) -> None:
    assert old in COMMAND
    command = COMMAND.replace(old, new) if old else COMMAND
    check = ladder(project, stack, "--check", command, code=1)["check"]
    assert check["mode"] == mode
    [arena] = [row for row in check["features"] if row["feature"] == "arena"]
    assert words in " ".join(arena["reasons"])
    if mode == "collective" and check["plan"]:
        assert len(check["fallbacks"]) == 7


def test_batches_beyond_the_largest_graph_are_told(project: SyntheticProject) -> None:
    command = COMMAND.replace("5, 10, 20, 40, 80, 160, 320", "5, 10, 20, 40, 80")
    check = ladder(project, "on-musa", "--check", command)["check"]
    assert any("batches of 17 to 64 requests run without a graph" in r for r in check["remarks"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["without"], 5, "does not bring"),
        (["nope"], 5, "no stack"),
        ([], 2, "no stack was named"),
        (["on-cuda", "--platform", "rocm"], 5, "not for the platform rocm"),
        (["on-cuda", "--reqs", "1,two"], 2, "--reqs"),
        (["on-cuda", "--planned", "1"], 2, "--planned needs --check"),
        (["on-cuda", "--check", "gone.sh"], 5, "gone.sh"),
        (["on-cuda", "--check", "vllm bench serve"], 5, "no `vllm serve`"),
        (["on-cuda", "--mtp", "-1"], 2, "--mtp"),
    ],
)
def test_what_cannot_be_asked_for(
    project: SyntheticProject, arguments: list[str], code: int, words: str
) -> None:
    found = project.run("ladder", *arguments)
    assert (found.code, words in found.err) == (code, True), found
    assert "\n→ " in found.err


def test_a_module_that_is_not_as_locked_is_not_run(
    project: SyntheticProject, tmp_path: Path
) -> None:
    copy = project.copy(tmp_path / "copy")
    (patch,) = (copy.root / "patchsets" / "staging" / "v1.0.0").glob("*.patch")
    patch.write_bytes(patch.read_bytes().replace(b"+import enum\n", b"+import enum;1/0\n"))
    found = copy.run("ladder", "on-musa")
    assert found.code in (3, 5), found
    assert "ZeroDivision" not in found.err
