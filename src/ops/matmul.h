// Products with weights: out [T, N] = x [T, K] * W^T (+ bias) (+ out), W [N, K] packed once at load.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace lariat {

// Panels of 16 output columns: data = [ceil(N/16)][K][16] elements of dtype, zero beyond N. Lanes of a vector
// are outputs, so every output is one chain of FMAs over k = 0..K-1: a matrix product and a vector product
// round alike, whatever the batch, the tile sizes and the thread count (design.md §9).
inline constexpr int kPanel = 16;

struct PackedMatrix {
  const std::byte* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kF32;        // f32, bf16 or f16
  int64_t n = 0;
  int64_t k = 0;
  int64_t bytes() const {
    return (n + kPanel - 1) / kPanel * kPanel * k * static_cast<int64_t>(dtype_size(dtype));
  }
};

int64_t packed_bytes(DType dtype, int64_t n, int64_t k);

// Packs rows [row0, row0 + rows) and columns [col0, col0 + cols) of w [N, K] row-major into dst (a slice
// serves tensor parallelism), converting src dtype to dst dtype (f32, bf16, f16; nearest even). dst:
// packed_bytes(dtype, rows, cols), 64-byte aligned. Several sources can share one PackedMatrix (q, k, v) by
// `dst_row0`, a multiple of kPanel unless it continues exactly where the previous source ended (any value
// allowed).
struct PackArgs {
  ConstView src;  // [N, K]
  int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  std::byte* dst = nullptr;
  DType dtype = DType::kF32;
  int64_t dst_row0 = 0;
};
void pack_rows(Stream& stream, const PackArgs& args);

struct MatmulArgs {
  const float* x = nullptr;  // [T, K], x_stride floats between rows
  int64_t x_stride = 0;
  int64_t t = 0;
  PackedMatrix w;
  const float* bias = nullptr;  // [N] or null
  float* out = nullptr;         // [T, N], out_stride floats between rows; must not alias x
  int64_t out_stride = 0;
  bool accumulate = false;  // out += product, added once after the whole chain over K (residual)
};
// t = 0 does nothing. x and out need no alignment; floats between rows (padding) are neither read nor
// written. Up to 32 rows the weights are read once and widened on the way; more rows widen 64 columns at a
// time into scratch. Synchronous on the stream's threads. Bug (CHECK): weights of another dtype or
// misaligned, strides shorter than rows. Cost: 2*T*N*K flops. An instruction set without FMA (SSE4) rounds
// product and sum apart.
void matmul(Stream& stream, const MatmulArgs& args);

// Row `id` of a packed [V, K] table as f32 into out [n, K] (embedding lookup in the same memory as a tied LM
// head). Bug (CHECK): an id outside [0, V). n = 0 does nothing.
void embedding(Stream& stream, const PackedMatrix& table, const int32_t* ids, int64_t n, float* out);

// Scratch of `matmul` at most, for capacity planning: a constant a thread, whatever t and k.
int64_t matmul_workspace_bytes(int threads, int64_t t_max, int64_t k_max);

}  // namespace lariat
