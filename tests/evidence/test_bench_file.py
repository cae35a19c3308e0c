"""Files of comparisons and of results: what is wrong with them is said, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsv4port.errors import BadInputError
from dsv4port.evidence.bench_file import load_bench
from dsv4port.evidence.bench_result import read_bench_results

SOURCE = Path(__file__).with_name("cases") / "mtp-graphs" / "mtp4" / "bs16.json"
REAL: dict[str, Any] = json.loads(SOURCE.read_text())


def write(folder: Path, **changes: Any) -> Path:
    values = {**REAL, **changes}
    file = folder / "result.json"
    file.write_text(json.dumps({key: one for key, one in values.items() if one != "GONE"}))
    return file


def test_a_result_of_the_tool_is_read(tmp_path: Path) -> None:
    (found,) = read_bench_results(write(tmp_path), "result.json")
    assert (found.prompts, found.completed, found.concurrency) == (16, 16, 16)
    assert found.latencies == {"mean_ttft_ms": 11825.13, "mean_tpot_ms": 43.565}
    assert found.speculation is not None


def test_appended_results_are_runs_of_their_own(tmp_path: Path) -> None:
    file = write(tmp_path)
    file.write_text(f"{file.read_text()}\n{file.read_text()}")
    assert len(read_bench_results(file, "result.json")) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"duration": "GONE"}, "duration must be a number"),
        ({"duration": 0}, "duration is 0"),
        ({"duration": float("nan")}, "duration must be a number"),
        ({"completed": "16"}, "completed must be a whole number"),
        ({"completed": True}, "completed must be a whole number"),
        ({"completed": 17, "request_throughput": 17 / REAL["duration"]}, "17 completed"),
        ({"output_throughput": 2 * REAL["output_throughput"]}, "contradicts itself"),
        ({"total_output_tokens": 1024}, "contradicts itself"),
        ({"spec_decode_accepted_tokens": 10**9}, "of"),
        ({"mean_ttft_ms": -1.0}, "mean_ttft_ms"),
    ],
)
def test_results_that_make_no_sense(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        read_bench_results(write(tmp_path, **changes), "result.json")


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_result_that_is_cut_off(tmp_path: Path, length: int) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text()[:length])
    with pytest.raises(BadInputError, match=r"result\.json"):
        read_bench_results(file, "result.json")


def test_every_prefix_of_a_result_is_refused_or_whole(tmp_path: Path) -> None:
    file = write(tmp_path)
    text = file.read_text()
    for end in range(0, len(text) - 1, 37):
        file.write_text(text[:end])
        with pytest.raises(BadInputError):
            read_bench_results(file, "result.json")


HEAD = "format: 1\ntitle: T\norigin: measured\narms: [a]\n"
RUN = "runs:\n- {file: result.json, arm: a}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD.replace("format: 1", "format: 2") + RUN, "format"),
        (HEAD.replace("origin: measured\n", "") + RUN, "origin"),
        (HEAD.replace("measured", "guessed") + RUN, "origin"),
        (HEAD + RUN.replace("arm: a", "arm: b"), r"bench\.yaml:6: runs.0..arm: is b"),
        (HEAD + RUN.replace("result.json", "../result.json"), "file"),
        (HEAD + RUN.replace("result.json", "gone.json"), "gone.json: cannot be read"),
        (HEAD + RUN + "extra: 1\n", "extra"),
        (HEAD.replace("[a]", "[a, b]") + RUN, "no run of b"),
        (HEAD + "metrics: [{metric: speed, digits: 1}]\n" + RUN, "metric"),
        (HEAD + "gates: {max_regression: {speed: 1}}\n" + RUN, "is no metric"),
        (HEAD + "gates: {min_completed: 101}\n" + RUN, "percent from 0 to 100"),
        (HEAD + "layout: metrics\n" + RUN + "- {file: result.json, arm: a, load: x}\n", "one load"),
    ],
)
def test_comparisons_that_make_no_sense(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path)
    file = tmp_path / "bench.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=words):
        load_bench(file, "bench.yaml")
