"""Small projects for every room's tests, in three states; each test gets copies of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from support.synthetic import SyntheticProject, demo_project

# A gate must not pass or fail by luck: the same examples each time. New ones are looked for with
# HYPOTHESIS_PROFILE=search.
settings.register_profile("gate", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


@pytest.fixture(scope="session")
def demo_template(tmp_path_factory: pytest.TempPathFactory) -> SyntheticProject:
    """The demo project as written; nothing was run. Do not change it."""
    return demo_project(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def locked_template(
    demo_template: SyntheticProject, tmp_path_factory: pytest.TempPathFactory
) -> SyntheticProject:
    """The demo project with both pins fetched and the stack locked. Do not change it."""
    project = demo_template.copy(tmp_path_factory.mktemp("locked"))
    project.succeed("fetch", "--all")
    project.succeed("lock", "demo")
    return project


@pytest.fixture(scope="session")
def applied_template(
    locked_template: SyntheticProject, tmp_path_factory: pytest.TempPathFactory
) -> SyntheticProject:
    """The locked project with the stack applied. Do not change it."""
    project = locked_template.copy(tmp_path_factory.mktemp("applied"))
    project.succeed("apply", "demo")
    return project


@pytest.fixture
def demo(demo_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """The demo project as written: nothing fetched, no lock, no checkout."""
    return demo_template.copy(tmp_path / "demo")


@pytest.fixture
def locked(locked_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """The demo project with pins fetched and the stack locked."""
    return locked_template.copy(tmp_path / "demo")


@pytest.fixture
def applied(applied_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """The demo project with the stack applied to its checkout."""
    return applied_template.copy(tmp_path / "demo")
