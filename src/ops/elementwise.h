// The small row-wise ops of a decoder: norms, rotary embedding, gated activations, residuals. f32 in, f32
// out. A row's bits depend on that row alone; norms, rotations and sums are also the same on every
// instruction set. Rows = 0 does nothing; nothing needs alignment; synchronous on the stream's threads.
#pragma once

#include <cstdint>

#include "tensor/stream.h"

namespace lariat {

// out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight, rows of d floats at a stride; out may be x.
struct RmsNormArgs {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [d]
  float eps = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t d = 0;
};
void rms_norm(Stream& stream, const RmsNormArgs& args);

// Rotates in place the heads of x [rows, heads, dim] (row stride in floats) by cos/sin [rows, dim / 2] of
// each row's position; halves layout (Hugging Face's rotate_half): pair i is (x[i], x[i + dim/2]).
struct RopeArgs {
  float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  int heads = 0;
  int dim = 0;
  const float* cos = nullptr;  // attention factor already multiplied in
  const float* sin = nullptr;
};
void rope(Stream& stream, const RopeArgs& args);

// cos/sin [rows, dim/2] of positions, angle = pos * inv_freq[i] formed and reduced in double, times
// attention_factor.
void rope_angles(Stream& stream, const int32_t* positions, int64_t rows, const float* inv_freq, int half_dim,
                 float attention_factor, float* cos, float* sin);

// out[t, i] = silu(gate[t, i]) * up[t, i]; silu(x) = x / (1 + exp(-x)). out may be gate. Rows at strides.
struct SiluMulArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  int64_t in_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t d = 0;
};
void silu_mul(Stream& stream, const SiluMulArgs& args);

// a += b, n floats.
void add_inplace(Stream& stream, float* a, const float* b, int64_t n);

}  // namespace lariat
