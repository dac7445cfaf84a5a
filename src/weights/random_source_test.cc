#include "weights/random_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace lariat {
namespace {

const std::vector<TensorRequirement> kTensors = {
    {.name = "model.layers.0.mlp.up_proj.weight", .shape = {300, 257}},
    {.name = "model.layers.1.mlp.up_proj.weight", .shape = {300, 257}},
    {.name = "model.norm.weight", .shape = {2048}},
    {.name = "x.bias", .shape = {2048}}};

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments moments(const ConstView& v) {
  const auto n = static_cast<double>(v.shape.elements());
  Moments m;
  double squares = 0;
  for (int64_t i = 0; i < v.shape.elements(); ++i) {
    const double x = static_cast<double>(static_cast<const float*>(v.data)[i]);
    m.mean += x / n;
    squares += x * x / n;
    m.largest = std::max(m.largest, std::abs(x));
  }
  m.deviation = std::sqrt(squares - m.mean * m.mean);
  return m;
}

TEST(RandomSource, SensibleScales) {
  const auto source = random_source(kTensors, {.seed = 1, .dtype = DType::kF32});
  const Moments w = moments(*source->find(kTensors[0].name));
  const double expected = 1 / std::sqrt(257.0);
  EXPECT_NEAR(w.mean, 0, 0.05 * expected);
  EXPECT_NEAR(w.deviation, expected, 0.02 * expected);
  EXPECT_GT(w.largest, 2.8 * expected);  // it has tails
  const Moments norm = moments(*source->find("model.norm.weight"));
  EXPECT_NEAR(norm.mean, 1, 0.005);
  EXPECT_NEAR(norm.deviation, 0.02, 0.003);
  EXPECT_NEAR(moments(*source->find("x.bias")).deviation, 0.02, 0.003);
}

TEST(RandomSource, AFunctionOfSeedAndName) {
  const auto a = random_source(kTensors, {.seed = 1});
  const auto b = random_source(kTensors, {.seed = 1});
  const auto c = random_source(kTensors, {.seed = 2});
  const auto bytes = [](const TensorSource& s, const std::string& name) {
    const auto v = s.find(name);
    return std::string(static_cast<const char*>(v->data), static_cast<size_t>(v->bytes()));
  };
  (void)b->find(kTensors[2].name);  // the order of asking does not matter
  const std::string first = bytes(*a, kTensors[0].name);
  EXPECT_EQ(first, bytes(*b, kTensors[0].name));
  EXPECT_NE(first, bytes(*c, kTensors[0].name));
  EXPECT_NE(first, bytes(*a, kTensors[1].name));
  a->release(kTensors[0].name);
  EXPECT_EQ(first, bytes(*a, kTensors[0].name));
}

TEST(RandomSource, TypesRoundTheSameValues) {
  const auto f32 = random_source(kTensors, {.seed = 3, .dtype = DType::kF32});
  const auto bf16 = random_source(kTensors, {.seed = 3, .dtype = DType::kBF16});
  const auto f16 = random_source(kTensors, {.seed = 3, .dtype = DType::kF16});
  const std::string name = kTensors[0].name;
  const auto* x = static_cast<const float*>(f32->find(name)->data);
  const auto* y = static_cast<const Bf16*>(bf16->find(name)->data);
  const auto* z = static_cast<const F16*>(f16->find(name)->data);
  for (int i = 0; i < 257; ++i) {
    EXPECT_EQ(y[i], f32_to_bf16(x[i]));
    EXPECT_EQ(z[i], f32_to_f16(x[i]));
  }
}

TEST(RandomSource, MeetsItsRequirements) {
  const auto source = random_source(kTensors, {});
  std::string note;
  EXPECT_TRUE(check_requirements(*source, kTensors, &note).ok());
  EXPECT_EQ(note, "");
  EXPECT_FALSE(source->find("absent"));
}

}  // namespace
}  // namespace lariat
