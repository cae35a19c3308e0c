// SPDX-License-Identifier: Apache-2.0
// C interface of the block-FP8 GEMV for a handful of tokens. Nothing here needs torch or Python.
#ifndef DSV4PORT_FP8_GEMV_H_
#define DSV4PORT_FP8_GEMV_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSV4PORT_FP8_GEMV_ABI 1
#define DSV4PORT_FP8_GEMV_MAX_TOKENS 8
#define DSV4PORT_FP8_GEMV_K 4096

// What a call returns: 0, one of these, or (positive) a cudaError_t of the launch.
#define DSV4PORT_BAD_ABI (-1)     // `size` is not that of this structure
#define DSV4PORT_BAD_SHAPE (-2)   // tokens, groups, n or k are not supported
#define DSV4PORT_BAD_POINTER (-3) // null, or operands not aligned to 16 bytes

// For each token t, group g and output feature n:
//   out[t, g, n] = bf16( sum over blocks b of 128 values of
//                        a_scale[t, g, b] * w_scale[g, n / 128, b]
//                        * sum over k in b of a[t, g, k] * w[g, n, k] )
// with products and sums in FP32. Strides are in elements. `a` and `w` are FP8 E4M3 with the
// k axis contiguous, scales are FP32, `out` is BF16 with the n axis contiguous. `w` is contiguous
// within a group.
typedef struct {
  int32_t size;  // sizeof(Dsv4portFp8Gemv)
  int32_t tokens;
  int32_t groups;
  int32_t n;
  int32_t k;
  int32_t reserved;
  const void *a;
  const float *a_scale;
  const void *w;
  const float *w_scale;
  void *out;
  int64_t a_stride_t, a_stride_g;
  int64_t a_scale_stride_t, a_scale_stride_g, a_scale_stride_k;
  int64_t w_stride_g;
  int64_t w_scale_stride_g, w_scale_stride_n, w_scale_stride_k;
  int64_t out_stride_t, out_stride_g;
} Dsv4portFp8Gemv;

// DSV4PORT_FP8_GEMV_ABI of the library; needs no device.
int dsv4port_fp8_gemv_abi(void);

// Start the product on `stream` (a cudaStream_t, null for the default stream). Does not wait.
int dsv4port_fp8_gemv(const Dsv4portFp8Gemv *call, void *stream);

#ifdef __cplusplus
}
#endif

#endif  // DSV4PORT_FP8_GEMV_H_
