// The oracle of sampling: a sorted list of all tokens, in double. Tests only.
#pragma once

#include <span>
#include <vector>

#include "ops/sample.h"

namespace lariat::ref {

// The distribution that `sample` draws from, by id: 0 for what penalties, masks or truncation removed.
// temperature > 0.
std::vector<double> sampling_distribution(std::span<const float> logits, const SampleParams& params);

// The first id whose cumulative probability, in id order, exceeds u.
int32_t pick(std::span<const double> probabilities, double u);

// Natural-log softmax.
std::vector<double> log_softmax(std::span<const float> logits);

}  // namespace lariat::ref
