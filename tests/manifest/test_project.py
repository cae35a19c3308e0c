"""Finding a project, and names that cannot leave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4port.errors import BadInputError, ExitCode, UsageError
from dsv4port.manifest.project import Project, find_project
from dsv4port.manifest.values import Name


def test_a_project_is_found_from_any_folder_in_it(project: Project) -> None:
    for folder in (project.root, project.root / "patchsets" / "arena" / "v0.26.0"):
        assert find_project(folder) == project


def test_without_a_project_the_error_says_how_to_name_or_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no project at or above") as raised:
        find_project(tmp_path)
    assert raised.value.exit_code is ExitCode.USAGE
    assert raised.value.fix is not None
    assert "--project DIR" in raised.value.fix
    assert "manifests/pins.yaml" in raised.value.fix


def test_places(project: Project) -> None:
    root = project.root
    assert project.default_checkout == root / "vendor" / "vllm"
    assert project.state_folder == root / ".dsv4port"
    assert project.stack_file("musa") == root / "manifests" / "stacks" / "musa.yaml"
    assert project.lock_file("musa") == root / "manifests" / "locks" / "musa.lock.yaml"
    assert project.patchset_file("arena") == root / "patchsets" / "arena" / "patchset.yaml"
    assert project.label(project.pins_file) == "manifests/pins.yaml"
    assert project.label(Path("/elsewhere/x")) == "/elsewhere/x"


def test_names_of_what_there_is(project: Project) -> None:
    (project.patchsets_folder / "drafts").mkdir()
    (project.stacks_folder / "Not A Name.yaml").touch()
    assert project.patchset_names() == ("arena", "wiring")
    assert project.stack_names() == ("musa",)
    assert Project(project.root / "nowhere").stack_names() == ()
    assert Project(project.root / "nowhere").patchset_names() == ()


@pytest.mark.parametrize("name", ["v0.26.0", "graph-staging", "musa-v0.26", "a", "0", "a_b"])
def test_names(name: str) -> None:
    assert Name(name) == name
    assert Name(Name(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "a/b", "a\\b", "/a", "-a", ".a", "A", "a b", "a\n", "a..b"),
        *("a.", "é", "x.lock", "a\0", "a" * 101),
    ],
)
def test_path_tricks_are_no_names(name: str, project: Project) -> None:
    for use in (Name, project.stack_file, project.lock_file, project.patchset_folder):
        with pytest.raises(BadInputError, match="is not a name"):
            use(name)
