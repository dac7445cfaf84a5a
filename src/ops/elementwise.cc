// Validation of the row-wise ops and their split over threads, by whole rows.
#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/cpu/elementwise_kernels.h"

namespace lariat {
namespace {

// Floats that one task handles at least: below this, waking a thread costs more than the work.
constexpr int64_t kTaskFloats = 16 * 1024;

// Runs fn(begin, end) over [0, rows), each row being `row_floats` of work.
template <typename Fn>
void for_row_blocks(Stream& stream, int64_t rows, int64_t row_floats, Fn fn) {
  const int64_t block = std::max(int64_t{1}, kTaskFloats / std::max(int64_t{1}, row_floats));
  if (stream.threads() == 1 || rows <= block) {
    if (rows > 0) fn(int64_t{0}, rows);
    return;
  }
  stream.pool().parallel_for((rows + block - 1) / block,
                             [&](int64_t i, int) { fn(i * block, std::min(rows, (i + 1) * block)); });
}

}  // namespace

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  LARIAT_CHECK(args.rows >= 0 && args.d > 0, "[{}, {}]", args.rows, args.d);
  LARIAT_CHECK(args.rows <= 1 || (args.x_stride >= args.d && args.out_stride >= args.d),
               "strides {} and {} for rows of {}", args.x_stride, args.out_stride, args.d);
  for_row_blocks(stream, args.rows, args.d,
                 [&](int64_t begin, int64_t end) { cpu::rms_norm_rows(args, begin, end); });
}

void rope(Stream& stream, const RopeArgs& args) {
  const int64_t width = int64_t{args.heads} * args.dim;
  LARIAT_CHECK(args.rows >= 0 && args.heads > 0 && args.dim > 0 && args.dim % 2 == 0, "[{}, {}, {}]",
               args.rows, args.heads, args.dim);
  LARIAT_CHECK(args.rows <= 1 || args.x_stride >= width, "stride {} for rows of {}", args.x_stride, width);
  for_row_blocks(stream, args.rows, width,
                 [&](int64_t begin, int64_t end) { cpu::rope_rows(args, begin, end); });
}

void rope_angles(Stream& stream, const int32_t* positions, int64_t rows, const float* inv_freq, int half_dim,
                 float attention_factor, float* cos, float* sin) {
  LARIAT_CHECK(rows >= 0 && half_dim > 0, "[{}, {}]", rows, half_dim);
  constexpr int64_t kCost = 32;  // a sine and a cosine, in floats of ordinary work
  for_row_blocks(stream, rows, kCost * half_dim, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int i = 0; i < half_dim; ++i) {
        const double angle = static_cast<double>(positions[r]) * static_cast<double>(inv_freq[i]);
        const double factor = attention_factor;
        cos[r * half_dim + i] = static_cast<float>(std::cos(angle) * factor);
        sin[r * half_dim + i] = static_cast<float>(std::sin(angle) * factor);
      }
    }
  });
}

void silu_mul(Stream& stream, const SiluMulArgs& args) {
  LARIAT_CHECK(args.rows >= 0 && args.d > 0, "[{}, {}]", args.rows, args.d);
  LARIAT_CHECK(args.rows <= 1 || (args.in_stride >= args.d && args.out_stride >= args.d),
               "strides {} and {} for rows of {}", args.in_stride, args.out_stride, args.d);
  constexpr int64_t kCost = 4;  // exp and division
  for_row_blocks(stream, args.rows, kCost * args.d,
                 [&](int64_t begin, int64_t end) { cpu::silu_mul_rows(args, begin, end); });
}

void add_inplace(Stream& stream, float* a, const float* b, int64_t n) {
  LARIAT_CHECK(n >= 0, "n = {}", n);
  const int64_t block = kTaskFloats;
  for_row_blocks(stream, (n + block - 1) / block, block, [&](int64_t begin, int64_t end) {
    cpu::add_range(a + begin * block, b + begin * block, std::min(n, end * block) - begin * block);
  });
}

}  // namespace lariat
