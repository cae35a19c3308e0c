"""Operators as C++ sources declare them, read from text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsv4port.build.op_schemas import DeclaredOp, declared_ops

SOURCE = r"""
#include <torch/library.h>
// ops.def("commented(Tensor a) -> ()");
/* ops.def("also_commented(Tensor a) -> ()"); */
const char *text = "TORCH_LIBRARY(fake, ops) ops.def(";
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "scale(Tensor input, Tensor! output, "  // The output is the caller's.
      "float factor) -> ()");
  ops.def("scale.out(Tensor input) -> Tensor");
#ifndef USE_ROCM
  ops.def("cuda_only(Tensor a) -> Tensor",
          {at::Tag::needs_fixed_stride_order});
  #if CUDA_VERSION \
      >= 12000
  ops.def("newer(Tensor a) -> Tensor");
  #endif
#else
  ops.def("rocm_only(Tensor a) -> Tensor");
#endif
  ops.def("inferred", &inferred);
  ops.impl("scale", torch::kCUDA, &scale);
  m.def("of_pybind", &f);
}
STABLE_TORCH_LIBRARY_FRAGMENT(_C, m) { m.def("stable(Tensor a) -> ()"); }
TORCH_LIBRARY_FRAGMENT(CONCAT(TORCH_EXTENSION_NAME, _custom_ar), custom_ar) {
  custom_ar.def("all_reduce(int fa, Tensor inp) -> ()");
}
"""


def test_what_is_declared() -> None:
    found = declared_ops(SOURCE, "csrc/x.cpp")
    assert [(op.namespace, op.by_ending, op.name, op.conditional) for op in found] == [
        ("", True, "scale", False),
        ("", True, "scale.out", False),
        ("", True, "cuda_only", True),
        ("", True, "newer", True),
        ("", True, "rocm_only", True),
        ("", True, "inferred", False),
        ("_C", False, "stable", False),
        ("_custom_ar", True, "all_reduce", False),
    ]
    by_name = {op.name: op for op in found}
    assert by_name["inferred"].schema == "inferred"
    assert by_name["stable"] == DeclaredOp(
        "_C", False, "stable", "stable(Tensor a) -> ()", False, "csrc/x.cpp",
        SOURCE[: SOURCE.index("m.def(\"stable")].count("\n") + 1,
    )  # fmt: skip


def test_a_text_in_pieces_is_one() -> None:
    text = 'TORCH_LIBRARY(_C, ops) { ops.def("a(Tensor x, "\n   "int y)"\n  " -> ()"); }'
    [op] = declared_ops(text, "f")
    assert op.schema == "a(Tensor x, int y) -> ()"


@given(st.text(alphabet='ops.def("a)#if endif\n/*"\\TORCH_LIBRARY{},;', max_size=200))
def test_any_text_is_read(text: str) -> None:
    for op in declared_ops(text, "f"):
        assert op.schema and op.name


@given(st.integers(0, 5), st.integers(0, 5))
def test_below_as_many_conditions_as_there_are(opened: int, closed: int) -> None:
    lines = ["TORCH_LIBRARY(_C, ops) {"] + ["#if A"] * opened + ["#endif"] * closed
    [op] = declared_ops("\n".join([*lines, 'ops.def("a() -> ()");']), "f")
    assert op.conditional is (opened > closed)
