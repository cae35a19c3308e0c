TORCH_LIBRARY(_C, ops) {
  ops.def("scale_rows(Tensor input, float factor) -> Tensor");
}
