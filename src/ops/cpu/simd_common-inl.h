// What every Highway kernel shares: widening loads, partial vectors, exp. Included once per target.
#if defined(LARIAT_OPS_CPU_SIMD_COMMON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_OPS_CPU_SIMD_COMMON_INL_H_
#undef LARIAT_OPS_CPU_SIMD_COMMON_INL_H_
#else
#define LARIAT_OPS_CPU_SIMD_COMMON_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

// Unrolls the loop that follows completely, so that arrays of vectors live in registers.
#ifndef LARIAT_UNROLL
#ifdef __clang__
#define LARIAT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LARIAT_UNROLL _Pragma("GCC unroll 64")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: 16 (AVX-512), 8 (AVX2), 4 (SSE4, NEON).
using F32Tag = hn::CappedTag<float, 16>;
using F32Vec = hn::Vec<F32Tag>;
inline constexpr size_t kLanes = HWY_MIN(HWY_LANES(float), size_t{16});

// Stored elements are told apart by type: uint16_t alone could be either half format.
struct Bf16Bits {
  uint16_t bits;
};
struct F16Bits {
  uint16_t bits;
};

// One vector of f32 from stored elements; exact. Unaligned.
HWY_INLINE F32Vec load_widen(const float* HWY_RESTRICT p) {
  return hn::LoadU(F32Tag(), p);
}
HWY_INLINE F32Vec load_widen(const Bf16Bits* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, F32Tag> du16;
  const hn::Rebind<uint32_t, F32Tag> du32;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(F32Tag(), hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}
#if HWY_TARGET == HWY_SSE4
// Without F16C. (Highway's own emulation turns infinities and NaN into finite numbers.)
HWY_INLINE F32Vec load_widen(const F16Bits* HWY_RESTRICT p) {
  const F32Tag d;
  const hn::Rebind<uint16_t, F32Tag> du16;
  const hn::Rebind<uint32_t, F32Tag> du32;
  const auto bits = hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du32, 0x7fff)));
  // As f32 bits it is 2^-112 of the value, subnormals included; an all-ones exponent stays one.
  const auto scaled = hn::BitCast(du32, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto special = hn::Gt(magnitude, hn::Set(du32, (0x7c00u << 13) - 1));
  const auto widened = hn::Or(scaled, hn::IfThenElseZero(special, hn::Set(du32, 0x7f800000u)));
  return hn::BitCast(d, hn::Or(widened, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du32, 0x8000)))));
}
#else
HWY_INLINE F32Vec load_widen(const F16Bits* HWY_RESTRICT p) {
  const hn::Rebind<hwy::float16_t, F32Tag> df16;
  return hn::PromoteTo(F32Tag(), hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(p)));
}
#endif

// The first n < kLanes elements; the other lanes are zero and their memory is not touched.
HWY_INLINE F32Vec load_tail(const float* p, size_t n) {
  HWY_ALIGN float buf[kLanes] = {};
  std::memcpy(buf, p, n * sizeof(float));
  return hn::Load(F32Tag(), buf);
}
HWY_INLINE void store_tail(F32Vec v, float* p, size_t n) {
  HWY_ALIGN float buf[kLanes];
  hn::Store(v, F32Tag(), buf);
  std::memcpy(p, buf, n * sizeof(float));
}

// e^x within 1 ulp. exp(-inf) = 0, overflow gives +inf, results below the least subnormal 0, NaN stays NaN.
// Each lane depends on its own input alone, and a call inlined anywhere gives the same bits.
HWY_INLINE F32Vec exp_f32(F32Vec x) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  // Beyond these the result is 0 or +inf already; inside, 2^n fits two normal factors.
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  // ln 2 in two parts, the first of 9 bits: n times it is exact, with and without FMA.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Taylor to r^7 on |r| <= ln(2)/2; the terms added to 1/720 and 1/24 are r^8/8! economised by Chebyshev's
  // T8, which leaves a remainder below 0.01 ulp.
  auto q = hn::Set(d, 1.0f / 5040);
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 720 + 5.958e-6f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 120));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 24 - 4.473e-7f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f / 6));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5f));
  const auto p = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto ni = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(ni);
  const auto bias = hn::Set(di, 127);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(ni, half), bias)));
  const auto result = hn::Mul(hn::Mul(p, scale1), scale2);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
