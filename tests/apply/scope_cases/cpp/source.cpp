#include "ops.h"

namespace a::b {

class Outer : public Base<int> {
 public:
  Outer() = default;
  explicit Outer(int x)
      : Base(x), y_{x} {
    init();
  }
  ~Outer() { stop(); }
  operator int() const {
    return y_;
  }

 private:
  struct Inner {
    int get() { return 1; }
  };
  std::vector<int> v_ = {1, 2};
};

template <typename T>
T& Outer::at(size_t i) {
  return v_[i];
}

template <typename T>
struct Traits;

template <>
struct Traits<float> {
  static int size() {
    return 4;
  }
};

}  // namespace a::b

inline namespace v1 {
constexpr auto pick = [](int x) {
  return x;
};
}

namespace a::b {
const char* raw = R"(
void not_code() {
)";
}

TORCH_LIBRARY_EXPAND(CONCAT(NAME, _ops), ops) {
  ops.def("f() -> ()");
#ifdef USE_CUDA
  ops.impl("f", torch::kCUDA, &f);
#endif
}

PYBIND11_MODULE(x, m) {
  m.def("f", &f);
}

[[nodiscard]] __attribute__((noinline)) static int attributed(int x) {
  return x;
}
