// Register-blocked kernels of attention: scores of 64 keys, softmax weights, weighted sums of values.
#if defined(LARIAT_OPS_CPU_ATTENTION_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_OPS_CPU_ATTENTION_MICRO_INL_H_
#undef LARIAT_OPS_CPU_ATTENTION_MICRO_INL_H_
#else
#define LARIAT_OPS_CPU_ATTENTION_MICRO_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

// Six rows by kWide vectors of accumulators: 24 of 32 registers, or 12 of 16.
inline constexpr int kRows = 6;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
inline constexpr int kWide = 2;
#else
inline constexpr int kWide = 4;
#endif
inline constexpr int kN = static_cast<int>(kLanes);
inline constexpr int kTileVecs = kKeyTile / kN;

// 2^x for x <= 0 within 1.5 ulp; 2^0 = 1 and 2^-inf = 0 exactly, below 2^-126 it is 0, NaN stays NaN.
HWY_INLINE F32Vec exp2_neg(F32Vec x) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  // At -127 the exponent field becomes 0: the factor 0. A NaN stays: x86's maximum gives its second operand
  // then, ARM's the one that is a number.
  const auto floor = hn::Set(d, -127.0f);
#if HWY_ARCH_X86
  const auto clamped = hn::Max(floor, x);
#else
  const auto clamped = hn::IfThenElse(hn::Lt(x, floor), floor, x);
#endif
  // Adding 1.5 * 2^23 rounds to an integer n in the low bits; the 127 makes them the biased exponent.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::Add(clamped, magic);
  const auto f = hn::Sub(clamped, hn::Sub(shifted, magic));
  // (2^f - 1) / f on [-1/2, 1/2], interpolated at Chebyshev's nodes: 5e-9 before rounding.
  auto q = hn::Set(d, 0x1.4413896e1ad27p-13f);
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.5f0890162a90ap-10f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.3b2a53045179ap-7f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.c6af6cdbbdcc7p-5f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.ebfbe00e63baep-3f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.62e4302fc626ep-1f));
  const auto p = hn::MulAdd(q, f, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Brings an element's line to the second-level cache: the kernels ask for the next tile while they read this.
template <class T>
HWY_INLINE void fetch(const T* p) {
  __builtin_prefetch(p, 0, 2);
}

// s[r][v * kN + lane] = sum over d of q[r][d] * k[v][d][lane], one chain of multiply-adds per score, so a
// score's bits do not depend on R, NV or the stored type's width.
template <int R, int NV, bool kFetch, class T>
HWY_INLINE void qk_block(const float* HWY_RESTRICT q, int64_t q_stride, const T* const* k,
                         const T* const* next, int k_dim, float* HWY_RESTRICT s) {
  const F32Tag d;
  F32Vec acc[R][NV];
  const T* kp[NV];
  const T* np[NV];
  LARIAT_UNROLL
  for (int v = 0; v < NV; ++v) kp[v] = k[v], np[v] = kFetch ? next[v] : nullptr;
  LARIAT_UNROLL
  for (int r = 0; r < R; ++r) {
    LARIAT_UNROLL
    for (int v = 0; v < NV; ++v) acc[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < k_dim; ++i) {
    F32Vec kv[NV];
    LARIAT_UNROLL
    for (int v = 0; v < NV; ++v) kv[v] = load_widen(kp[v] + i * kKvBlock);
    // Two rows of a narrow type share a line.
    if (kFetch && (sizeof(T) == 4 || i % 2 == 0)) {
      LARIAT_UNROLL
      for (int v = 0; v < NV; v += kKvBlock / kN) fetch(np[v] + i * kKvBlock);
    }
    LARIAT_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto qi = hn::Set(d, q[r * q_stride + i]);
      LARIAT_UNROLL
      for (int v = 0; v < NV; ++v) acc[r][v] = hn::MulAdd(qi, kv[v], acc[r][v]);
    }
  }
  LARIAT_UNROLL
  for (int r = 0; r < R; ++r) {
    LARIAT_UNROLL
    for (int v = 0; v < NV; ++v) hn::StoreU(acc[r][v], d, s + r * kKeyTile + v * kN);
  }
}

// o[r][col..] = o[r][col..] * alpha[r] + sum over keys [k0, k1) of p[r][key] * v[key][col..].
template <int R, int NV, bool kFetch, class T>
HWY_INLINE void pv_block(const float* HWY_RESTRICT p, const T* const* v, const T* const* next, SlotRange keys,
                         int64_t col, const float* HWY_RESTRICT alpha, float* HWY_RESTRICT o,
                         int64_t o_stride) {
  const F32Tag d;
  F32Vec acc[R][NV];
  LARIAT_UNROLL
  for (int r = 0; r < R; ++r) {
    const auto a = hn::Set(d, alpha[r]);
    LARIAT_UNROLL
    for (int n = 0; n < NV; ++n) acc[r][n] = hn::Mul(a, hn::LoadU(d, o + r * o_stride + col + n * kN));
  }
  for (int64_t key = keys.lo; key < keys.hi; ++key) {
    const T* row = v[key] + col;
    F32Vec vv[NV];
    LARIAT_UNROLL
    for (int n = 0; n < NV; ++n) vv[n] = load_widen(row + n * kN);
    if constexpr (kFetch) {
      constexpr int kLine = static_cast<int>(64 / (sizeof(T) * kN));
      LARIAT_UNROLL
      for (int n = 0; n < NV; n += kLine) fetch(next[key] + col + n * kN);
    }
    LARIAT_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto w = hn::Set(d, p[r * kKeyTile + key]);
      LARIAT_UNROLL
      for (int n = 0; n < NV; ++n) acc[r][n] = hn::MulAdd(w, vv[n], acc[r][n]);
    }
  }
  LARIAT_UNROLL
  for (int r = 0; r < R; ++r) {
    LARIAT_UNROLL
    for (int n = 0; n < NV; ++n) hn::StoreU(acc[r][n], d, o + r * o_stride + col + n * kN);
  }
}

// Scores of the vectors that cover keys [lo, hi) of the tile, at least; others are left undefined. `next`:
// the following tile's K to fetch meanwhile, or null.
template <int R, class T>
HWY_NOINLINE void qk_rows(const float* q, int64_t q_stride, const T* const* k, const T* const* next,
                          int k_dim, SlotRange keys, float* s) {
  const int end = static_cast<int>((keys.hi + kN - 1) / kN);
  int v = static_cast<int>(keys.lo / kN) / kWide * kWide;
  for (; v < end; v += kWide) {
    const int first = HWY_MAX(v, static_cast<int>(keys.lo / kN));
    const int last = HWY_MIN(v + kWide, end);
    if (last - first <= kWide / 2) {
      for (int i = first; i < last; ++i)
        qk_block<R, 1, false, T>(q, q_stride, k + i, nullptr, k_dim, s + i * kN);
    } else if (next) {
      qk_block<R, kWide, true, T>(q, q_stride, k + v, next + v, k_dim, s + v * kN);
    } else {
      qk_block<R, kWide, false, T>(q, q_stride, k + v, nullptr, k_dim, s + v * kN);
    }
  }
}

template <int R, class T>
HWY_NOINLINE void pv_rows(const float* p, const T* const* v, const T* const* next, SlotRange keys, int v_vecs,
                          const float* alpha, float* o, int64_t o_stride) {
  int n = 0;
  for (; n + kWide <= v_vecs; n += kWide) {
    if (next) {
      pv_block<R, kWide, true, T>(p, v, next, keys, int64_t{n} * kN, alpha, o, o_stride);
    } else {
      pv_block<R, kWide, false, T>(p, v, nullptr, keys, int64_t{n} * kN, alpha, o, o_stride);
    }
  }
  for (; n < v_vecs; ++n) pv_block<R, 1, false, T>(p, v, nullptr, keys, int64_t{n} * kN, alpha, o, o_stride);
}

template <class T>
HWY_INLINE void qk(int rows, const float* q, int64_t q_stride, const T* const* k, const T* const* next,
                   int k_dim, SlotRange keys, float* s) {
  switch (rows) {
    case 1:
      return qk_rows<1, T>(q, q_stride, k, next, k_dim, keys, s);
    case 2:
      return qk_rows<2, T>(q, q_stride, k, next, k_dim, keys, s);
    case 3:
      return qk_rows<3, T>(q, q_stride, k, next, k_dim, keys, s);
    case 4:
      return qk_rows<4, T>(q, q_stride, k, next, k_dim, keys, s);
    case 5:
      return qk_rows<5, T>(q, q_stride, k, next, k_dim, keys, s);
    default:
      return qk_rows<6, T>(q, q_stride, k, next, k_dim, keys, s);
  }
}

template <class T>
HWY_INLINE void pv(int rows, const float* p, const T* const* v, const T* const* next, SlotRange keys,
                   int v_vecs, const float* alpha, float* o, int64_t o_stride) {
  switch (rows) {
    case 1:
      return pv_rows<1, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
    case 2:
      return pv_rows<2, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
    case 3:
      return pv_rows<3, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
    case 4:
      return pv_rows<4, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
    case 5:
      return pv_rows<5, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
    default:
      return pv_rows<6, T>(p, v, next, keys, v_vecs, alpha, o, o_stride);
  }
}

// Scores -> weights for one row of a tile. Keys outside `keys` get weight 0 without their score being used.
// m is the running maximum (in, out); sums [16] the running lanes of l. Returns the factor for the old acc.
HWY_INLINE float row_max(float* HWY_RESTRICT s, SlotRange keys) {
  const F32Tag d;
  const bool whole = keys.lo == 0 && keys.hi == kKeyTile;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = hidden;
  if (whole) {
    for (int v = 0; v < kTileVecs; ++v) top = hn::Max(top, hn::LoadU(d, s + v * kN));
  } else {
    const auto lo = hn::Set(d, static_cast<float>(keys.lo));
    const auto hi = hn::Set(d, static_cast<float>(keys.hi));
    for (int v = 0; v < kTileVecs; ++v) {
      const auto lane = hn::Iota(d, static_cast<float>(v * kN));
      const auto seen = hn::And(hn::Ge(lane, lo), hn::Lt(lane, hi));
      const auto masked = hn::IfThenElse(seen, hn::LoadU(d, s + v * kN), hidden);
      hn::StoreU(masked, d, s + v * kN);
      top = hn::Max(top, masked);
    }
  }
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// s = 2^(s - m), and sums = sums * alpha + the weights, lane by lane in one order.
HWY_INLINE void row_weights(float* HWY_RESTRICT s, float m, float alpha, float* HWY_RESTRICT sums) {
  const F32Tag d;
  const auto max = hn::Set(d, m);
  auto sum = hn::Mul(hn::LoadU(d, sums), hn::Set(d, alpha));
  for (int v = 0; v < kTileVecs; ++v) {
    const auto w = exp2_neg(hn::Sub(hn::LoadU(d, s + v * kN), max));
    hn::StoreU(w, d, s + v * kN);
    sum = hn::Add(sum, w);
  }
  hn::StoreU(sum, d, sums);
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
