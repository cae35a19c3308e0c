// SPDX-License-Identifier: Apache-2.0
// As much of CUDA as kernels/fp8_gemv.cu uses, on the host: a thread for each thread of a block, one
// block after the other. For its numbers and addresses; says nothing about speed, memory order or
// what nvcc makes of it.
#pragma once

#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

constexpr unsigned kHostThreads = 128;
constexpr unsigned kHostWarps = kHostThreads / 32;

struct uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct dim3 {
  unsigned x, y;
  dim3(unsigned columns, unsigned rows) : x(columns), y(rows) {}
};

inline thread_local struct {
  unsigned x;
} threadIdx;
inline struct {
  unsigned x, y;
} blockIdx;
inline std::unique_ptr<std::barrier<>> host_block, host_warps[kHostWarps];
inline float host_lanes[kHostThreads];

inline void __syncthreads() { host_block->arrive_and_wait(); }

inline float __shfl_xor_sync(unsigned, float value, int distance) {
  auto &warp = *host_warps[threadIdx.x / 32];
  host_lanes[threadIdx.x] = value;
  warp.arrive_and_wait();
  const float received = host_lanes[threadIdx.x ^ static_cast<unsigned>(distance)];
  warp.arrive_and_wait();
  return received;
}

using __nv_fp8x2_storage_t = unsigned short;
enum __nv_fp8_interpretation_t { __NV_E4M3 };
struct __half2_raw {
  float x, y;
};
struct __half2 {
  float x, y;
  explicit __half2(__half2_raw raw) : x(raw.x), y(raw.y) {}
};

inline float host_e4m3(unsigned code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if (exponent == 15 && fraction == 7) return NAN;
  const float value = exponent ? std::ldexp(1 + fraction / 8.f, exponent - 7)
                               : std::ldexp(fraction / 8.f, -6);
  return code & 0x80 ? -value : value;
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(unsigned short pair, __nv_fp8_interpretation_t) {
  return {host_e4m3(pair & 255), host_e4m3(pair >> 8)};
}
inline float2 __half22float2(__half2 pair) { return {pair.x, pair.y}; }

struct __nv_bfloat16 {
  uint16_t bits;
};
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (std::isnan(value)) return {0x7fff};
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

using cudaStream_t = void *;
inline int cudaGetLastError() { return 0; }

inline uint4 host_load(const void *address) {
  uint4 value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

template <class Kernel>
void host_launch(dim3 grid, Kernel kernel) {
  for (unsigned row = 0; row < grid.y; ++row) {
    for (unsigned column = 0; column < grid.x; ++column) {
      host_block = std::make_unique<std::barrier<>>(kHostThreads);
      for (auto &warp : host_warps) warp = std::make_unique<std::barrier<>>(32);
      blockIdx = {column, row};
      std::vector<std::thread> threads;
      for (unsigned thread = 0; thread < kHostThreads; ++thread) {
        threads.emplace_back([=] {
          threadIdx.x = thread;
          kernel();
        });
      }
      for (auto &thread : threads) thread.join();
    }
  }
}
