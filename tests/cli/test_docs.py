"""docs/cli.md says what is true: names, JSON keys, and examples that are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.build_project import FakeCuda, add_kernel
from support.ladder_project import ladder_project
from support.port_project import GAMMA_FILES, NEVER, RESOLVED, port_project, upstream_history
from support.synthetic import (
    DEMO_FILES,
    SOURCE_ROOT,
    Change,
    SyntheticProject,
    make_patches,
    make_repository,
)

from dsv4port.cli.context import global_options
from dsv4port.cli.main import COMMANDS, load_command
from dsv4port.errors import ExitCode

DOCUMENT = SOURCE_ROOT / "docs" / "cli.md"
ENVELOPE = {"command", "format", "ok", "exit_code", "notices", "error"}
PLUMBING = {"--repo", "--onto", "--series"}


@cache
def sections() -> dict[str, str]:
    """The parts of the document below its second-level headings."""
    parts = re.split(r"^## (.+)\n", DOCUMENT.read_text(), flags=re.MULTILINE)
    return {title.strip("`"): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def table(text: str, header: str) -> list[str]:
    """The first cells, without backticks, of every table with that first heading."""
    found = []
    for block in re.findall(rf"^\| {header} \|.*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE):
        found += [re.findall(r"`([^`]*)`", row.split("|")[1]) for row in block.splitlines()]
    return [name for names in found for name in names]


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    """Every path of keys in a JSON value: ``a``, ``a.b``, ``a[].b``."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{prefix}{key}"
            yield from keys(item, f"{prefix}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from keys(item, f"{prefix.removesuffix('.')}[].")


def test_every_command_is_described_and_no_other() -> None:
    described = {name.split()[0] for name in sections() if name.split()[0].islower()}
    assert described == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_those_of_the_program(name: str) -> None:
    command = load_command(name)
    shared = {option for parameter in global_options() for option in parameter.opts}
    arguments = sum(parameter.param_type_name == "argument" for parameter in command.params)
    options = {
        option
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in parameter.opts
    } - shared
    described = [cell.split()[0] for cell in table(sections()[name], "argument or option")]
    assert {cell for cell in described if cell.startswith("-")} == options
    assert sum(not cell.startswith("-") for cell in described) == arguments


def test_shared_options_are_those_of_the_program() -> None:
    described = {
        cell.split()[0] for cell in table(sections()["Options of every command"], "option")
    }
    assert described == {option for one in global_options() for option in one.opts} | {"--help"}


def test_exit_codes_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| (\d+) \|", sections()["Exit codes"], re.MULTILINE)
    assert {int(row) for row in rows} == {int(code) for code in ExitCode} | {130, 141}


TESTS = """
import pytest

@pytest.mark.fix
def test_red(vllm_tree):
    assert (vllm_tree / "vllm" / "extra.py").is_file()

@pytest.mark.fix
def test_green(): ...

def test_fails():
    assert False

@pytest.mark.gpu
def test_device(): ...
"""


@pytest.fixture(scope="module")
def answers(
    demo_template: SyntheticProject,
    locked_template: SyntheticProject,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[dict[str, Any]]]:
    """What each command really prints, in all the situations that bring out its keys."""
    project = demo_template.copy(tmp_path_factory.mktemp("answers"))
    found: dict[str, list[dict[str, Any]]] = {}

    def run(*arguments: str, section: str | None = None, **environment: str) -> None:
        answer = project.run(*arguments, "--json", **environment).json
        found.setdefault(section or arguments[0], []).append(answer)

    def interrupted() -> None:
        project.run("reset")
        project.run("apply", "demo", DSV4PORT_TEST_STOP_AT="journal-written")

    upstream = project.base / "upstream"
    commit = make_repository(upstream, DEMO_FILES)
    project.pins["v1.0.0"]["git"] = {"url": upstream.as_uri(), "commit": commit}
    project.write_pins()
    project.add_patchset(
        "gamma", "v1.0.0", [Change("Add", {"new.py": b"x\n"})],
        companions=[{"patchset": "beta", "reason": "r", "breaks": "b"}],
    )  # fmt: skip
    project.add_stack("lonely", "v1.0.0", ["gamma"])
    run("fetch", "v1.0.0", "--prune")
    run("fetch", "nope")
    run("lock", "demo")
    run("lock", "lonely")
    run("show", "lonely")
    run("apply", "lonely")
    project.add_stack("demo", "v1.0.0", ["alpha"])
    run("lock", "demo")
    project.add_stack("demo", "v1.0.0", ["alpha", "beta"])
    run("lock", "demo")
    run("apply", "demo")
    (project.checkout / "notes.txt").write_text("mine\n")
    run("apply", "demo", "--force")
    (project.checkout / "notes.txt").write_text("mine\n")
    run("verify")
    run("verify", "--installed", str(project.checkout), "--prefix", "")
    run("status")
    run("reset", "--force")
    interrupted()
    run("status")
    interrupted()
    run("verify")
    interrupted()
    run("apply", "demo")
    interrupted()
    run("reset")
    run("apply", "demo")
    run("refresh", "alpha")
    interrupted()
    run("refresh", "alpha")
    run("list")
    for name in ("v1.0.0", "demo", "alpha", "alpha/0002-Tools-Add-a-check.patch"):
        run("show", name)
    run("doctor")
    add_kernel(project)
    toolkit = str(FakeCuda.make(project.base / "cuda").home)
    run("build", "--kernels", "gamma", "--target", "cuda-sm90,cuda-sm100", CUDA_HOME=toolkit)
    uses = {"vllm/use.py": b"from vllm.config import MAX_BATCH\n"}
    folder = project.root / "mine"
    folder.mkdir()
    for file, data in make_patches(DEMO_FILES, [Change("Use", uses)]).items():
        (folder / file).write_bytes(data)
    run("drift", "--from", "v1.0.0", "--to", "v1.1.0", "--series", str(folder))
    series = str(project.root / "patchsets" / "alpha" / "v1.0.0")
    run(
        "apply", "--repo", str(project.checkout), "--onto", "refs/dsv4port/pin", "--series", series,
        section="apply --repo",
    )  # fmt: skip
    patch = str(project.root / "patchsets/alpha/v1.0.0/0002-Tools-Add-a-check.patch")
    pin = ("--base", "refs/dsv4port/pin", "--onto", "refs/dsv4port/pin")
    run("port", "--repo", str(project.checkout), *pin, patch)
    series = port_project(
        tmp_path_factory.mktemp("series"), preconditions=NEVER,
        upstreamed=[{"pin": "v2.0.0", "prs": [101], "patches": [GAMMA_FILES[0]]}],
    )  # fmt: skip
    history = series.base / "history"
    upstream_history(history)

    def run_series(*arguments: str) -> None:
        found.setdefault(arguments[0], []).append(series.run(*arguments, "--json").json)

    run_series("port", "both", "--onto", "v2.0.0", "--history", str(history))
    run_series("resolve", "--status")
    run_series("resolve", GAMMA_FILES[1], "--onto", "v2.0.0")
    worktree = series.root / ".dsv4port" / "resolve" / "worktree"
    (worktree / "vllm" / "server.py").write_bytes(RESOLVED)
    run_series("resolve", "--continue", "--author", "Bo <bo@example.org>", "--why", "both hold")
    run_series("port", "both", "--onto", "v2.0.0", "v3.0.0", "--dry-run")
    run_series("resolve", GAMMA_FILES[1], "--from", "v1.0.0", "--onto", "v3.0.0")
    (worktree / "vllm" / "server.py").write_bytes(RESOLVED)
    run_series("resolve", "--abort")
    tested = locked_template.copy(tmp_path_factory.mktemp("tested"))
    (tested.root / "patchsets" / "alpha" / "tests").mkdir()
    (tested.root / "patchsets" / "alpha" / "tests" / "test_all.py").write_text(TESTS)
    ladder = ladder_project(tmp_path_factory.mktemp("ladder") / "base")
    command = ladder.run("ladder", "on-musa", "--json").json["ladder"]["command"]
    for other, *arguments in (
        (tested, "test", "alpha", "--red-on-pin", "--python", sys.executable),
        (tested, "report", "demo"),
        (ladder, "ladder", "on-musa"),
        (ladder, "ladder", "on-musa", "--check", command, "--planned", "1"),
    ):
        found.setdefault(arguments[0], []).append(other.run(*arguments, "--json").json)
    return found


def documented(section: str) -> set[str]:
    return set(table(sections()[section], "key"))


@pytest.mark.parametrize("section", [*COMMANDS, "apply --repo"])
def test_json_keys_are_those_of_the_program(
    section: str, answers: dict[str, list[dict[str, Any]]]
) -> None:
    described = documented(section)
    recovered = {key for key in documented("Output") if key.startswith("recovered.")}
    if "recovered" in described:
        described |= recovered
    real = {key for answer in answers[section] for key in keys(answer)}
    real = {key for key in real if re.split(r"[.\[]", key)[0] not in ENVELOPE}
    assert not described - real, "documented, never printed"
    if section == "resolve":
        # What port says is described there.
        real = {key for key in real if not re.match(r"pins(\[|$)", key)}
    if section == "show":
        # Manifests are described elsewhere.
        real = {key for key in real if not re.match(r"(pin|patchset)\.", key)}
    assert not real - described, "printed, not documented"


def test_keys_of_every_answer_are_those_of_the_program(
    answers: dict[str, list[dict[str, Any]]],
) -> None:
    described = {key for key in documented("Output") if not key.startswith("recovered.")}
    failed = answers["fetch"][1]
    assert failed["error"]["kind"] == "BadInput"
    assert {key for key in keys(failed) if key.split(".")[0] in ENVELOPE} == described


def normalized(text: str) -> str:
    """Output without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)
    text = re.sub(r"by dsv4port \S+", "by dsv4port <version>", text)
    return re.sub(r"recovery/\d{8}T\d{6}Z", "recovery/<time>", text)


def examples() -> Iterator[tuple[str, str]]:
    """Every command of the document's examples with its output, in order."""
    for block in re.findall(
        r"^```console\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE
    ):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def test_examples_print_what_the_document_shows(demo: SyntheticProject) -> None:
    commands = list(examples())
    assert len(commands) > 15
    for command, expected in commands:
        words = shlex.split(command)
        if words[0] == "dsv4port":
            result = demo.run(*words[1:])
            shown = result.err + result.out
        else:
            shown = subprocess.run(
                ["sh", "-c", command], cwd=demo.root, capture_output=True, check=True, text=True
            ).stdout
        assert normalized(shown) == normalized(expected), command


def test_doctors_example_has_the_rows_of_the_program(locked: SyntheticProject) -> None:
    shown = re.findall(r"^ok  (.+?)  ", sections()["doctor"], re.MULTILINE)
    answer = locked.run("doctor", "--json").json
    assert [name.strip() for name in shown] == [row["name"] for row in answer["checks"]]


def test_links_lead_somewhere() -> None:
    text = DOCUMENT.read_text()
    headings = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings}
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        if file:
            assert Path(DOCUMENT.parent, file).exists(), target
        else:
            assert anchor in anchors, target
