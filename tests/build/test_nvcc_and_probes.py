"""Where compilers and packages are looked for, and what is said where they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.build_project import FakeCuda, make_base

from dsv4port.build.nvcc import Origin, find_nvcc
from dsv4port.build.probes import Place, ProbeOutcome, probe_all, require
from dsv4port.build.targets import FolderProbe, ModuleProbe, Probe, ProgramProbe, Target
from dsv4port.errors import ToolchainError
from dsv4port.manifest.values import Name


def program(folder: Path, name: str, says: str, code: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    file.chmod(0o755)


def target(*probes: Probe) -> Target:
    return Target(Name("t"), "T", "cpu", ("-e", "."), False, probes=probes)


def test_cuda_home_then_path_then_wheels(tmp_path: Path) -> None:
    home, path, wheel = (
        FakeCuda.make(tmp_path / name) for name in ("home", "path", "packages/nvidia/cu13")
    )
    variables = {"CUDA_HOME": str(home.home), "PATH": f"/usr/bin:/bin:{path.home}/bin"}
    packages = [tmp_path / "packages"]
    found = find_nvcc(variables, packages)
    assert (found.origin, found.home, found.version) == (Origin.CUDA_HOME, home.home, "13.0.88")
    del variables["CUDA_HOME"]
    found = find_nvcc(variables, packages)
    assert (found.origin, found.home) == (Origin.PATH, path.home)
    found = find_nvcc({"PATH": "/usr/bin:/bin"} if not Path("/usr/bin/nvcc").exists() else {},
                      packages)  # fmt: skip
    assert (found.origin, found.home) == (Origin.WHEEL, wheel.home)
    assert found.library_folders == (), "this toolkit has no folder of libraries at all"
    (wheel.home / "lib").mkdir()
    assert found.library_folders == (wheel.home / "lib",)


def test_a_toolkit_behind_a_script_on_path(tmp_path: Path) -> None:
    """What is on PATH says nothing about where headers and libraries are."""
    real = FakeCuda.make(tmp_path / "real")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "nvcc"
    script.write_text(f'#!/bin/sh\nexec {real.home}/bin/nvcc "$@"\n')
    script.chmod(0o755)
    found = find_nvcc({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert (found.program, found.home) == (script, real.home)


@pytest.mark.parametrize(("says", "code"), [("no version", 0), ("V13.0.88", 1)])
def test_an_nvcc_that_does_not_answer(says: str, code: int, tmp_path: Path) -> None:
    program(tmp_path / "bin", "nvcc", says, code)
    with pytest.raises(ToolchainError) as caught:
        find_nvcc({"CUDA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert caught.value.exit_code == 6 and caught.value.fix


@pytest.mark.parametrize(
    ("says", "code", "minimum", "outcome"),
    [
        ("cmake version 3.26.1", 0, "3.26", ProbeOutcome.FOUND),
        ("cmake version 3.100.0", 0, "3.26", ProbeOutcome.FOUND),
        ("cmake version 3.25.9", 0, "3.26", ProbeOutcome.TOO_OLD),
        ("cmake", 0, "3.26", ProbeOutcome.UNUSABLE),
        ("cmake version 3.26.1", 3, "3.26", ProbeOutcome.UNUSABLE),
        ("cmake", 0, None, ProbeOutcome.FOUND),
    ],
)
def test_versions_of_programs(
    says: str, code: int, minimum: str | None, outcome: ProbeOutcome, tmp_path: Path
) -> None:
    program(tmp_path, "cmake", says, code)
    place = Place({"PATH": f"{tmp_path}:/usr/bin:/bin"}, Path(sys.executable))
    [found] = probe_all(target(ProgramProbe("cmake", "why", "install", minimum)), place)
    assert found.outcome is outcome


def test_what_the_packages_bring_is_asked_later(tmp_path: Path) -> None:
    probes = (
        ProgramProbe("no-such-program", "why", "install", packaged=True),
        ModuleProbe("no_such_module", "why", "install"),
    )
    variables = {"PATH": "/usr/bin:/bin"}
    before = probe_all(target(*probes), Place(variables))
    assert [one.outcome for one in before] == [ProbeOutcome.LATER] * 2
    require(before)
    after = probe_all(target(*probes), Place(variables, Path(sys.executable)))
    assert [one.outcome for one in after] == [ProbeOutcome.MISSING] * 2
    program(tmp_path, "no-such-program", "1.0")
    inside = Place(variables, Path(sys.executable), (tmp_path,))
    assert probe_all(target(probes[0]), inside)[0].outcome is ProbeOutcome.FOUND


def test_a_module_without_what_is_needed_of_it(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")
    [packages] = list(base.glob("lib/python*/site-packages"))
    place = Place({"PATH": "/usr/bin:/bin"}, base / "bin" / "python")
    probe = target(ModuleProbe("torch", "why", "install", having="version.cuda"))

    def outcome() -> ProbeOutcome:
        return probe_all(probe, place)[0].outcome

    assert outcome() is ProbeOutcome.UNUSABLE
    (packages / "torch.py").write_text("class version:\n    cuda = None\n")
    assert outcome() is ProbeOutcome.UNUSABLE
    (packages / "torch.py").write_text("class version:\n    cuda = '13.0'\n")
    assert outcome() is ProbeOutcome.FOUND
    (packages / "torch.py").write_text("raise RuntimeError('broken')\n")
    [found] = probe_all(probe, place)
    assert (found.outcome, found.found) == (ProbeOutcome.UNUSABLE, "RuntimeError: broken")


def test_a_folder_by_its_variable(tmp_path: Path) -> None:
    probe = FolderProbe("MUSA_HOME", str(tmp_path / "none"), "bin/mcc", "why", "install it")
    [missing] = probe_all(target(probe), Place({}))
    assert missing.outcome is ProbeOutcome.MISSING
    program(tmp_path / "bin", "mcc", "1")
    [found] = probe_all(target(probe), Place({"MUSA_HOME": str(tmp_path)}))
    assert (found.outcome, found.found) == (ProbeOutcome.FOUND, str(tmp_path))


def test_all_that_is_missing_is_said_at_once() -> None:
    probes = [ProgramProbe(name, f"{name} is needed", f"install {name}") for name in ("aa", "bb")]
    with pytest.raises(ToolchainError) as caught:
        require(probe_all(target(*probes), Place({"PATH": "/nowhere"})))
    assert caught.value.what == "the toolchain lacks aa, bb"
    assert "  install bb" in caught.value.details
