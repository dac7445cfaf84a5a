#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace lariat {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Long wavelengths are slowed by `factor`, short ones kept, those between blended.
double llama3_frequency(const RopeConfig& rope, double f) {
  const double wavelength = kTwoPi / f;
  const auto original = static_cast<double>(rope.original_max_position);
  if (wavelength < original / rope.high_freq_factor) return f;
  if (wavelength > original / rope.low_freq_factor) return f / rope.factor;
  const double smooth =
      (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * f / rope.factor + smooth * f;
}

// YaRN's ramp from kept (0) to interpolated (1) over the pairs.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, double dim) {
    low_ = pair_of(rope, rope.beta_fast, dim);
    high_ = pair_of(rope, rope.beta_slow, dim);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, dim - 1.0);
    if (low_ == high_) high_ += 0.001;  // as transformers: no division by zero
  }
  double operator()(double pair) const { return std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  // The (fractional) pair that turns `rotations` times over the original context.
  static double pair_of(const RopeConfig& rope, double rotations, double dim) {
    return dim * std::log(static_cast<double>(rope.original_max_position) / (rotations * kTwoPi)) /
           (2.0 * std::log(rope.theta));
  }

  double low_ = 0;
  double high_ = 0;
};

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto magnitude = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale > 0 && rope.mscale_all_dim > 0) {
    return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim);
  }
  return magnitude(1.0);
}

}  // namespace

RopeTable make_rope_table(const RopeConfig& rope, int64_t head_dim) {
  LARIAT_CHECK(head_dim > 0 && head_dim % 2 == 0, "head size {}", head_dim);
  const auto dim = static_cast<double>(head_dim);
  const bool yarn = rope.kind == RopeKind::kYarn;
  RopeTable table;
  table.inv_freq.reserve(static_cast<size_t>(head_dim / 2));
  const YarnRamp ramp(yarn ? rope : RopeConfig{.original_max_position = 1}, dim);
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double f = 1.0 / std::pow(rope.theta, static_cast<double>(2 * i) / dim);
    if (rope.kind == RopeKind::kLinear) f /= rope.factor;
    if (rope.kind == RopeKind::kLlama3) f = llama3_frequency(rope, f);
    if (yarn) {
      const double interpolated = ramp(static_cast<double>(i));
      f = f / rope.factor * interpolated + f * (1.0 - interpolated);
    }
    table.inv_freq.push_back(static_cast<float>(f));
  }
  if (yarn) table.attention_factor = static_cast<float>(yarn_attention_factor(rope));
  return table;
}

void rope_cos_sin(const RopeTable& table, TokenPos pos, std::span<float> cos, std::span<float> sin) {
  LARIAT_CHECK(cos.size() == table.inv_freq.size() && sin.size() == cos.size(),
               "{} pairs, room for {} and {}", table.inv_freq.size(), cos.size(), sin.size());
  for (size_t i = 0; i < cos.size(); ++i) {
    const double angle = static_cast<double>(pos.get()) * static_cast<double>(table.inv_freq[i]);
    cos[i] = static_cast<float>(std::cos(angle) * static_cast<double>(table.attention_factor));
    sin[i] = static_cast<float>(std::sin(angle) * static_cast<double>(table.attention_factor));
  }
}

}  // namespace lariat
