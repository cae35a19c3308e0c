"""The frame of the command line: finding commands, global options, and how errors come out."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.synthetic import Result, SyntheticProject

from dsv4port.cli.main import COMMANDS, load_command

HEAVY = ("rich", "requests", "tree_sitter", "yaml", "unidiff", "git", "email", "tarfile")


def imported(project: SyntheticProject, *arguments: str) -> set[str]:
    """The modules that a run of the program imports."""
    code = (
        "import sys\n"
        "from dsv4port.cli.main import run\n"
        f"code = run({list(arguments)!r})\n"
        "print('\\n'.join(sorted(sys.modules)), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        check=True,
        text=True,
    )
    return set(done.stderr.split("\n"))


def on_terminal(project: SyntheticProject, command: list[str], **environment: str) -> str:
    """Everything a command writes to standard error when that is a terminal."""
    main, child = pty.openpty()
    kept = {key: value for key, value in project.environment.items() if key != "NO_COLOR"}
    process = subprocess.Popen(
        command,
        cwd=project.root,
        env={**kept, "TERM": "xterm", "COLUMNS": "100", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=child,
    )
    os.close(child)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([main], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(main, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(main)
    process.wait(10)
    return seen.decode()


def test_help_names_every_command_and_imports_none(demo: SyntheticProject) -> None:
    result = demo.run("--help")
    assert result.code == 0
    for name, (_, line) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", result.out, re.MULTILINE)
    modules = imported(demo, "--help")
    assert not modules & {module for module, _ in COMMANDS.values()}
    assert not modules & {*HEAVY, "typer"}


def test_status_imports_nothing_heavy(applied: SyntheticProject) -> None:
    modules = imported(applied, "status")
    assert "dsv4port.cli.run_status" in modules
    assert not modules & {*HEAVY, "click", "typer"}


def test_unchanged_apply_imports_nothing_heavy(applied: SyntheticProject) -> None:
    modules = imported(applied, "apply", "demo")
    assert not modules & {*HEAVY, "click", "typer", "dsv4port.apply.engine"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_global_options(name: str) -> None:
    command = load_command(name)
    names = {option for parameter in command.params for option in parameter.opts}
    assert {"--project", "--checkout", "--json"} <= names
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name


def test_version(demo: SyntheticProject) -> None:
    from dsv4port import __version__

    assert demo.run("--version") == Result(0, f"dsv4port {__version__}\n", "")


def test_global_options_go_before_and_after_the_name(
    applied: SyntheticProject, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = ["--project", str(applied.root), "--checkout", str(applied.checkout), "--json"]
    before = applied.run(*options, "status", cwd=elsewhere)
    after = applied.run("status", *options, cwd=elsewhere)
    assert before == after
    assert before.json["receipt"]["stack"] == "demo"


def test_works_in_any_folder_of_the_project(applied: SyntheticProject) -> None:
    result = applied.run("status", "--json", cwd=applied.root / "patchsets" / "alpha")
    assert result.json["checkout"] == str(applied.checkout)


def test_a_relative_checkout_is_relative_to_the_current_folder(applied: SyntheticProject) -> None:
    folder = applied.root / "patchsets"
    result = applied.run("status", "--checkout", "../vendor/vllm", "--json", cwd=folder)
    assert result.json["receipt"]["stack"] == "demo"


def test_unknown_command(demo: SyntheticProject) -> None:
    result = demo.run("aply")
    assert result == Result(
        2, "", 'error: there is no command "aply", did you mean `apply`?\n→ see `dsv4port --help`\n'
    )


def test_no_command(demo: SyntheticProject) -> None:
    result = demo.run()
    assert result.code == 2
    assert result.err.startswith("error: no command was given\n→ ")


def test_unknown_option_is_a_usage_error_in_json_too(demo: SyntheticProject) -> None:
    human = demo.run("status", "--nope")
    assert human.code == 2
    assert human.out == ""
    assert human.err.startswith("error: no such option")
    assert human.err.endswith("→ see `dsv4port status --help`\n")
    answer = demo.run("status", "--json", "--nope").json
    assert (answer["command"], answer["ok"], answer["exit_code"]) == ("status", False, 2)
    assert answer["error"]["kind"] == "Usage"


@pytest.mark.parametrize(
    "arguments",
    [
        ["fetch", "--json"],
        ["apply", "--json"],
        ["apply", "nope", "--json"],
        ["verify", "--json"],
        ["reset", "--json"],
        ["lock", "nope", "--json"],
        ["show", "nope", "--json"],
        ["refresh", "nope", "--json"],
        ["list", "nope", "--json"],
        ["--json", "nope"],
    ],
)
def test_failures_are_one_json_object(demo: SyntheticProject, arguments: list[str]) -> None:
    result = demo.run(*arguments)
    answer = result.json
    assert result.err == ""
    assert answer["format"] == 1
    assert answer["ok"] is False
    assert answer["exit_code"] == result.code != 0
    assert set(answer["error"]) == {"kind", "what", "fix", "details"}


def test_no_project(demo: SyntheticProject, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for command in ["status"], ["list"], ["fetch", "--all"], ["apply", "demo"]:
        result = demo.run(*command, cwd=empty)
        assert result.code == 2
        assert "no project at or above" in result.err
        assert "→ " in result.err


def test_project_that_does_not_exist(demo: SyntheticProject) -> None:
    assert demo.run("--project", "nowhere", "status").code == 2


def test_broken_manifest_names_file_and_line(demo: SyntheticProject) -> None:
    file = demo.root / "manifests" / "stacks" / "demo.yaml"
    file.write_text("format: 1\nname: demo\ntitle: Demo\npin: v1.0.0\ntarget: x\npatchset: [a]\n")
    result = demo.run("apply", "demo")
    assert result.code == 5
    assert "error: manifests/stacks/demo.yaml:6: " in result.err
    answer = demo.run("apply", "demo", "--json").json
    assert answer["error"]["kind"] == "Manifest"
    assert answer["error"]["what"].startswith("manifests/stacks/demo.yaml:6: ")


def test_broken_pipe_is_quiet(applied: SyntheticProject) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "dsv4port", "list"],
        cwd=applied.root, env=applied.environment, stdout=writer, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_output_is_an_environment_error(applied: SyntheticProject) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dsv4port", "list"],
            cwd=applied.root, env=applied.environment, stdout=full, stderr=subprocess.PIPE,
        )  # fmt: skip
    assert done.returncode == 6
    assert done.stderr.decode().startswith("error: no space left on device\n→ ")


def test_names_cannot_reach_the_terminal(applied: SyntheticProject) -> None:
    evil = "\x1b[2J\x07\u202egnp.exe\nno changes"
    (applied.checkout / evil).write_text("x")
    for command in ["status"], ["verify"], ["apply", "demo"], ["reset"]:
        result = applied.run(*command)
        text = result.out + result.err
        assert "\\033[2J\\a" in text
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
        assert "\nno changes" not in text
        listed = applied.run(*command, "--json").out
        assert not set(listed) & {"\x1b", "\x07", "\u202e"}


def test_subjects_cannot_reach_the_terminal(demo: SyntheticProject) -> None:
    folder = demo.root / "patchsets" / "beta" / "v1.0.0"
    patch = next(folder.glob("*.patch"))
    data = patch.read_bytes()
    start, end = data.index(b"Subject: "), data.index(b"\n\n")
    # The charset headers of the mail stay; only the subject is another one.
    header = re.sub(
        rb"Subject: (?:.*\n )*.*\n", b"Subject: \x1b]0;owned\x07 x\n", data[start : end + 1]
    )
    patch.write_bytes(data[:start] + header + data[end + 1 :])
    result = demo.run("show", f"beta/{patch.name}")
    assert result.code in (0, 5)
    assert "\x1b" not in result.out + result.err


def test_no_colour_unless_on_a_terminal(demo: SyntheticProject) -> None:
    command = [sys.executable, "-m", "dsv4port", "apply", "nope"]
    assert "\x1b[1;31merror:\x1b[0m" in on_terminal(demo, command)
    assert "\x1b" not in on_terminal(demo, command, NO_COLOR="1")
    assert "\x1b" not in on_terminal(demo, command, TERM="dumb")
    assert "\x1b" not in demo.run("apply", "nope").err


BAR = """
import sys, time
from dsv4port.cli.bars import Bars
bars = Bars(lambda text: print("note:", text, file=sys.stderr), silent=False)
bars.start("first work", 10, "objects")
bars.advance(1)
bars.finish()
bars.start("second [work]", 10, "bytes")
time.sleep(1.1)
for _ in range(5):
    bars.advance(1)
bars.notice("half way")
bars.advance(5)
bars.finish()
"""


def test_bars_only_for_long_work_on_a_terminal(demo: SyntheticProject) -> None:
    command = [sys.executable, "-c", BAR]
    seen = on_terminal(demo, command)
    assert "second [work]" in seen
    assert "note: half way" in seen
    assert "first work" not in seen
    assert "second" not in on_terminal(demo, command, NO_COLOR="1")
    piped = subprocess.run(command, env=demo.environment, capture_output=True, check=True)
    assert piped.stderr == b"note: half way\n"


def test_odd_encoding_of_the_terminal(applied: SyntheticProject) -> None:
    (applied.checkout / "größe").write_text("x")
    result = applied.run("status", PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert "gr\\xf6\\xdfe" in result.out
