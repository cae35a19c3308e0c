// SPDX-License-Identifier: Apache-2.0
// Block-FP8 GEMV for up to eight tokens. See fp8_gemv.h for what it computes.
//
// With so few tokens the time goes into reading the weight once. A block owns four rows of it and
// the whole of K, so there is no second pass. Each thread asks for all its parts of these rows
// before it computes anything: 128 bytes a thread are under way at once.

#include "fp8_gemv.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kRows = 4;
constexpr int kVector = 16;  // FP8 values in one load
constexpr int kQuantBlock = 128;
constexpr int kVectors = DSV4PORT_FP8_GEMV_K / (kThreads * kVector);

static_assert(DSV4PORT_FP8_GEMV_K % (kThreads * kVector) == 0, "threads divide K evenly");
static_assert(kQuantBlock % kVector == 0, "one load lies in one block of scales");
static_assert(kQuantBlock % kRows == 0, "the rows of a block share their scales");

// The weight is read once; it must not push the activations out of the L1 cache.
__device__ __forceinline__ uint4 load_once(const void *address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

// Every E4M3 value is a half exactly, and every half a float.
__device__ __forceinline__ void widen(uint4 packed, float (&values)[kVector]) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    const auto pair = static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (i % 2 * 16));
    const float2 wide = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3)));
    values[2 * i] = wide.x;
    values[2 * i + 1] = wide.y;
  }
}

// Sum each of `Count` values over the warp. Lanes split the values among themselves instead of
// all adding all: afterwards lane l holds the sum of value l / (32 / Count).
template <int Count>
__device__ __forceinline__ float sum_over_warp(float (&values)[Count], int lane) {
  static_assert(Count <= 32 && (Count & (Count - 1)) == 0, "a power of two");
  int held = Count;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    if (held > 1) {
      held /= 2;
      const bool upper = (lane & distance) != 0;
#pragma unroll
      for (int i = 0; i < Count / 2; ++i) {
        if (i < held) {
          const float sent = upper ? values[i] : values[i + held];
          const float kept = upper ? values[i + held] : values[i];
          values[i] = kept + __shfl_xor_sync(0xffffffffu, sent, distance);
        }
      }
    } else {
      values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
    }
  }
  return values[0];
}

// `Tokens` is a power of two, at least the call's number of tokens.
template <int Tokens>
__global__ void __launch_bounds__(kThreads) gemv(const Dsv4portFp8Gemv call) {
  constexpr int kSums = Tokens * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const auto group = static_cast<int64_t>(blockIdx.y);

  const auto *weight = static_cast<const uint8_t *>(call.w) + group * call.w_stride_g +
                       static_cast<int64_t>(first_row) * DSV4PORT_FP8_GEMV_K;
  uint4 packed[kVectors][kRows];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      packed[v][row] =
          load_once(weight + row * DSV4PORT_FP8_GEMV_K + (v * kThreads + thread) * kVector);
    }
  }

  const auto *activation = static_cast<const uint8_t *>(call.a) + group * call.a_stride_g;
  const float *a_scale = call.a_scale + group * call.a_scale_stride_g;
  const float *w_scale = call.w_scale + group * call.w_scale_stride_g +
                         first_row / kQuantBlock * call.w_scale_stride_n;
  float sums[kSums] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int k = (v * kThreads + thread) * kVector;
    const int block = k / kQuantBlock;
    const float row_scale = w_scale[block * call.w_scale_stride_k];
    float wide[kRows][kVector];
#pragma unroll
    for (int row = 0; row < kRows; ++row) widen(packed[v][row], wide[row]);
#pragma unroll
    for (int token = 0; token < Tokens; ++token) {
      if (token >= call.tokens) break;
      float values[kVector];
      widen(*reinterpret_cast<const uint4 *>(activation + token * call.a_stride_t + k), values);
      const float scale = row_scale * a_scale[token * call.a_scale_stride_t +
                                              block * call.a_scale_stride_k];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < kVector; ++i) sum = fmaf(values[i], wide[row][i], sum);
        sums[token * kRows + row] = fmaf(sum, scale, sums[token * kRows + row]);
      }
    }
  }

  __shared__ float partial[kWarps][kSums];
  const float sum = sum_over_warp<kSums>(sums, lane);
  constexpr int kCopies = 32 / kSums;
  if (lane % kCopies == 0) partial[thread / 32][lane / kCopies] = sum;
  __syncthreads();
  if (thread < kSums) {
    const int token = thread / kRows;
    if (token < call.tokens) {
      float total = 0.f;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total += partial[warp][thread];
      static_cast<__nv_bfloat16 *>(
          call.out)[token * call.out_stride_t + group * call.out_stride_g + first_row +
                    thread % kRows] = __float2bfloat16_rn(total);
    }
  }
}

bool aligned(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % kVector == 0; }

template <int Tokens>
int launch(const Dsv4portFp8Gemv &call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.n / kRows), static_cast<unsigned>(call.groups));
  gemv<Tokens><<<grid, kThreads, 0, stream>>>(call);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

extern "C" int dsv4port_fp8_gemv_abi(void) { return DSV4PORT_FP8_GEMV_ABI; }

extern "C" int dsv4port_fp8_gemv(const Dsv4portFp8Gemv *call, void *stream) {
  if (call == nullptr || call->size != static_cast<int32_t>(sizeof(*call))) {
    return DSV4PORT_BAD_ABI;
  }
  if (call->tokens < 1 || call->tokens > DSV4PORT_FP8_GEMV_MAX_TOKENS || call->groups < 1 ||
      call->groups > 65535 || call->n < kQuantBlock || call->n % kQuantBlock != 0 ||
      call->k != DSV4PORT_FP8_GEMV_K) {
    return DSV4PORT_BAD_SHAPE;
  }
  if (call->a_scale == nullptr || call->w_scale == nullptr || call->out == nullptr ||
      call->a == nullptr || call->w == nullptr || !aligned(call->a) || !aligned(call->w) ||
      call->a_stride_t % kVector != 0 || call->a_stride_g % kVector != 0 ||
      call->w_stride_g % kVector != 0) {
    return DSV4PORT_BAD_POINTER;
  }
  const auto queue = static_cast<cudaStream_t>(stream);
  if (call->tokens == 1) return launch<1>(*call, queue);
  if (call->tokens == 2) return launch<2>(*call, queue);
  if (call->tokens <= 4) return launch<4>(*call, queue);
  return launch<8>(*call, queue);
}
