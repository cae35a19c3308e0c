TORCH_LIBRARY(_C, ops) {
  ops.def("scale_rows(Tensor input, float factor) -> Tensor");
  ops.def(
      "gather_rows(Tensor input, "
      "Tensor index, int width=1) -> Tensor");
}
