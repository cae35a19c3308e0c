#include <cuda_runtime.h>

/* void commented(int) { */
#define MACRO(x) \
  do {           \
    run(x);      \
  } while (0)

namespace vllm {
namespace {

template <typename T, int N = 4>
__global__ void __launch_bounds__(256, 2) twin(const T* __restrict__ in, T* out) {
  if (threadIdx.x == 0) {
    out[0] = in[0];  // }
  }
}

template <>
__device__ __forceinline__ float twin<float, 4>(float x) {
  const char* s = "}{";
  return x;
}

}  // namespace

struct __align__(16) Pair {
  float a, b;
  DINLINE float sum() const { return a + b; }
  __host__ __device__ Pair(float x) : a{x}, b(x) {
    a += 1;
  }
  bool operator==(const Pair& o) const {
    return a == o.a;
  }
 public:
  static constexpr int kTable[] = {
      1,
      2,
  };
};

}  // namespace vllm

void launch(float* out) {
  vllm::twin<float><<<1, 256, 0, stream>>>(out, out);
  auto f = [&] {
    return 1;
  };
  struct Local {
    int x;
  };
}

void overloaded(int x) {
  use(x);
}

void overloaded(double x) {
  use(x);
}
