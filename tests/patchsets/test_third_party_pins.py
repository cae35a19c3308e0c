"""No patch of any series moves the version of anything that vLLM depends on.

A downstream takes vLLM's own versions of torch, FlashInfer, DeepGEMM, CUTLASS and the rest. What
a patch would change there is never seen by its own tests, since these run on the Python files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from dsv4port.manifest.patchset import load_patchset
from dsv4port.manifest.project import Project, find_project
from dsv4port.manifest.series import load_series
from dsv4port.patch.mailbox import parse_patch
from dsv4port.patch.model import FilePatch

# `*` also matches `/` here. The whole file is about versions: nothing in it may change.
PIN_FILES = (
    "requirements/*",
    "requirements*.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "cmake/external_projects/*",
    "docker/*",
    "tools/*install_*",
    "tools/flashinfer-build.sh",
    "tools/ep_kernels/*",
    "vllm.egg-info/*",
    "rust-toolchain.toml",
    "Cargo.toml",
    "Cargo.lock",
    "*/Cargo.toml",
    "*/Cargo.lock",
    ".gitmodules",
)
# A source may be added to these, a version may not change.
BUILD_FILES = ("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake")
VERSION_LINE = re.compile(
    rb"GIT_(TAG|REPOSITORY)|FetchContent_|ExternalProject_|_REVISION|VERSION"
    rb"|https?://|\b[0-9a-f]{40}\b"
)


def matches(path: bytes, patterns: tuple[str, ...]) -> bool:
    name = path.decode("utf-8", "surrogateescape")
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def changed_lines(file: FilePatch) -> Iterator[bytes]:
    for hunk in file.hunks:
        for kind, line in zip(hunk.kinds, hunk.body, strict=True):
            if kind in b"+-":
                yield line[1:].split(b"\n")[0]


def moved_pins(patch: Path) -> list[str]:
    """What a patch file changes about third parties: a path, or a path and the changed line."""
    found = []
    for file in parse_patch(patch.read_bytes(), patch.name).files:
        paths = [path for path in {file.old_path, file.new_path} if path is not None]
        for path in paths:
            if matches(path, PIN_FILES):
                found.append(path.decode())
        if any(matches(path, BUILD_FILES) for path in paths):
            name = file.path.decode()
            # What has no hunks, a rename or a binary file, cannot be read: refused as a whole.
            if not file.hunks:
                found.append(name)
            found += [
                f"{name}: {line.decode().strip()}"
                for line in changed_lines(file)
                if VERSION_LINE.search(line)
            ]
    return found


def all_series(project: Project) -> list[tuple[str, str]]:
    return [
        (name, pin)
        for name in project.patchset_names()
        for pin in load_patchset(project, name).series
    ]


PROJECT = find_project(Path(__file__).parent)


@pytest.mark.parametrize(("patchset", "pin"), all_series(PROJECT))
def test_no_series_moves_a_third_party_pin(patchset: str, pin: str) -> None:
    series = load_series(PROJECT, load_patchset(PROJECT, patchset), pin)
    assert series.paths
    assert {path.name: moved for path in series.paths if (moved := moved_pins(path))} == {}


def test_every_patch_file_belongs_to_a_series() -> None:
    """So the test above has seen every patch there is."""
    seen = {
        path
        for patchset, pin in all_series(PROJECT)
        for path in load_series(PROJECT, load_patchset(PROJECT, patchset), pin).paths
    }
    assert seen == set((PROJECT.root / "patchsets").rglob("*.patch"))


def diff(path: str, old: str, new: str) -> str:
    return (
        f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    )


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("requirements/cuda.txt", "flashinfer-python==0.6.1", "flashinfer-python==0.6.2"),
        ("requirements/common.txt", "transformers >= 5", "transformers >= 5.1"),
        ("requirements-build.txt", "ninja", "ninja>1"),
        ("pyproject.toml", "torch == 2.11.0", "torch == 2.12.0"),
        ("setup.py", "x", "y"),
        ("cmake/external_projects/flashmla.cmake", "# a", "# b"),
        ("docker/Dockerfile", "ARG CUDA=12", "ARG CUDA=13"),
        ("docker/versions.json", "1", "2"),
        ("tools/install_deepgemm.sh", "REF=a", "REF=b"),
        ("tools/vllm-tpu/install_x.sh", "REF=a", "REF=b"),
        ("rust/src/server/Cargo.toml", "1", "2"),
        ("CMakeLists.txt", "    GIT_TAG v1", "    GIT_TAG v2"),
        ("CMakeLists.txt", 'set(CUTLASS_REVISION "v4.4.2")', 'set(CUTLASS_REVISION "v4.5.0")'),
        ("csrc/new/CMakeLists.txt", "x", "FetchContent_Declare(y)"),
        ("cmake/utils.cmake", "URL https://example.org/a", "x"),
    ],
)
def test_a_series_that_moves_a_pin_is_found(tmp_path: Path, path: str, old: str, new: str) -> None:
    patch = tmp_path / "0001-moved.patch"
    patch.write_text(diff("vllm/fine.py", "a", "b") + diff(path, old, new))
    (found, *_) = moved_pins(patch)
    assert found.startswith(path)


def test_a_renamed_pin_file_is_found(tmp_path: Path) -> None:
    patch = tmp_path / "0001-renamed.patch"
    patch.write_text(
        "diff --git a/requirements/cuda.txt b/old.txt\nsimilarity index 100%\n"
        "rename from requirements/cuda.txt\nrename to old.txt\n"
    )
    assert moved_pins(patch) == ["requirements/cuda.txt"]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("CMakeLists.txt", "  csrc/a.cu", "  csrc/b.cu"),
        ("vllm/requirements.py", "GIT_TAG", "GIT_TAG 2"),
        ("csrc/a.cu", "#define REVISION 1", "#define REVISION 2"),
    ],
)
def test_other_changes_are_not(tmp_path: Path, path: str, old: str, new: str) -> None:
    patch = tmp_path / "0001-fine.patch"
    patch.write_text(diff(path, old, new))
    assert moved_pins(patch) == []
