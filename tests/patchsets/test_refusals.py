"""A stack on a tree that a patchset does not belong on is refused, with the manifest's own reasons.

The patchsets are the real ones; the pins are small trees that have what the preconditions ask for,
or the opposite of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from support.synthetic import SyntheticProject, git

from dsv4port.manifest.patchset import Patchset, Probe, ProbeKind, load_patchset
from dsv4port.manifest.project import find_project

PROJECT = find_project(Path(__file__).parent)
PATCHSETS = ("eager-region", "eager-pool-off", "draft-rope", "dspark-addmm", "kv-zero-groups")
PATCHSETS = tuple(name for name in PATCHSETS if name in PROJECT.patchset_names())

# What a regular expression finds cannot be derived from it.
MATCHES = {
    "    @property\\n    def use_v2_model_runner\\(self\\) -> bool:": (
        "    @property\n    def use_v2_model_runner(self) -> bool:\n"
    ),
    "    @eager_break_during_capture\\n    def attention_impl\\(": (
        "    @eager_break_during_capture\n    def attention_impl(\n"
    ),
    "_record_new_block_ids = (\\(\\n\\s+)?needs_kv_cache_zeroing\\s+and isinstance"
    "\\(\\s*kv_cache_spec, AttentionSpec": (
        "        self._record_new_block_ids = needs_kv_cache_zeroing and isinstance(\n"
        "            kv_cache_spec, AttentionSpec\n        )\n"
    ),
    "if not capture\\._capturing:\\n\\s+return fn\\(\\*args, \\*\\*kwargs\\)": (
        "        if not capture._capturing:\n            return fn(*args, **kwargs)\n"
    ),
}


def series() -> list[tuple[str, str]]:
    return [(name, pin) for name in PATCHSETS for pin in load_patchset(PROJECT, name).series]


def refusals() -> list[tuple[str, str]]:
    return [(name, pin) for name in PATCHSETS for pin in load_patchset(PROJECT, name).refused]


def probes(patchset: Patchset, pin: str) -> list[Probe]:
    return [probe for probe in patchset.preconditions if probe.applies_to(pin)]


def text_of(probe: Probe) -> str:
    assert probe.needle is not None
    text = MATCHES[probe.needle] if probe.regex else probe.needle + "\n"
    assert probe.find(text.encode()) is not None
    return text


def tree(asked: list[Probe], *, fulfilled: bool) -> dict[str, bytes]:
    """The smallest tree on which all that is asked holds, or none of it."""
    files = {"vllm/__init__.py": b""}
    for probe in asked:
        there = probe.kind in (ProbeKind.EXISTS, ProbeKind.CONTAINS)
        if probe.kind in (ProbeKind.EXISTS, ProbeKind.ABSENT):
            if there is fulfilled:
                files.setdefault(probe.path, b"")
        elif there is fulfilled:
            files[probe.path] = files.get(probe.path, b"") + text_of(probe).encode()
        else:
            files.setdefault(probe.path, b"")
    return files


def project_with(base: Path, name: str, pin: str, files: dict[str, bytes]) -> SyntheticProject:
    """The real patchset in a project whose pin has these files. The other pins are only named."""
    project = SyntheticProject(base)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        PROJECT.root / "patchsets" / name, project.root / "patchsets" / name, ignore=ignored
    )
    pins = yaml.safe_load((PROJECT.root / "manifests" / "pins.yaml").read_text(encoding="utf-8"))
    project.pins.update(pins["pins"])
    project.add_pin(pin, files)
    project.add_stack("wanted", pin, [name])
    return project


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("name", "pin"), series())
def test_every_precondition_refuses_with_its_reason(tmp_path: Path, name: str, pin: str) -> None:
    asked = probes(load_patchset(PROJECT, name), pin)
    assert asked
    project = project_with(tmp_path, name, pin, tree(asked, fulfilled=False))
    result = project.run("apply", "wanted", "--unlocked")
    assert result.code == 5, result
    assert f"stack wanted does not belong on {pin}" in result.err
    for probe in asked:
        assert words(probe.why) in words(result.err), probe
    # The checkout that was made holds the pin and no patch.
    assert git(project.checkout, "rev-list", "--count", "HEAD") == "1"


@pytest.mark.parametrize(("name", "pin"), series())
def test_a_tree_with_all_of_it_is_not_refused_for_it(tmp_path: Path, name: str, pin: str) -> None:
    """So the test above sees what the tree lacks, and nothing else. The patches find no place."""
    asked = probes(load_patchset(PROJECT, name), pin)
    project = project_with(tmp_path, name, pin, tree(asked, fulfilled=True))
    result = project.run("apply", "wanted", "--unlocked")
    assert "does not belong" not in result.err, result
    assert result.code in (3, 5), result


@pytest.mark.parametrize(("name", "pin"), refusals())
def test_a_refused_pin_says_why(tmp_path: Path, name: str, pin: str) -> None:
    project = project_with(tmp_path, name, pin, {"vllm/__init__.py": b""})
    result = project.run("apply", "wanted", "--unlocked")
    assert result.code == 5, result
    assert words(load_patchset(PROJECT, name).refused[pin]) in words(result.err), result
