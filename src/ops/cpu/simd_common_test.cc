// The shared vector helpers on every compiled instruction set, against double precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "ops/cpu/target_test.h"
#include "ops/isa.h"
#include "tensor/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/simd_common_test.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/simd_common-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

void exp_all(const float* x, float* out, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(exp_f32(hn::LoadU(F32Tag(), x + i)), F32Tag(), out + i);
  if (i < n) store_tail(exp_f32(load_tail(x + i, n - i)), out + i, n - i);
}

template <typename Bits>
void widen_all(const Bits* in, float* out, size_t n) {
  for (size_t i = 0; i + kLanes <= n; i += kLanes) hn::StoreU(load_widen(in + i), F32Tag(), out + i);
}
void widen_bf16(const uint16_t* in, float* out, size_t n) {
  widen_all(reinterpret_cast<const Bf16Bits*>(in), out, n);
}
void widen_f16(const uint16_t* in, float* out, size_t n) {
  widen_all(reinterpret_cast<const F16Bits*>(in), out, n);
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {
namespace {

HWY_EXPORT(exp_all);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);

class SimdCommon : public TargetTest {};
LARIAT_FOR_EACH_TARGET(SimdCommon);

std::vector<float> exp_of(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  HWY_DYNAMIC_DISPATCH(exp_all)(x.data(), out.data(), x.size());
  return out;
}

// Distance in units of the last place of the exact value, subnormals included.
double ulps(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded)) return std::isinf(got) ? 0 : 1e9;
  const double ulp = std::max(std::ldexp(1.0, std::ilogb(exact) - 23), std::ldexp(1.0, -149));
  return std::abs(static_cast<double>(got) - exact) / ulp;
}

TEST_P(SimdCommon, ExpIsWithinOneUlp) {
  std::vector<float> x;
  for (double v = -105; v < 89.5; v += 0.00037) x.push_back(static_cast<float>(v));
  for (int e = -40; e < 0; ++e) {
    x.push_back(std::ldexp(1.37f, e));
    x.push_back(-std::ldexp(1.37f, e));
  }
  const std::vector<float> got = exp_of(x);
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = ulps(got[i], std::exp(static_cast<double>(x[i])));
    if (u > worst) worst = u, at = x[i];
  }
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_LE(worst, 1.0) << "at " << at;
}

TEST_P(SimdCommon, ExpOfSpecials) {
  const float inf = std::numeric_limits<float>::infinity();
  const float big = std::numeric_limits<float>::max();
  const std::vector<float> got =
      exp_of({-inf, inf, 0.0f, -0.0f, -big, big, std::nanf(""), -std::nanf(""), -103.9f, 88.73f, -104.5f});
  EXPECT_EQ(got[0], 0.0f);
  EXPECT_EQ(got[1], inf);
  EXPECT_EQ(got[2], 1.0f);
  EXPECT_EQ(got[3], 1.0f);
  EXPECT_EQ(got[4], 0.0f);
  EXPECT_EQ(got[5], inf);
  EXPECT_TRUE(std::isnan(got[6]));
  EXPECT_TRUE(std::isnan(got[7]));
  EXPECT_EQ(got[8], std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(got[9], inf);
  EXPECT_EQ(got[10], 0.0f);
}

TEST_P(SimdCommon, ExpDoesNotDependOnTheLane) {
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<float> x(shift, -3.25f);
    for (int i = 0; i < 37; ++i) x.push_back(static_cast<float>(i) * -0.731f);
    const std::vector<float> got = exp_of(x);
    for (size_t i = 0; i < 37; ++i)
      EXPECT_EQ(std::bit_cast<uint32_t>(got[shift + i]), std::bit_cast<uint32_t>(exp_of({x[shift + i]})[0]));
  }
}

TEST_P(SimdCommon, WideningIsExactForEveryHalf) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> bf16(bits.size()), f16(bits.size());
  HWY_DYNAMIC_DISPATCH(widen_bf16)(bits.data(), bf16.data(), bits.size());
  HWY_DYNAMIC_DISPATCH(widen_f16)(bits.data(), f16.data(), bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(bf16[i]), std::bit_cast<uint32_t>(bf16_to_f32(bits[i])));
    const float want = f16_to_f32(bits[i]);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(f16[i])) << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(f16[i]), std::bit_cast<uint32_t>(want)) << i;
    }
  }
}

TEST(Isa, IsNamed) {
  const std::string_view name = isa_name();
  EXPECT_TRUE(name == "avx512" || name == "avx2" || name == "sse4" || name == "neon") << name;
}

}  // namespace
}  // namespace lariat::cpu
#endif
