#include "ops/cpu/sample_kernel.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/sample_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

LogitScan scan_all(const float* x, size_t n) {
  const F32Tag d;
  const auto limit = hn::Set(d, std::numeric_limits<float>::max());
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto good = hn::Eq(best, best);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    good = hn::And(good, hn::Le(v, limit));  // false for NaN too
    best = hn::Max(best, v);
  }
  LogitScan scan{hn::GetLane(hn::MaxOfLanes(d, best)), hn::AllTrue(d, good)};
  for (; i < n; ++i) {
    scan.finite = scan.finite && x[i] <= std::numeric_limits<float>::max();
    scan.best = std::max(scan.best, x[i]);
  }
  return scan;
}

// Adds a vector of floats to a sum in double.
HWY_INLINE double sum_wide(F32Vec v) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, F32Tag(), lanes);
  double sum = 0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

double exp_all(const float* x, size_t n, float best, float factor, float* out) {
  const F32Tag d;
  const auto shift = hn::Set(d, best);
  const auto scale = hn::Set(d, factor);
  // f32 sums stay short (16 terms a lane), then they are added in double.
  constexpr size_t kTerms = 16;
  double sum = 0;
  size_t i = 0;
  while (i + kLanes <= n) {
    auto part = hn::Zero(d);
    for (size_t k = 0; k < kTerms && i + kLanes <= n; ++k, i += kLanes) {
      const auto w = exp_f32(hn::Mul(hn::Sub(hn::LoadU(d, x + i), shift), scale));
      if (out) hn::StoreU(w, d, out + i);
      part = hn::Add(part, w);
    }
    sum += sum_wide(part);
  }
  if (i < n) {
    // Lanes beyond the end hold exp(-best * factor): not added.
    const auto w = exp_f32(hn::Mul(hn::Sub(load_tail(x + i, n - i), shift), scale));
    HWY_ALIGN float lanes[kLanes];
    hn::Store(w, d, lanes);
    for (size_t k = 0; i < n; ++k, ++i) {
      if (out) out[i] = lanes[k];
      sum += static_cast<double>(lanes[k]);
    }
  }
  return sum;
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {

HWY_EXPORT(scan_all);
HWY_EXPORT(exp_all);

LogitScan scan_logits(std::span<const float> logits) {
  return HWY_DYNAMIC_DISPATCH(scan_all)(logits.data(), logits.size());
}

double exp_weights(std::span<const float> logits, float best, float factor, float* out) {
  return HWY_DYNAMIC_DISPATCH(exp_all)(logits.data(), logits.size(), best, factor, out);
}

}  // namespace lariat::cpu
#endif
