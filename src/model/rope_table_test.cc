#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lariat {
namespace {

void expect_relative(float value, double expected, double tolerance = 1e-6) {
  EXPECT_NEAR(static_cast<double>(value), expected, tolerance * std::abs(expected));
}

// C15.
TEST(RopeTable, Llama3) {
  RopeConfig rope{.kind = RopeKind::kLlama3, .theta = 500000, .factor = 8, .original_max_position = 8192};
  const RopeTable plain128 = make_rope_table({.theta = 500000}, 128);
  const RopeTable a = make_rope_table(rope, 128);
  ASSERT_EQ(a.inv_freq.size(), 64u);
  for (size_t i = 0; i <= 28; ++i) EXPECT_EQ(a.inv_freq[i], plain128.inv_freq[i]) << i;
  for (size_t i = 35; i < 64; ++i) EXPECT_EQ(a.inv_freq[i], plain128.inv_freq[i] / 8) << i;
  const std::pair<size_t, double> expected_a[] = {
      {28, 3.211445995e-3}, {29, 2.166570764e-3}, {30, 1.371893568e-3},
      {31, 8.567514129e-4}, {32, 5.248461610e-4}, {33, 3.126937504e-4},
      {34, 1.785078128e-4}, {35, 9.556212354e-5}, {63, 3.068925989e-7}};
  for (const auto& [i, f] : expected_a) expect_relative(a.inv_freq[i], f);

  rope.factor = 32;
  const RopeTable b = make_rope_table(rope, 64);
  const RopeTable plain64 = make_rope_table({.theta = 500000}, 64);
  for (size_t i = 0; i <= 14; ++i) EXPECT_EQ(b.inv_freq[i], plain64.inv_freq[i]) << i;
  for (size_t i = 18; i < 32; ++i) EXPECT_EQ(b.inv_freq[i], plain64.inv_freq[i] / 32) << i;
  const std::pair<size_t, double> expected_b[] = {{14, 3.211445995e-3}, {15, 1.290547928e-3},
                                                  {16, 4.295567966e-4}, {17, 9.708287803e-5},
                                                  {18, 1.946163818e-5}, {31, 9.418306725e-8}};
  for (const auto& [i, f] : expected_b) expect_relative(b.inv_freq[i], f);
  EXPECT_EQ(b.attention_factor, 1.0f);
}

// C17's table: DeepSeek's yarn, rotary dim 64.
TEST(RopeTable, Yarn) {
  RopeConfig rope{.kind = RopeKind::kYarn,
                  .factor = 40,
                  .original_max_position = 4096,
                  .mscale = 1.0,
                  .mscale_all_dim = 1.0};
  const RopeTable t = make_rope_table(rope, 64);
  const std::pair<size_t, double> expected[] = {{10, 5.623413252e-2}, {11, 3.900692657e-2},
                                                {16, 5.5e-3},         {22, 1.778279410e-4},
                                                {23, 3.333803580e-5}, {31, 3.333803580e-6}};
  for (const auto& [i, f] : expected) expect_relative(t.inv_freq[i], f);
  EXPECT_EQ(t.attention_factor, 1.0f);
}

TEST(RopeTable, YarnAttentionFactor) {
  RopeConfig rope{.kind = RopeKind::kYarn, .factor = 40, .original_max_position = 4096};
  expect_relative(make_rope_table(rope, 64).attention_factor, 1.3688879454113936);  // 0.1 ln 40 + 1
  rope.mscale = 1.0;  // alone it counts for nothing
  expect_relative(make_rope_table(rope, 64).attention_factor, 1.3688879454113936);
  rope.mscale_all_dim = 0.707;  // 1.36888795 / (0.0707 ln 40 + 1)
  expect_relative(make_rope_table(rope, 64).attention_factor, 1.3688879454113936 / 1.2608037774058552);
  rope.attention_factor = 2.5;
  EXPECT_EQ(make_rope_table(rope, 64).attention_factor, 2.5f);
  EXPECT_EQ(make_rope_table({.kind = RopeKind::kYarn, .original_max_position = 64}, 64).attention_factor,
            1.0f);
}

TEST(RopeTable, YarnTruncate) {
  // Bounds of C17's case before rounding: 10.47 and 22.51 (dim ln(4096 / 2 pi beta) / 2 ln 10000).
  RopeConfig rope{.kind = RopeKind::kYarn, .factor = 40, .original_max_position = 4096, .truncate = false};
  const RopeTable exact = make_rope_table(rope, 64);
  rope.truncate = true;
  const RopeTable rounded = make_rope_table(rope, 64);
  EXPECT_EQ(exact.inv_freq[10], rounded.inv_freq[10]);  // below both bounds
  EXPECT_EQ(exact.inv_freq[23], rounded.inv_freq[23]);  // above both
  const double low = 64 * std::log(4096 / (32 * 2 * M_PI)) / (2 * std::log(1e4));
  const double high = 64 * std::log(4096 / (2 * M_PI)) / (2 * std::log(1e4));
  EXPECT_NEAR(low, 10.47, 0.01);
  EXPECT_NEAR(high, 22.51, 0.01);
  const double f = std::pow(1e4, -16.0 / 32), ramp = (16 - low) / (high - low);
  expect_relative(exact.inv_freq[16], f / 40 * ramp + f * (1 - ramp));
  EXPECT_NE(exact.inv_freq[16], rounded.inv_freq[16]);
}

TEST(RopeTable, DefaultAndLinear) {
  const RopeTable t = make_rope_table({}, 128);
  EXPECT_EQ(t.inv_freq[0], 1.0f);
  expect_relative(t.inv_freq[32], 0.01);
  const RopeTable linear = make_rope_table({.kind = RopeKind::kLinear, .factor = 4}, 128);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(linear.inv_freq[i], t.inv_freq[i] / 4);
}

// C18: the named values, then every pair against a reference of extended precision.
TEST(RopeTable, LongPositions) {
  const RopeTable t = make_rope_table({.theta = 500000}, 128);
  std::vector<float> cos(64), sin(64);
  const auto at = [&](int32_t pos) { rope_cos_sin(t, TokenPos(pos), cos, sin); };
  at(15962);
  EXPECT_NEAR(cos[0], -0.908015901, 1e-7);
  EXPECT_NEAR(sin[0], 0.418935703, 1e-7);
  at(131071);
  EXPECT_NEAR(cos[0], -0.817983499, 1e-7);
  EXPECT_NEAR(sin[0], -0.575241684, 1e-7);
  at(256);
  const float cos256 = cos[0];
  at(257);
  EXPECT_GT(std::abs(cos[0] - cos256), 0.1f);
  for (const int32_t pos : {0, 40, 257, 2000, 15962, 16000, 131071}) {
    at(pos);
    for (size_t i = 0; i < 64; ++i) {
      const long double angle = static_cast<long double>(pos) * static_cast<long double>(t.inv_freq[i]);
      EXPECT_NEAR(cos[i], static_cast<double>(cosl(angle)), 6.1e-8) << pos << " pair " << i;
      EXPECT_NEAR(sin[i], static_cast<double>(sinl(angle)), 6.1e-8) << pos << " pair " << i;
    }
  }
}

TEST(RopeTable, AttentionFactorScalesBoth) {
  const RopeTable t =
      make_rope_table({.kind = RopeKind::kYarn, .original_max_position = 64, .attention_factor = 2.0}, 16);
  std::vector<float> cos(8), sin(8);
  rope_cos_sin(t, TokenPos(0), cos, sin);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(cos[i], 2.0f);
    EXPECT_EQ(sin[i], 0.0f);
  }
}

// Extremes that parse_config lets through: finite everywhere.
TEST(RopeTable, ExtremeConfigsStayFinite) {
  for (const double theta : {1.00001, 1e15}) {
    for (const int64_t original : {int64_t{1}, int64_t{1} << 30}) {
      for (const auto kind : {RopeKind::kLlama3, RopeKind::kYarn, RopeKind::kLinear}) {
        const RopeConfig rope{.kind = kind,
                              .theta = theta,
                              .factor = 1e6,
                              .original_max_position = original,
                              .beta_fast = 1e6,
                              .beta_slow = 1e6};
        for (const float f : make_rope_table(rope, 2).inv_freq) EXPECT_TRUE(std::isfinite(f));
        for (const float f : make_rope_table(rope, 1024).inv_freq) EXPECT_TRUE(std::isfinite(f));
      }
    }
  }
}

}  // namespace
}  // namespace lariat
