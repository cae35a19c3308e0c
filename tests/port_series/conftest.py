"""The project of :mod:`support.port_project`, fetched once; each test gets a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.port_project import port_project
from support.synthetic import SyntheticProject


@pytest.fixture(scope="session")
def port_template(tmp_path_factory: pytest.TempPathFactory) -> SyntheticProject:
    """Nothing is ported. Do not change it."""
    return port_project(tmp_path_factory.mktemp("port"))


@pytest.fixture
def project(port_template: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    """Nothing is ported."""
    return port_template.copy(tmp_path / "project")
