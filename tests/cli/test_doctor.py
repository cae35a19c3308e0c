"""`doctor`: what the machine must have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.synthetic import SyntheticProject


def checks(
    project: SyntheticProject, code: int, *arguments: str, **environment: str
) -> dict[str, dict[str, str]]:
    result = project.run("doctor", "--json", *arguments, **environment)
    assert result.code == code, result
    assert result.json["ok"] is (code == 0)
    return {row["name"]: row for row in result.json["checks"]}


def fake_git(folder: Path, version: str) -> str:
    folder.mkdir()
    program = folder / "git"
    program.write_text(f"#!/bin/sh\necho git version {version}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_all_is_well(locked: SyntheticProject) -> None:
    rows = checks(locked, 0)
    assert {row["state"] for row in rows.values()} <= {"ok", "warn"}
    assert rows["git"]["state"] == rows["python"]["state"] == rows["cache"]["state"] == "ok"
    assert rows["project"]["found"].endswith("2 pins, 1 stack")
    assert "index" not in rows
    assert locked.succeed("doctor").out.splitlines()[0].split()[:2] == ["ok", "dsv4port"]


def test_old_git(locked: SyntheticProject, tmp_path: Path) -> None:
    path = fake_git(tmp_path / "bin", "2.37.9")
    row = checks(locked, 6, PATH=path)["git"]
    assert row["state"] == "fail"
    assert row["found"] == "git 2.37.9 is too old"
    human = locked.run("doctor", PATH=path)
    assert human.code == 6
    assert "\n      → install git 2.38 or newer\n" in human.out


def test_no_git(locked: SyntheticProject, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert checks(locked, 6, PATH=str(tmp_path / "empty"))["git"]["state"] == "fail"


def test_commands_refuse_an_old_git(locked: SyntheticProject, tmp_path: Path) -> None:
    result = locked.run("apply", "demo", PATH=fake_git(tmp_path / "bin", "2.30.2"))
    assert result.code == 6
    assert "too old" in result.err


def test_cache_that_is_no_folder(demo: SyntheticProject) -> None:
    demo.cache.write_text("in the way")
    assert checks(demo, 6)["cache"]["state"] == "fail"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_cache_that_cannot_be_written_to(demo: SyntheticProject) -> None:
    demo.cache.mkdir(mode=0o500)
    assert checks(demo, 6)["cache"]["state"] == "fail"


def test_without_a_project(demo: SyntheticProject, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = demo.run("doctor", cwd=tmp_path / "empty")
    assert result.code == 0
    assert any(line.startswith("warn  project") for line in result.out.splitlines())
    assert checks(demo, 6, "--project", str(tmp_path / "empty"))["project"]["state"] == "fail"


def test_broken_project(demo: SyntheticProject) -> None:
    (demo.root / "manifests" / "pins.yaml").write_text("format: 1\n")
    row = checks(demo, 6)["project"]
    assert row["found"].startswith("manifests/pins.yaml:")


def test_network(demo: SyntheticProject) -> None:
    assert checks(demo, 0, "--network")["index"]["state"] == "ok"
    closed = {
        "PIP_NO_INDEX": "0",
        "PIP_INDEX_URL": "http://127.0.0.1:1/simple",
        "PIP_FIND_LINKS": "",
    }
    row = checks(demo, 6, "--network", **closed)["index"]
    assert row["state"] == "fail"
    assert "127.0.0.1" in row["found"]
