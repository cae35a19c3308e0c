"""A small, complete project that the tests of the manifest room change at will."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dsv4port.manifest.project import Project

SAMPLE = Path(__file__).with_name("sample")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A fresh copy of the sample project."""
    shutil.copytree(SAMPLE, tmp_path / "project")
    return Project(tmp_path / "project")
