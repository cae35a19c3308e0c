"""`build --kernels`: from a patchset's sources to libraries, and nothing half made on the way."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.build_project import NEEDS_CC, FakeCuda, add_kernel
from support.synthetic import Result, SyntheticProject

pytestmark = NEEDS_CC

BUILD = ["build", "--kernels", "gamma", "--target"]


@pytest.fixture
def cuda(tmp_path: Path) -> FakeCuda:
    return FakeCuda.make(tmp_path / "cuda")


@pytest.fixture
def project(locked: SyntheticProject, cuda: FakeCuda) -> SyntheticProject:
    """The locked demo project, with a kernel in patchset `gamma` and a toolkit."""
    add_kernel(locked)
    locked.environment["CUDA_HOME"] = str(cuda.home)
    return locked


def outputs(project: SyntheticProject) -> dict[str, str]:
    """Every file of the patchset's builds, but the log, with its hash."""
    folder = project.root / ".dsv4port" / "build" / "kernels" / "gamma"
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "build.log"
    }


def build(project: SyntheticProject, targets: str = "cuda-sm90,cuda-sm120") -> Result:
    return project.run(*BUILD, targets, "--json")


def edit(project: SyntheticProject, text: str) -> None:
    """Change what the kernel answers, so that a library of other content comes out."""
    header = project.root / "patchsets" / "gamma" / "kernels" / "scale.h"
    header.write_text(header.read_text() + text)


def test_a_library_that_loads(project: SyntheticProject, cuda: FakeCuda) -> None:
    answer = build(project).json
    assert answer["exit_code"] == 0, answer
    [artifact] = answer["artifacts"]
    library = Path(artifact["path"])
    assert ctypes.CDLL(str(library)).scale_abi() == 3
    assert hashlib.sha256(library.read_bytes()).hexdigest() == artifact["sha256"]
    assert artifact["size"] == library.stat().st_size
    assert artifact["architectures"] == ["90", "120a"]
    assert artifact["cached"] is False
    receipt = json.loads(Path(answer["receipt"]).read_text())
    [row] = receipt["artifacts"]
    assert (row["file"], row["sha256"]) == (library.name, artifact["sha256"])
    assert set(row["sources"]) == {"kernels/scale.cu", "kernels/scale.h"}
    assert receipt["compiler"].startswith("nvcc 13.0.88, ")
    assert "$ " in Path(answer["log"]).read_text()


def test_the_command_line(project: SyntheticProject, cuda: FakeCuda) -> None:
    answer = project.run(*BUILD, "cuda-sm120", "--plan", "--json").json
    [step] = answer["steps"]
    assert step["command"][0] == str(cuda.home / "bin" / "nvcc")
    assert "-gencode=arch=compute_120a,code=sm_120a" in step["command"]
    assert not any("90" in word for word in step["command"])
    assert step["command"][1:4] == ["--keep", "--keep-dir", "keep"]
    assert cuda.calls == 0 and outputs(project) == {}, "a plan runs nothing and writes nothing"


def test_a_second_build_comes_out_of_the_cache(project: SyntheticProject, cuda: FakeCuda) -> None:
    first = build(project).json["artifacts"]
    before = outputs(project)
    second = build(project).json["artifacts"]
    assert cuda.calls == 1
    assert [one["cached"] for one in first + second] == [False, True]
    assert outputs(project) == before


@pytest.mark.parametrize(
    "change", ["source", "header", "flag", "architecture", "exports", "compiler", "host"]
)
def test_what_decides_about_the_bytes_is_compiled_anew(
    change: str, project: SyntheticProject, cuda: FakeCuda, tmp_path: Path
) -> None:
    build(project)
    folder = project.root / "patchsets" / "gamma" / "kernels"
    if change == "source":
        (folder / "scale.cu").write_bytes((folder / "scale.cu").read_bytes() + b"\n")
    elif change == "header":
        edit(project, "\n")
    elif change == "flag":
        add_kernel(project, flags=["-DFAST"])
    elif change == "architecture":
        add_kernel(project, architectures=["90"])
    elif change == "exports":
        source = (folder / "scale.cu").read_bytes()
        add_kernel(project, exports=["scale_abi", "scale_more"])
        (folder / "scale.cu").write_bytes(source + b"int scale_more(void) { return 1; }\n")
    elif change == "compiler":
        nvcc = cuda.home / "bin" / "nvcc"
        nvcc.write_text(nvcc.read_text().replace("V13.0.88", "V13.0.99"))
    else:
        other = tmp_path / "g++"
        other.write_text("#!/bin/sh\necho 'g++ 99.1'\n")
        other.chmod(0o755)
        project.environment["NVCC_CCBIN"] = str(other)
    answer = build(project).json
    assert answer["exit_code"] == 0, answer
    assert [one["cached"] for one in answer["artifacts"]] == [False]
    assert cuda.calls == 2
    assert sum(name.endswith(".so") for name in outputs(project)) == 1, "the old library goes"


def test_the_users_variables_do_not_reach_the_compiler(
    project: SyntheticProject, cuda: FakeCuda
) -> None:
    cuda.behave('[ -z "$NVCC_APPEND_FLAGS$CPATH$CFLAGS" ] || exit 9\n')
    for name in ("NVCC_APPEND_FLAGS", "CPATH", "CFLAGS"):
        project.environment[name] = "/mine"
    assert build(project).code == 0


def test_an_architecture_that_is_not_declared_is_said(
    project: SyntheticProject, cuda: FakeCuda
) -> None:
    answer = build(project, "cuda-sm90,cuda-sm100").json
    [row] = answer["checks"]
    assert (row["subject"], row["outcome"]) == ("scale", "skipped")
    assert row["detail"] == "not declared for sm_100"
    assert answer["artifacts"][0]["architectures"] == ["90"]
    refused = build(project, "cuda-sm100")
    assert (refused.code, refused.json["error"]["kind"]) == (5, "BadInput")
    assert "no CUDA kernel for sm_100" in refused.json["error"]["what"]


# ---- what is wrong


def test_no_nvcc(project: SyntheticProject, tmp_path: Path) -> None:
    del project.environment["CUDA_HOME"]
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("git", "g++", "gcc"):
        (tools / name).symlink_to(str(shutil.which(name)))
    project.environment["PATH"] = str(tools)
    result = project.run(*BUILD, "cuda-sm90")
    assert result.code == 6, result
    assert "nvcc was not found" in result.err
    assert "→ install the CUDA toolkit and set CUDA_HOME, or `pip install nvidia-cuda" in result.err
    assert outputs(project) == {}


def test_a_cuda_home_without_nvcc_is_not_passed_over(
    project: SyntheticProject, tmp_path: Path
) -> None:
    project.environment["CUDA_HOME"] = str(tmp_path)
    result = project.run(*BUILD, "cuda-sm90")
    assert (result.code, result.err.splitlines()[0]) == (
        6, f"error: CUDA_HOME is {tmp_path}, and there is no bin/nvcc in it",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"int scale_abi(void) { return }\n", "does not compile"),
        (b'#include "other.h"\nint scale_abi(void) { return 1; }\n', "does not compile"),
        (b"int another(void) { return 1; }\n", "it does not export scale_abi"),
        (b"int gone(void);\nint scale_abi(void) { return gone(); }\n", "undefined symbol: gone"),
    ],
)
def test_a_bad_source_leaves_what_was_there(
    source: bytes, why: str, project: SyntheticProject
) -> None:
    """An undeclared header is not found, because only declared files are there."""
    build(project)
    before = outputs(project)
    folder = project.root / "patchsets" / "gamma" / "kernels"
    (folder / "other.h").write_text("\n")
    (folder / "scale.cu").write_bytes(source)
    result = build(project)
    assert (result.code, result.json["error"]["kind"]) == (5, "BuildFailed"), result
    assert why in result.json["error"]["what"]
    assert outputs(project) == before


def test_a_full_disk_while_compiling(project: SyntheticProject, cuda: FakeCuda) -> None:
    build(project)
    before = outputs(project)
    edit(project, "\n")
    cuda.behave("echo 'scale.cu: fatal error: No space left on device'; exit 1\n")
    result = build(project)
    assert (result.code, result.json["error"]["kind"]) == (6, "EnvironmentProblem"), result
    assert result.json["error"]["fix"] == "free some space, then run the command again"
    assert outputs(project) == before


def test_a_full_disk_while_writing(project: SyntheticProject) -> None:
    """A limit on the size of files stands for it: the library fits nowhere, in no place."""
    build(project)
    before = outputs(project)
    edit(project, "static char room[200000] __attribute__((used)) = {1};\n")
    for kibibytes in (1, 8, 64, 150):
        script = f'ulimit -f {kibibytes} && exec "$@"'
        done = subprocess.run(
            ["bash", "-c", script, "bash", sys.executable, "-m", "dsv4port", *BUILD, "cuda-sm90"],
            cwd=project.root, env=project.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 6, done
        assert "\n→ " in done.stderr and "internal error: " not in done.stderr
        assert outputs(project) == before
    assert build(project).code == 0


def test_a_damaged_cache_entry_is_made_anew(project: SyntheticProject, cuda: FakeCuda) -> None:
    build(project)
    before = outputs(project)
    [library] = (project.cache / "kernels").glob("*/library.so")
    library.write_bytes(library.read_bytes()[:-100])
    answer = build(project).json
    assert answer["exit_code"] == 0
    [notice] = answer["notices"]
    assert "the cache's library of scale is damaged (sha256 is " in notice
    assert answer["artifacts"][0]["cached"] is False
    assert cuda.calls == 2
    assert outputs(project) == before
    (library.parent / "entry.json").write_text("{")
    assert "compiled anew" in build(project).json["notices"][0]
    library.unlink()
    assert "compiled anew" in build(project).json["notices"][0]
    assert build(project).json["notices"] == []


def start(project: SyntheticProject) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dsv4port", *BUILD, "cuda-sm90,cuda-sm120"],
        cwd=project.root, env=project.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # A shell that started the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def wait_for(file: Path) -> int:
    for _ in range(600):
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.05)
    raise AssertionError(f"{file} did not come")


def gone(process: int) -> bool:
    """Whether a process ended; one that nobody has waited for yet has ended too."""
    for _ in range(200):
        status = Path(f"/proc/{process}/stat")
        if not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_killed_while_compiling(
    how: signal.Signals, project: SyntheticProject, cuda: FakeCuda, tmp_path: Path
) -> None:
    build(project)
    before = outputs(project)
    edit(project, "\n")
    mark = tmp_path / "compiling"
    cuda.behave(f"echo half > library.so\necho $$ > {mark}\nexec sleep 100\n")
    process = start(project)
    compiler = wait_for(mark)
    process.send_signal(how)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == (-9 if how is signal.SIGKILL else 130), said
    assert gone(compiler), "the compiler outlives the build"
    left = {name for name in outputs(project) if not name.startswith(".staging")}
    assert left == set(before)
    if how is not signal.SIGKILL:
        assert outputs(project) == before
    assert list((project.cache / "kernels").glob(".staging*")) == []
    cuda.behave("")
    assert build(project).code == 0
    after = outputs(project)
    assert len(after) == 2 and not any(name.startswith(".staging") for name in after)


def test_no_exports_is_refused(project: SyntheticProject) -> None:
    add_kernel(project, exports=[])
    result = build(project)
    assert (result.code, "names no `exports`" in result.json["error"]["what"]) == (5, True)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"flags": ["-o/etc/passwd"]}, "only -D…"),
        ({"flags": ["-I/usr/include"]}, "only -D…"),
        ({"architectures": ["9.0"]}, "a compute capability without the dot"),
        ({"exports": ["a b"]}, "the name of a C function"),
        ({"headers": ["../x.h"]}, "headers"),
        ({"headers": ["kernels/gone.h"]}, "there is no file"),
        ({"language": "rust"}, "must be one of cuda, triton"),
        ({"language": "triton"}, "has no meaning for Triton kernels"),
    ],
)
def test_malformed_rows(row: dict[str, object], problem: str, project: SyntheticProject) -> None:
    add_kernel(project, **row)
    result = build(project)
    assert (result.code, result.json["error"]["kind"]) == (5, "Manifest"), result
    assert problem in result.json["error"]["what"]
    assert result.json["error"]["what"].startswith("patchsets/gamma/patchset.yaml:")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kernels", "gamma"],
        ["--target", "cuda-sm90", "--check-triton"],
        ["--target", "cuda-sm90", "--kernels", "gamma", "--check-sources"],
        ["--target", "cuda-sm90", "file.cu"],
        ["--target", "cuda-sm90", "--check-sources", "--all", "file.cu"],
        ["--target", "cuda-sm90,cuda-sm90", "--kernels", "gamma"],
        ["--target", "cuda-sm90,cuda-sm120"],
        ["--target", "cuda-sm90", "--kernels", "gamma", "--accept", "packages"],
        ["--target", "empty", "--accept", "everything"],
    ],
)
def test_what_makes_no_sense(arguments: list[str], project: SyntheticProject) -> None:
    assert project.run("build", *arguments).code == 2


# ---- verify


def test_verify_holds_libraries_against_the_receipt(
    project: SyntheticProject, locked: SyntheticProject
) -> None:
    project.add_stack("wide", "v1.0.0", ["gamma"])
    project.succeed("lock", "wide")
    project.succeed("apply", "wide")
    assert project.run("verify", "--json").json["kernels_checked"] == 0
    build(project)
    result = project.run("verify", "--json")
    assert (result.code, result.json["kernels_checked"]) == (0, 1)
    assert "1 built kernel by sha256" in project.run("verify").out
    folder = project.root / ".dsv4port" / "build" / "kernels" / "gamma"
    [library] = folder.glob("*.so")
    content = library.read_bytes()

    def kinds() -> list[str]:
        found = project.run("verify", "--json")
        assert found.code == 1
        return [row["kind"] for row in found.json["findings"]]

    library.write_bytes(content[:-1] + b"\0\0")
    assert kinds() == ["kernel-changed"]
    library.unlink()
    assert kinds() == ["kernel-missing"]
    library.write_bytes(content)
    assert project.run("verify").code == 0
    edit(project, "\n")
    assert kinds() == ["kernel-stale"]
    build(project)
    assert project.run("verify").code == 0
    (folder / "receipt.json").write_text('{"format": 1, "artifacts": [{}]}')
    damaged = project.run("verify")
    assert damaged.code == 5
    assert "run `dsv4port build --kernels` for the patchset again" in damaged.err


# ---- the real compiler


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_real_nvcc_gives_the_same_bytes_without_the_cache(locked: SyntheticProject) -> None:
    folder = add_kernel(locked, architectures=["90", "120"])
    (folder / "kernels" / "scale.cu").write_text(
        '#include "scale.h"\n'
        "__global__ void scale(float *a) { a[threadIdx.x] *= SCALE_ABI; }\n"
        'extern "C" int scale_abi(void) { return SCALE_ABI; }\n'
        'extern "C" int scale_start(float *a) {\n'
        "  scale<<<1, 32>>>(a);\n"
        "  return static_cast<int>(cudaGetLastError());\n"
        "}\n"
    )
    (folder / "kernels" / "scale.h").write_text("#define SCALE_ABI 3\n")
    digests = []
    for number in range(2):
        locked.environment["DSV4PORT_CACHE"] = str(locked.base / f"cache-{number}")
        answer = build(locked).json
        assert answer["exit_code"] == 0, answer
        [artifact] = answer["artifacts"]
        assert artifact["cached"] is False
        digests.append(artifact["sha256"])
        library = ctypes.CDLL(artifact["path"])
        assert library.scale_abi() == 3
        shutil.rmtree(locked.root / ".dsv4port" / "build")
    assert digests[0] == digests[1]
