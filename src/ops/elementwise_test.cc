// The row-wise ops on every compiled instruction set, against double precision; bits across batch and
// threads.
#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/target_test.h"
#include "ops/random_test.h"
#include "ops/ref/elementwise.h"

namespace lariat {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kDims[] = {1, 7, 16, 17, 31, 64, 100, 576, 2048};

class Elementwise : public TargetTest {};
LARIAT_FOR_EACH_TARGET(Elementwise);

std::vector<uint32_t> bits_of(const std::vector<float>& v) {
  std::vector<uint32_t> bits(v.size());
  for (size_t i = 0; i < v.size(); ++i) bits[i] = std::bit_cast<uint32_t>(v[i]);
  return bits;
}

// Rows of d random floats at stride d + 3, misaligned, NaN between them.
std::vector<float> strided_rows(int64_t rows, int64_t d, uint32_t seed, float scale = 1.0f) {
  std::vector<float> v(static_cast<size_t>(rows * (d + 3) + 1), kNan);
  const std::vector<float> values = random_floats(static_cast<size_t>(rows * d), seed, scale);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < d; ++i)
      v[static_cast<size_t>(1 + r * (d + 3) + i)] = values[static_cast<size_t>(r * d + i)];
  return v;
}

// Within `ulps` float roundings of the expected value; NaN (padding) must have stayed NaN.
void expect_close(const std::vector<float>& got, const std::vector<float>& want, float ulps) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_NEAR(got[i], want[i], ulps * 0x1p-23f * std::abs(want[i]) + 1e-37f) << i;
    }
  }
}

TEST_P(Elementwise, RmsNorm) {
  for (const int64_t d : kDims)
    for (const int64_t rows : {0, 1, 3, 70}) {
      const std::vector<float> x = strided_rows(rows, d, 1, 2.5f);
      const std::vector<float> weight = random_floats(static_cast<size_t>(d), 2);
      std::vector<float> want(x.size(), kNan);
      RmsNormArgs args{.x = x.data() + 1,
                       .x_stride = d + 3,
                       .weight = weight.data(),
                       .eps = 1e-5f,
                       .out = want.data() + 1,
                       .out_stride = d + 3,
                       .rows = rows,
                       .d = d};
      ref::rms_norm(args);
      std::vector<std::vector<float>> results;
      for (const int threads : {1, 2, 3}) {
        std::vector<float> got(x.size(), kNan);
        args.out = got.data() + 1;
        rms_norm(*Stream::cpu(threads), args);
        expect_close(got, want, 6);
        results.push_back(got);
      }
      EXPECT_EQ(bits_of(results[0]), bits_of(results[1]));
      EXPECT_EQ(bits_of(results[0]), bits_of(results[2]));
      // In place, one row at a time.
      std::vector<float> alone = x;
      for (int64_t r = 0; r < rows; ++r) {
        RmsNormArgs row = args;
        row.x = row.out = alone.data() + 1 + r * (d + 3);
        row.rows = 1;
        rms_norm(*Stream::cpu(1), row);
      }
      EXPECT_EQ(bits_of(alone), bits_of(results[0]));
    }
}

TEST_P(Elementwise, RmsNormOfZerosIsZero) {
  std::vector<float> x(40, 0.0f);
  const std::vector<float> weight = random_floats(40, 3);
  rms_norm(*Stream::cpu(1), {.x = x.data(),
                             .x_stride = 40,
                             .weight = weight.data(),
                             .eps = 1e-6f,
                             .out = x.data(),
                             .out_stride = 40,
                             .rows = 1,
                             .d = 40});
  for (const float v : x) EXPECT_EQ(v, 0.0f);
}

TEST_P(Elementwise, Rope) {
  for (const int dim : {2, 6, 32, 64, 80, 128})
    for (const int heads : {1, 3})
      for (const int64_t rows : {0, 1, 5, 200}) {
        const int64_t half = dim / 2;
        const int64_t d = int64_t{heads} * dim;
        const std::vector<float> x = strided_rows(rows, d, 4);
        std::vector<float> cos(static_cast<size_t>(rows * half)), sin(cos.size());
        const std::vector<float> angles = random_floats(cos.size(), 5, 3.0f);
        for (size_t i = 0; i < cos.size(); ++i) cos[i] = std::cos(angles[i]), sin[i] = std::sin(angles[i]);
        std::vector<float> want = x;
        RopeArgs args{.x = want.data() + 1,
                      .x_stride = d + 3,
                      .rows = rows,
                      .heads = heads,
                      .dim = dim,
                      .cos = cos.data(),
                      .sin = sin.data()};
        ref::rope(args);
        std::vector<float> one = x;
        args.x = one.data() + 1;
        rope(*Stream::cpu(1), args);
        std::vector<float> three = x;
        args.x = three.data() + 1;
        rope(*Stream::cpu(3), args);
        EXPECT_EQ(bits_of(one), bits_of(three));
        for (size_t i = 0; i < x.size(); ++i) {
          // A difference of two products: the error is relative to them, not to the difference.
          ASSERT_EQ(std::isnan(one[i]), std::isnan(want[i]));
          if (std::isnan(want[i])) continue;
          ASSERT_NEAR(one[i], want[i], 1e-6) << i;
        }
      }
}

TEST(RopeAngles, AreExactAtLargePositions) {
  const std::vector<float> inv_freq = {1.0f, 0.31622777f, 0.001f};
  const std::vector<int32_t> positions = {0, 1, 4095, 131071, 1 << 24, 2147483647};
  const float factor = 1.25f;
  std::vector<float> cos(18), sin(18);
  rope_angles(*Stream::cpu(2), positions.data(), 6, inv_freq.data(), 3, factor, cos.data(), sin.data());
  for (size_t r = 0; r < 6; ++r)
    for (size_t i = 0; i < 3; ++i) {
      const long double angle =
          static_cast<long double>(positions[r]) * static_cast<long double>(inv_freq[i]);
      EXPECT_NEAR(cos[r * 3 + i], static_cast<double>(1.25L * std::cos(angle)), 2e-7);
      EXPECT_NEAR(sin[r * 3 + i], static_cast<double>(1.25L * std::sin(angle)), 2e-7);
    }
  EXPECT_EQ(cos[0], factor);
  EXPECT_EQ(sin[0], 0.0f);
}

TEST_P(Elementwise, SiluMul) {
  for (const int64_t d : kDims)
    for (const int64_t rows : {0, 1, 70}) {
      const std::vector<float> gate = strided_rows(rows, d, 6, 8.0f);
      const std::vector<float> up = strided_rows(rows, d, 7);
      std::vector<float> want(gate.size(), kNan);
      SiluMulArgs args{.gate = gate.data() + 1,
                       .up = up.data() + 1,
                       .in_stride = d + 3,
                       .out = want.data() + 1,
                       .out_stride = d + 3,
                       .rows = rows,
                       .d = d};
      ref::silu_mul(args);
      std::vector<float> one(gate.size(), kNan);
      args.out = one.data() + 1;
      silu_mul(*Stream::cpu(1), args);
      expect_close(one, want, 5);
      std::vector<float> three = gate;  // in place
      args.gate = args.out = three.data() + 1;
      silu_mul(*Stream::cpu(3), args);
      EXPECT_EQ(bits_of(one), bits_of(three));
    }
}

TEST_P(Elementwise, SiluMulAtTheEnds) {
  const std::vector<float> gate = {-1000.0f, -90.0f, 0.0f, 90.0f, 1000.0f, kNan};
  const std::vector<float> up = {2.0f, 2.0f, 2.0f, 2.0f, 2.0f, 2.0f};
  std::vector<float> out(6);
  silu_mul(*Stream::cpu(1), {.gate = gate.data(),
                             .up = up.data(),
                             .in_stride = 6,
                             .out = out.data(),
                             .out_stride = 6,
                             .rows = 1,
                             .d = 6});
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[1], 0.0f, 1e-35f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 180.0f);
  EXPECT_EQ(out[4], 2000.0f);
  EXPECT_TRUE(std::isnan(out[5]));
}

TEST_P(Elementwise, Add) {
  for (const int64_t n : {0, 1, 15, 16, 17, 16384, 50001}) {
    const std::vector<float> a = random_floats(static_cast<size_t>(n) + 1, 8);
    const std::vector<float> b = random_floats(static_cast<size_t>(n) + 1, 9);
    for (const int threads : {1, 2}) {
      std::vector<float> got = a;
      add_inplace(*Stream::cpu(threads), got.data() + 1, b.data() + 1, n);
      EXPECT_EQ(got[0], a[0]);
      for (size_t i = 1; i < got.size(); ++i) ASSERT_EQ(got[i], a[i] + b[i]);
    }
  }
}

// Norms and rotations use no fused operations, so every instruction set gives the same bits.
TEST(ElementwiseAcrossTargets, NormBitsAreTheSame) {
  const std::vector<float> x = random_floats(5 * 576, 10);
  const std::vector<float> weight = random_floats(576, 11);
  std::vector<std::vector<uint32_t>> results;
  for (const int64_t target : compiled_targets()) {
    hwy::SetSupportedTargetsForTest(0);
    if ((hwy::SupportedTargets() & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::vector<float> out(x.size());
    rms_norm(*Stream::cpu(1), {.x = x.data(),
                               .x_stride = 576,
                               .weight = weight.data(),
                               .eps = 1e-5f,
                               .out = out.data(),
                               .out_stride = 576,
                               .rows = 5,
                               .d = 576});
    results.push_back(bits_of(out));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
}

}  // namespace
}  // namespace lariat
