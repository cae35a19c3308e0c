"""`--check-triton` and `--check-sources`: what compiles, what fails, what cannot be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.build_project import FakeCuda, add_kernel, make_base
from support.synthetic import SyntheticProject, write_files

from dsv4port.build.source_check import chosen_sources
from dsv4port.errors import BadInputError

CASES = Path(__file__).parent / "cases"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with stand-ins for torch (with headers) and Triton."""
    folder = make_base(tmp_path_factory.mktemp("base") / "base")
    [packages] = list(folder.glob("lib/python*/site-packages"))
    (packages / "torch.py").unlink()
    (packages / "torch" / "include").mkdir(parents=True)
    (packages / "torch" / "__init__.py").touch()
    (packages / "triton.py").touch()
    return folder


def checks(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row["subject"]: (row["outcome"], row["detail"]) for row in answer["checks"]}


# ---- Triton

PROGRAM = """
import json, os, sys
tree, architecture = sys.argv[1:]
assert os.environ["CUDA_VISIBLE_DEVICES"] == "" and "TRITON_INTERPRET" not in os.environ
assert os.path.isfile(os.path.join(tree, "vllm", "config.py"))
print("compiling for", architecture)
"""


@pytest.fixture
def triton(applied: SyntheticProject, base: Path) -> tuple[SyntheticProject, Path]:
    folder = add_kernel(applied)
    (folder / "tests").mkdir()
    program = folder / "tests" / "compile.py"
    program.touch()
    row = {"headers": [], "exports": [], "language": "triton", "name": "tri",
           "sources": ["tests/compile.py"], "architectures": ["90", "120a"]}  # fmt: skip
    add_kernel(applied, **row)
    applied.environment["TRITON_INTERPRET"] = "1"
    return applied, program


def check_triton(project: SyntheticProject, base: Path, *more: str) -> Any:
    return project.run(
        "build", "--kernels", "gamma", "--check-triton", "--python", f"{base}/bin/python",
        "--json", "--target", *more,
    )  # fmt: skip


def test_triton_kernels_that_compile(triton: tuple[SyntheticProject, Path], base: Path) -> None:
    project, program = triton
    program.write_text(PROGRAM + "print(json.dumps({'a': {'x': 100, 'y': 24}, 'b': {'z': 900}}))\n")
    result = check_triton(project, base, "cuda-sm90,cuda-sm120,cuda-sm100")
    assert result.code == 0, result
    found = checks(result.json)
    assert found["tri sm_90"] == ("compiles", "3 variants, 1.0 KiB")
    assert found["tri sm_120"] == ("compiles", "3 variants, 1.0 KiB")
    assert found["tri sm_100"][0] == "not-declared"
    assert "compiling for 120" in Path(result.json["log"]).read_text()
    assert check_triton(project, base, "cuda-sm100").code == 1, "nothing was checked"


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("sys.exit('ptxas fatal: no such instruction')", "no such instruction"),
        ("print(json.dumps({'a': {'x': 0}}))", "a: x"),
        ("print(json.dumps({}))", "it compiled nothing"),
        ("print('done')", "not a JSON object of sizes"),
        ("print(json.dumps([1]))", "not a JSON object of sizes"),
    ],
)
def test_triton_kernels_that_do_not(
    ending: str, why: str, triton: tuple[SyntheticProject, Path], base: Path
) -> None:
    project, program = triton
    program.write_text(f"{PROGRAM}{ending}\n")
    result = check_triton(project, base, "cuda-sm90")
    assert result.code == 1, result
    outcome, detail = checks(result.json)["tri sm_90"]
    assert (outcome, why in detail) == ("fails", True), detail


def test_triton_is_missing(triton: tuple[SyntheticProject, Path], tmp_path: Path) -> None:
    bare = make_base(tmp_path / "bare")
    result = check_triton(triton[0], bare, "cuda-sm90")
    assert (result.code, result.json["error"]["kind"]) == (6, "Toolchain")
    assert result.json["error"]["fix"].startswith("pip install triton")
    [probe, _] = result.json["probes"]
    assert (probe["subject"], probe["outcome"]) == ("triton", "missing")


def test_no_triton_rows(applied: SyntheticProject, base: Path) -> None:
    add_kernel(applied)
    result = check_triton(applied, base, "cuda-sm90")
    assert (result.code, "declares no Triton kernels" in result.json["error"]["what"]) == (5, True)


# ---- sources

# Reads the command line as nvcc would, and judges a file by its name.
COMPILER = """
lacks() { echo "$source:1:10: fatal error: $1: No such file or directory"; exit 1; }
out=; take=
for word; do
  [ -n "$take" ] && out=$word
  take=; [ "$word" = -o ] && take=1
  case "$word" in *.cu|*.cpp) source=$word ;; esac
done
echo "arguments: $*"
case "$source" in
  *external*) lacks cutlass/cutlass.h ;;
  *lost*) lacks ours.cuh ;;
  *bad*) echo "$source(3): error: identifier \\"x\\" is undefined"; exit 1 ;;
esac
echo object > "$out"
exit 0
"""

SOURCES = {
    "CMakeLists.txt": b"set(CMAKE_CUDA_STANDARD 20)\nTORCH_TARGET_VERSION=0x020B000000000000ULL\n",
    "csrc/good.cu": b'#include "deep/inner.cuh"\n',
    "csrc/deep/inner.cuh": b'#include "core.h"\n',
    "csrc/core.h": b"",
    "csrc/other.cpp": b'#include <core.h>\n',
    "csrc/alone.cu": b"",
    "csrc/bad.cu": b"",
    "csrc/lost.cu": b"",
    "csrc/external.cu": b"",
    "csrc/rocm/attention.cu": b"",
    "csrc/unused.cuh": b"",
}  # fmt: skip


@pytest.fixture
def sources(applied: SyntheticProject, tmp_path: Path) -> SyntheticProject:
    write_files(applied.checkout, SOURCES)
    cuda = FakeCuda.make(tmp_path / "cuda")
    cuda.behave(COMPILER)
    applied.environment["CUDA_HOME"] = str(cuda.home)
    return applied


def check_sources(project: SyntheticProject, base: Path, *more: str) -> Any:
    return project.run(
        "build", "--check-sources", "--target", "cuda-sm90,cuda-sm120", "--python",
        f"{base}/bin/python", "--json", *more,
    )  # fmt: skip


def test_each_file_has_its_outcome(sources: SyntheticProject, base: Path) -> None:
    files = [f"csrc/{name}.cu" for name in ("good", "bad", "lost", "external", "rocm/attention")]
    result = check_sources(sources, base, *files)
    assert result.code == 1
    found = checks(result.json)
    assert len(found) == 10
    assert found["csrc/good.cu sm_90a"][0] == "compiles"
    assert "with a stand-in for cuBLAS's header" in found["csrc/good.cu sm_120a"][1]
    assert found["csrc/bad.cu sm_90a"] == (
        "fails", 'csrc/bad.cu(3): error: identifier "x" is undefined',
    )  # fmt: skip
    assert found["csrc/lost.cu sm_90a"][0] == "fails", "nobody else would bring this header"
    outcome, detail = found["csrc/external.cu sm_90a"]
    assert (outcome, "CUTLASS: set VLLM_CUTLASS_SRC_DIR" in detail) == ("not-checkable", True)
    assert found["csrc/rocm/attention.cu sm_90a"] == ("not-checkable", "it is for ROCm")
    log = Path(result.json["log"]).read_text()
    for word in ("-std=c++20", "-DTORCH_TARGET_VERSION=0x020B000000000000ULL", "sm_120a",
                 "torch/include"):  # fmt: skip
        assert word in log


def test_what_cannot_be_checked_alone_is_no_pass(sources: SyntheticProject, base: Path) -> None:
    assert check_sources(sources, base, "csrc/good.cu", "csrc/external.cu").code == 0
    assert check_sources(sources, base, "csrc/external.cu").code == 1
    unused = check_sources(sources, base, "csrc/good.cu", "csrc/unused.cuh").json
    assert checks(unused)["csrc/unused.cuh"] == ("not-checkable", "no source includes it")
    assert check_sources(sources, base, "csrc/unused.cuh").code == 1


def test_headers_stand_for_what_includes_them(sources: SyntheticProject) -> None:
    tree = sources.checkout
    assert chosen_sources(tree, ["csrc/core.h"]) == ["csrc/good.cu", "csrc/other.cpp"]
    assert chosen_sources(tree, ["csrc/deep/inner.cuh"]) == ["csrc/good.cu"]
    assert chosen_sources(tree, ["csrc/unused.cuh"]) == []
    assert chosen_sources(tree, ["csrc/alone.cu", "csrc/core.h"])[0] == "csrc/alone.cu"
    with pytest.raises(BadInputError, match=r"did you mean `csrc/good.cu`"):
        chosen_sources(tree, ["csrc/goood.cu"])
    with pytest.raises(BadInputError, match="is no C"):
        chosen_sources(tree, ["CMakeLists.txt"])


def test_by_default_what_the_stack_touches(sources: SyntheticProject, base: Path) -> None:
    """The demo stack changes csrc/scale.cu."""
    result = check_sources(sources, base)
    assert result.code == 0, result
    assert set(checks(result.json)) == {"csrc/scale.cu sm_90a", "csrc/scale.cu sm_120a"}
    sources.succeed("reset", "v1.0.0", "--force")
    assert "nothing to check: it holds no locked stack" in sources.run(
        "build", "--check-sources", "--target", "cuda-sm90"
    ).out  # fmt: skip


def test_every_source(sources: SyntheticProject, base: Path) -> None:
    plan = check_sources(sources, base, "--all", "--plan").json
    names = [step["name"] for step in plan["steps"]]
    assert names == sorted({one for one in SOURCES if one.endswith(".cu")} | {"csrc/scale.cu"})


def test_no_torch_for_the_headers(sources: SyntheticProject, tmp_path: Path) -> None:
    bare = make_base(tmp_path / "bare")
    [torch] = list(bare.glob("lib/python*/site-packages/torch.py"))
    torch.unlink()
    result = check_sources(sources, bare, "csrc/good.cu")
    assert (result.code, result.json["error"]["kind"]) == (6, "Toolchain")
    assert "has no torch" in result.json["error"]["what"]
