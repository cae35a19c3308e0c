"""scripts/environment: made once, made anew when it must be, and never half-trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.synthetic import SOURCE_ROOT

# Stands for the Python that makes the environment, and for the one in it: no network is needed.
PYTHON = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
*"-m venv"*)
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    [ -z "$NO_ENSUREPIP" ] || { echo "apt install python3-venv"; exit 1; }
    touch .venv/has-pip ;;
*"import pip"*) [ -e .venv/has-pip ] ;;
*"pip install"*)
    [ -z "$NO_NETWORK" ] || exit 1
    cp "$0" .venv/bin/dsv4port ;;
*"version_info"*) [ -z "$OLD" ] ;;
esac
"""


class Machine:
    """A project with the scripts alone, and a Python that notes what it was asked."""

    def __init__(self, base: Path) -> None:
        self.base, self.root = base, base / "a project"
        (self.root / "scripts").mkdir(parents=True)
        shutil.copy(SOURCE_ROOT / "scripts" / "environment", self.root / "scripts")
        shutil.copy(SOURCE_ROOT / "pyproject.toml", self.root)
        self.python = base / "python"
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def prepare(self, extra: str = "", **environment: str) -> tuple[int, list[str], str]:
        """Exit code, what Python was asked to do, and what was said."""
        log = self.base / "log"
        log.write_text("")
        done = subprocess.run(
            ["bash", "-c", f'. "$1/scripts/environment"; prepare_environment {extra}', "x",
             str(self.root)],
            cwd=self.base, capture_output=True, text=True, check=False,
            env={"PATH": os.environ["PATH"], "PYTHON": str(self.python), "LOG": str(log),
                 **environment},
        )  # fmt: skip
        words = ("venv", "pip install")
        asked = [
            next(word for word in words if f"-m {word}" in line)
            for line in log.read_text().splitlines()
            if any(f"-m {word}" in line for word in words)
        ]
        return done.returncode, asked, done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_once_and_again_when_the_dependencies_change(machine: Machine) -> None:
    assert machine.prepare()[:2] == (0, ["venv", "pip install"])
    assert machine.prepare()[:2] == (0, [])
    assert machine.prepare("test")[:2] == (0, ["pip install"])
    with (machine.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert machine.prepare()[:2] == (0, ["pip install"])


def test_a_project_that_was_moved(machine: Machine) -> None:
    machine.prepare()
    machine.root = machine.root.rename(machine.base / "elsewhere")
    assert machine.prepare()[:2] == (0, ["pip install"])


def test_an_environment_without_pip_is_made_anew(machine: Machine) -> None:
    code, asked, said = machine.prepare(NO_ENSUREPIP="1")
    assert (code, asked) == (6, ["venv"])
    assert "apt install python3-venv" in said
    assert (machine.root / ".venv" / "bin" / "python").exists(), "as Debian leaves it"
    assert machine.prepare()[:2] == (0, ["venv", "pip install"])


def test_no_network_then_network(machine: Machine) -> None:
    code, asked, said = machine.prepare(NO_NETWORK="1")
    assert (code, asked) == (6, ["venv", "pip install"])
    assert "\n→ check the network" in said
    assert machine.prepare()[:2] == (0, ["pip install"])


@pytest.mark.parametrize("how", ["old", "missing"])
def test_no_python_that_will_do(how: str, machine: Machine) -> None:
    wrong = {"OLD": "1"} if how == "old" else {"PYTHON": "no-such-python"}
    code, asked, said = machine.prepare(**wrong)
    assert (code, asked) == (6, [])
    assert "older than Python 3.10\n→ name a newer one: PYTHON=" in said
    assert not (machine.root / ".venv").exists()
