// Seeded random inputs for the tests of ops: never constant, replayed by their seed. Tests only.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace lariat {

// n floats of a normal distribution.
inline std::vector<float> random_floats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> v(n);
  for (float& f : v) f = normal(engine);
  return v;
}

}  // namespace lariat
