"""What is read from a serve command, in all the ways that vLLM lets it be written."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4port.errors import BadInputError
from dsv4port.evidence.serve_command import parse_serve_command


def test_a_script_with_variables() -> None:
    found = parse_serve_command(
        """
        # production
        export VLLM_USE_DEEP_GEMM=1
        MODEL=/models/V4
        CONFIG='{"mode":"NONE","cudagraph_capture_sizes":[5,10]}'
        A=1 vllm serve "$MODEL" --max-num-seqs 64 \\
            --compilation-config "${CONFIG}" --host 0.0.0.0   # here
        """
    )
    assert found.model == "/models/V4"
    assert found.values == {"--max-num-seqs": 64}
    assert found.objects == {
        "--compilation-config": {"mode": "NONE", "cudagraph_capture_sizes": [5, 10]}
    }
    assert found.ignored == ("--host",)


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("-tp 8", "--tensor-parallel-size", 8),
        ("--tensor-parallel-size=8", "--tensor-parallel-size", 8),
        ("--tensor_parallel_size 8", "--tensor-parallel-size", 8),
        ("--async-scheduling", "--async-scheduling", True),
        ("--no-async-scheduling", "--async-scheduling", False),
        ("-ep", "--enable-expert-parallel", True),
        ("--kv-cache-dtype fp8", "--kv-cache-dtype", "fp8"),
    ],
)
def test_options(words: str, key: str, value: Any) -> None:
    assert parse_serve_command(f"vllm serve m {words}").values == {key: value}


@pytest.mark.parametrize(
    ("words", "owner", "value"),
    [
        ("-ac.backend FLASHMLA", "--attention-config", {"backend": "FLASHMLA"}),
        ("--attention-backend FLASHMLA", "--attention-config", {"backend": "FLASHMLA"}),
        ("--attention-config.backend=FLASHMLA", "--attention-config", {"backend": "FLASHMLA"}),
        ("-cc.mode NONE", "--compilation-config", {"mode": "NONE"}),
        ("-cc.mode 0", "--compilation-config", {"mode": 0}),
        (
            "--cudagraph-capture-sizes 5 10 20 --port 1",
            "--compilation-config",
            {"cudagraph_capture_sizes": [5, 10, 20]},
        ),
        ('-sc \'{"method": "mtp"}\'', "--speculative-config", {"method": "mtp"}),
    ],
)
def test_objects(words: str, owner: str, value: dict[str, Any]) -> None:
    assert parse_serve_command(f"vllm serve m {words}").objects == {owner: value}


def test_the_module_form() -> None:
    text = "uv run python -m vllm.entrypoints.cli.main serve /m -tp 4"
    assert parse_serve_command(text).values == {"--tensor-parallel-size": 4}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no `vllm serve`"),
        ("vllm bench serve --model m", "no `vllm serve`"),
        ("vllm serve 'm", "cannot be read"),
        ("vllm serve m --max-num-seqs many", "whole number"),
        ("vllm serve m --max-num-seqs", "has no value"),
        ("vllm serve m --compilation-config '{'", "is no JSON"),
        ("vllm serve m --compilation-config '[]'", "JSON object"),
    ],
)
def test_what_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        parse_serve_command(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_serve_command(f"vllm serve m {text}")
    except BadInputError as error:
        assert error.what


@given(st.dictionaries(st.sampled_from(["mode", "x"]), st.text(max_size=20)))
def test_json_survives_the_quotes_of_a_shell(config: dict[str, str]) -> None:
    import json

    text = json.dumps(config).replace("$", "\\u0024")
    found = parse_serve_command(f"vllm serve m -cc {shlex.quote(text)}")
    assert found.objects == {"--compilation-config": config}
