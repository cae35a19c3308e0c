#pragma once
#ifdef __cplusplus
extern "C" {
#endif

int declared(int);

int inside(int x) {
#if A
  if (x) {
#elif B
  if (!x) {
#else
  {
#endif
    x++;
  }
  return x;
}

#ifdef __cplusplus
}
#endif

#ifdef USE_ROCM
int width(int lane) {
  return 64;
}
#else
int width(int lane) {
  return 32;
}
#endif

#if TEMPLATED
template <typename T>
void headed(T x)
#else
void headed(int x)
#endif
{
  use(x);
}

enum class Kind {
  kA,
  kB,
};

int after() {
  return 1;
}

#if A
int many(int x) {
  return 1;
}
#elif B
int many(int x) {
  return 2;
}
#else
  #error "neither"
#endif

#if A
int opened(int x) {
#else
int opened(long x) {
#endif
  return 1;
}

namespace closed_twice {
#if OLD
void stub() {
}
}  // namespace closed_twice
void outside(int) {
}
#else
void stub() {
  real();
}
}  // namespace closed_twice
void outside(long) {
}
#endif

int split(int x) {
#if A
  return 1;
}
#else
  return 2;
}
#endif

int last() {
  return 3;
}
