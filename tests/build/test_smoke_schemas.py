"""Registered operators against what C++ sources declare, with torch's own registry and parser."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dsv4port.build.smoke import Check, CheckKind, CheckOutcome, smoke
from dsv4port.build.targets import load_target

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BINDINGS = """
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("same(Tensor input, Tensor! output, float factor=1.0) -> ()");
  ops.def("inferred", &inferred);
  ops.def("other_type(Tensor input, int factor) -> Tensor");
  ops.def("forgotten(Tensor input) -> ()");
#ifdef USE_ROCM
  ops.def("rocm_only(Tensor input) -> ()");
  ops.def("two_devices(Tensor input, int blocks) -> ()");
#else
  ops.def("two_devices(Tensor input) -> ()");
#endif
}
"""

REGISTERED = """
import torch

library = torch.library.Library("_smoke_C", "DEF")
library.define("same(Tensor input, Tensor(a!) output, float factor=1.0) -> ()")
library.define("inferred(int x) -> int")
library.define("other_type(Tensor input, float factor) -> Tensor")
library.define("two_devices(Tensor input) -> ()")
"""


def rows(tree: Path, touched: frozenset[str]) -> list[Check]:
    with (tree / "log").open("wb") as log:
        found = smoke(
            load_target("small", Path(__file__).parent / "cases" / "targets"), tree,
            Path(sys.executable), {**os.environ, "PYTHONPATH": str(tree)}, log,
            packages_check=[sys.executable, "-c", ""], touched=touched,
        )  # fmt: skip
    return [one for one in found.checks if one.kind is CheckKind.SCHEMA]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "bindings.cpp").write_text(BINDINGS)
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text(REGISTERED)
    # The program ignores PYTHONPATH, as it must; this stands for the install.
    program = tmp_path / "program.py"
    import dsv4port.build.smoke as module

    original = Path(module.__file__).with_name("smoke_program.py").read_text()
    program.write_text(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + original.replace(
        "from __future__ import annotations\n", ""))  # fmt: skip
    monkeypatch.setattr(module, "_PROGRAM", program)
    return tmp_path


def test_of_files_that_nobody_touched(tree: Path) -> None:
    found = rows(tree, frozenset())
    failed = {one.subject: one.detail for one in found if one.outcome is CheckOutcome.FAILS}
    assert set(failed) == {"_smoke_C::other_type"}
    assert "float factor" in failed["_smoke_C::other_type"]
    assert "csrc/bindings.cpp:5 other_type(Tensor input, int factor)" in next(iter(failed.values()))
    [summary] = [one for one in found if one.subject == "operators"]
    assert summary.detail == "3 as declared; 2 of 7 not in this build"


def test_what_the_stack_declares_must_be_there(tree: Path) -> None:
    found = rows(tree, frozenset(["csrc/bindings.cpp"]))
    failed = {one.subject for one in found if one.outcome is CheckOutcome.FAILS}
    assert failed == {"_smoke_C::other_type", "forgotten"}
