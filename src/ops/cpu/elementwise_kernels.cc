// Row-wise kernels. Products and sums are rounded separately, so that every instruction set gives the same
// bits.
#include "ops/cpu/elementwise_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/elementwise_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {
namespace {

inline constexpr int64_t kStep = static_cast<int64_t>(kLanes);

// Sum of squares by 32 strided partial sums, folded in halves: the same tree at every vector width.
float sum_of_squares(const float* HWY_RESTRICT x, int64_t d) {
  constexpr int64_t kSums = 32;
  constexpr size_t kVecs = static_cast<size_t>(kSums) / kLanes;
  const F32Tag tag;
  F32Vec sums[kVecs];
  LARIAT_UNROLL
  for (F32Vec& sum : sums) sum = hn::Zero(tag);
  int64_t i = 0;
  for (; i + kSums <= d; i += kSums) {
    LARIAT_UNROLL
    for (size_t j = 0; j < kVecs; ++j) {
      const auto v = hn::LoadU(tag, x + i + j * kLanes);
      sums[j] = hn::Add(sums[j], hn::Mul(v, v));
    }
  }
  HWY_ALIGN float partial[kSums];
  LARIAT_UNROLL
  for (size_t j = 0; j < kVecs; ++j) hn::Store(sums[j], tag, partial + j * kLanes);
  for (int64_t j = 0; i + j < d; ++j) {
    const float square = x[i + j] * x[i + j];
    partial[j] += square;
  }
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t j = 0; j < width; ++j) partial[j] += partial[j + width];
  return partial[0];
}

void rms_norm_rows_target(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const F32Tag tag;
  for (int64_t r = begin; r < end; ++r) {
    const float* x = args.x + r * args.x_stride;
    float* out = args.out + r * args.out_stride;
    const float mean = sum_of_squares(x, args.d) / static_cast<float>(args.d);
    const float inverse = 1.0f / std::sqrt(mean + args.eps);
    const auto scale = hn::Set(tag, inverse);
    int64_t i = 0;
    for (; i + kStep <= args.d; i += kStep) {
      const auto v = hn::Mul(hn::LoadU(tag, x + i), scale);
      hn::StoreU(hn::Mul(v, hn::LoadU(tag, args.weight + i)), tag, out + i);
    }
    for (; i < args.d; ++i) out[i] = x[i] * inverse * args.weight[i];
  }
}

void rotate_head(float* HWY_RESTRICT lo, float* HWY_RESTRICT hi, const float* HWY_RESTRICT cos,
                 const float* HWY_RESTRICT sin, int64_t half) {
  const F32Tag tag;
  int64_t i = 0;
  for (; i + kStep <= half; i += kStep) {
    const auto a = hn::LoadU(tag, lo + i);
    const auto b = hn::LoadU(tag, hi + i);
    const auto c = hn::LoadU(tag, cos + i);
    const auto s = hn::LoadU(tag, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), tag, lo + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), tag, hi + i);
  }
  for (; i < half; ++i) {
    const float a = lo[i];
    const float b = hi[i];
    lo[i] = a * cos[i] - b * sin[i];
    hi[i] = b * cos[i] + a * sin[i];
  }
}

void rope_rows_target(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.dim / 2;
  for (int64_t r = begin; r < end; ++r) {
    for (int h = 0; h < args.heads; ++h) {
      float* head = args.x + r * args.x_stride + int64_t{h} * args.dim;
      rotate_head(head, head + half, args.cos + r * half, args.sin + r * half, half);
    }
  }
}

HWY_INLINE F32Vec silu_mul(F32Vec gate, F32Vec up) {
  const auto one = hn::Set(F32Tag(), 1.0f);
  return hn::Mul(hn::Div(gate, hn::Add(one, exp_f32(hn::Neg(gate)))), up);
}

void silu_mul_rows_target(const SiluMulArgs& args, int64_t begin, int64_t end) {
  const F32Tag tag;
  for (int64_t r = begin; r < end; ++r) {
    const float* gate = args.gate + r * args.in_stride;
    const float* up = args.up + r * args.in_stride;
    float* out = args.out + r * args.out_stride;
    int64_t i = 0;
    for (; i + kStep <= args.d; i += kStep)
      hn::StoreU(silu_mul(hn::LoadU(tag, gate + i), hn::LoadU(tag, up + i)), tag, out + i);
    if (i < args.d) {
      const auto n = static_cast<size_t>(args.d - i);
      store_tail(silu_mul(load_tail(gate + i, n), load_tail(up + i, n)), out + i, n);
    }
  }
}

void add_range_target(float* a, const float* b, int64_t n) {
  const F32Tag tag;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep)
    hn::StoreU(hn::Add(hn::LoadU(tag, a + i), hn::LoadU(tag, b + i)), tag, a + i);
  for (; i < n; ++i) a[i] += b[i];
}

}  // namespace
}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {
HWY_EXPORT(rms_norm_rows_target);
HWY_EXPORT(rope_rows_target);
HWY_EXPORT(silu_mul_rows_target);
HWY_EXPORT(add_range_target);

void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rms_norm_rows_target)(args, begin, end);
}
void rope_rows(const RopeArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rope_rows_target)(args, begin, end);
}
void silu_mul_rows(const SiluMulArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(silu_mul_rows_target)(args, begin, end);
}
void add_range(float* a, const float* b, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_range_target)(a, b, n);
}
}  // namespace lariat::cpu
#endif
