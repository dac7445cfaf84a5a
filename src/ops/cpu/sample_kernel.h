// The passes of sampling that touch the whole vocabulary.
#pragma once

#include <cstdint>
#include <span>

namespace lariat::cpu {

struct LogitScan {
  float best = 0;      // the maximum; undefined if not `finite`
  bool finite = true;  // no NaN, no +inf (-inf is allowed)
};
LogitScan scan_logits(std::span<const float> logits);

// out[i] = exp((logits[i] - best) * factor), within 2 ulp of f32; returns their sum. out may be logits, or
// null if only the sum is wanted. best finite.
double exp_weights(std::span<const float> logits, float best, float factor, float* out);

}  // namespace lariat::cpu
