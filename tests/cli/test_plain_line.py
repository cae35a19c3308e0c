"""A line that is read without click means what click makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dsv4port.cli import apply, run_apply, run_status, run_verify, status, verify
from dsv4port.cli.context import Run
from dsv4port.cli.plain_line import plain_reply, read_plain_line
from dsv4port.cli.program import invoke
from dsv4port.cli.render import Reply

WORDS = (
    "apply", "verify", "status", "stat", "reset", "demo", "musa-v0.26", "", "-", "--",
    "--json", "--force", "--unlocked", "--deep", "--forc", "--no-force", "-f", "--force=1",
    "--project", "--checkout", "--project=.", "--checkout=new", "--project=gone", "--checkout=",
    "--checkout=pyproject.toml", "tests", "gone", "--installed", "--help", "--version", "--json=1",
)  # fmt: skip


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the commands were called with; nothing is run."""
    calls: list[Any] = []

    def recorder(name: str) -> Any:
        def record(run: Run, *operands: Any, **named: Any) -> Reply:
            flags = {key for key, value in named.items() if value}
            stack = operands[0] if operands else None
            calls.append(
                (name, run.command, stack, flags, run.json, run.project_folder, run.checkout_folder)
            )
            return Reply()

        return record

    for function, modules in (
        ("apply_to_checkout", (apply, run_apply)),
        ("hold_checkout", (verify, run_verify)),
        ("report_checkout", (status, run_status)),
    ):
        for module in modules:
            monkeypatch.setattr(module, function, recorder(function))
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return calls


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None
)
@given(arguments=st.lists(st.sampled_from(WORDS), max_size=6))
@example(arguments=["apply", "demo", "--force", "--unlocked", "--json"])
@example(arguments=["--project", "tests", "--json", "verify", "--deep", "--project=."])
@example(arguments=["status", "--checkout", "gone", "--checkout", "tests"])
@example(arguments=["--project=gone", "verify", "--project=."])
@example(arguments=["--checkout=pyproject.toml", "status", "--checkout", "tests"])
@example(arguments=["apply", "--checkout", "pyproject.toml", "demo"])
@example(arguments=["apply", "--force", "demo", "--force"])
def test_click_reads_the_same(seen: list[Any], arguments: list[str]) -> None:
    seen.clear()
    if plain_reply(arguments, Run()) is None:
        assert seen == []
        return
    assert isinstance(invoke(arguments, Run()), Reply)
    plain, clicked = seen
    assert plain == clicked


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["verify"],
        ["verify", "demo", "--deep"],
        ["--json", "apply", "demo"],
        ["apply", "demo", "--force", "--unlocked", "--checkout", "elsewhere"],
    ],
)
def test_the_usual_lines_are_plain(arguments: list[str]) -> None:
    assert read_plain_line(arguments) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ["reset", "v1.0.0"],
        ["apply"],
        ["apply", "demo", "more"],
        ["status", "demo"],
        ["--force", "apply", "demo"],
        ["verify", "--installed", "."],
        ["verify", "--project", "no-such-folder"],
        ["--project=.", "verify", "--project=."],
        ["status", "--help"],
    ],
)
def test_others_are_left_to_click(seen: list[Any], arguments: list[str]) -> None:
    assert read_plain_line(arguments) is None
    assert plain_reply(arguments, Run()) is None
    assert seen == []


def test_what_click_refuses_is_refused(seen: list[Any]) -> None:
    assert plain_reply(["status", "--checkout", "pyproject.toml"], Run()) is None
    with pytest.raises(click.UsageError):
        invoke(["status", "--checkout", "pyproject.toml"], Run())
