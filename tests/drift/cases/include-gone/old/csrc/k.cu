#include "tools.h"

__global__ void scale_kernel(float* out, const float* in, int n) {
  int i = threadIdx.x;
  out[i] = in[i];
}

void scale(float* out, const float* in, int n) {
  scale_kernel<<<1, n>>>(out, in, n);
}
