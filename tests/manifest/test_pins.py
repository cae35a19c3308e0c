"""The pins of this repository, and looking pins up."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4port.errors import BadInputError, ManifestError
from dsv4port.manifest.pins import GitSource, Pin, SdistSource, load_pins
from dsv4port.manifest.project import Project, find_project
from dsv4port.manifest.values import Name

VERSIONS = [
    *("0.24.0", "0.25.1", "0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.30.0", "0.31.0"),
    *("0.32.0", "0.33.0"),
]


def test_the_pins_of_this_repository() -> None:
    pins = load_pins(find_project(Path(__file__).parents[2]))
    assert list(pins) == [f"v{version}" for version in VERSIONS]
    for version in VERSIONS:
        pin = pins.pin(f"v{version}")
        assert pin.sdist is not None
        assert pin.git is not None
        assert (pin.sdist.version, pin.git.tag) == (version, f"v{version}")
        assert pin.sdist.archive == f"vllm-{version}.tar.gz"
        assert pin.git.commit_prefix is not None
    trees = {pin.sdist.tree for pin in pins.values() if pin.sdist is not None}
    assert None not in trees
    assert len(trees) == len(VERSIONS)


def test_pins_are_an_ordered_mapping(project: Project) -> None:
    pins = load_pins(project)
    assert list(pins) == ["v0.24.0", "v0.26.0", "v0.28.0"]
    assert pins.position("v0.26.0") == 1
    assert pins["v0.26.0"] is pins.pin("v0.26.0")
    assert pins.pin("v0.28.0").sdist is None
    assert pins.pin("v0.24.0").git is None


def test_an_unknown_pin_names_near_ones(project: Project) -> None:
    with pytest.raises(BadInputError, match=r'unknown pin "v0.26", did you mean `v0.26.0`\?'):
        load_pins(project).pin("v0.26")
    with pytest.raises(BadInputError, match="unknown pin"):
        load_pins(project).position("v1")


def test_values_are_checked_without_a_file_too() -> None:
    with pytest.raises(BadInputError, match="`sha256` must be a sha256"):
        SdistSource("vllm", "0.26.0", "23e9")
    with pytest.raises(BadInputError, match="`commit` and `tag` are both missing"):
        GitSource("https://example.org/vllm.git")
    with pytest.raises(BadInputError, match="a pin needs a source"):
        Pin(Name("v0.26.0"))
    for tag in ("-x", "a..b", "a b", "x/"):
        with pytest.raises(BadInputError, match="no tag name"):
            GitSource("https://example.org/vllm.git", tag=tag)


def test_a_project_without_readable_pins(project: Project) -> None:
    project.pins_file.unlink()
    with pytest.raises(ManifestError, match=r"\Amanifests/pins.yaml:1: cannot be read"):
        load_pins(project)
