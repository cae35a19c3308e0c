"""Targets are data: the shipped ones hold, and what is wrong with a file is said with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsv4port.build.targets import FolderProbe, ModuleProbe, ProgramProbe, load_target, target_names
from dsv4port.errors import BadInputError, ManifestError

MALFORMED = Path(__file__).parent / "cases" / "malformed"
CUDA = {"cuda-sm90": "90", "cuda-sm100": "100", "cuda-sm120": "120"}


def test_the_targets_there_are() -> None:
    assert set(target_names()) == {"empty", "cpu", "musa", *CUDA}


@pytest.mark.parametrize("name", target_names())
def test_shipped_targets_are_well_formed(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    variables = dict(target.environment)
    assert variables["VLLM_TARGET_DEVICE"] == target.device
    assert variables["MAX_JOBS"] == "{jobs}"
    assert "--no-build-isolation" in target.command and "--no-deps" in target.command
    assert target.probes, "every target needs something"


@pytest.mark.parametrize(("name", "architecture"), CUDA.items())
def test_cuda_targets_say_their_architecture_in_every_place(name: str, architecture: str) -> None:
    target = load_target(name)
    variables = dict(target.environment)
    assert target.architectures == (architecture,)
    assert variables["TORCH_CUDA_ARCH_LIST"] == f"{architecture[:-1]}.{architecture[-1]}"
    assert variables["CMAKE_ARGS"] == f"-DCMAKE_CUDA_ARCHITECTURES={architecture}"
    assert variables["CUDA_HOME"] == "{cuda_home}"
    kinds = {type(probe) for probe in target.probes}
    assert kinds == {ProgramProbe, ModuleProbe}
    assert any(isinstance(one, ModuleProbe) and one.having == "version.cuda"
               for one in target.probes)  # fmt: skip


def test_musa_asks_for_its_toolkit() -> None:
    [folder] = [one for one in load_target("musa").probes if isinstance(one, FolderProbe)]
    assert (folder.variable, folder.default) == ("MUSA_HOME", "/usr/local/musa")


@pytest.mark.parametrize("file", sorted(MALFORMED.glob("*.yaml")), ids=lambda path: path.stem)
def test_malformed(file: Path) -> None:
    match = re.match(r"# expect: (.+)", file.read_text())
    assert match is not None
    with pytest.raises(ManifestError) as caught:
        load_target(file.stem, MALFORMED)
    assert caught.value.what.startswith(match[1]), caught.value.what


def test_an_unknown_target_is_told_with_its_neighbour() -> None:
    with pytest.raises(BadInputError, match="did you mean `cuda-sm90`"):
        load_target("cuda-sm9")
    with pytest.raises(BadInputError, match="is not a name"):
        load_target("../cuda-sm90")
