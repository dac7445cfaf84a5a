// A model held to a reference's logits and greedy tokens, through the step plans that serving uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/model_session.h"
#include "app/options.h"
#include "base/result.h"

namespace lariat {

// The exactness contract's bound on a logit (docs/design.md §9).
inline constexpr double kLogitErrorMax = 2e-4;

struct VerifyReport {
  double max_error = 0;  // absolute, over every compared logit; infinity if one was NaN
  bool greedy_match = true;
  std::string mismatch;   // the first greedy token that differs
  int64_t tokens = 0;     // inputs and greedy
  int64_t positions = 0;  // compared
  bool passed() const { return greedy_match && max_error <= kLogitErrorMax; }
};

// golden: safetensors with input_ids [T] i32, logits [T, vocab] f32, greedy [n] i32. Prefills all inputs and
// compares every position; prefills all but the last 32, feeds those one a step and compares them; then
// decodes greedily. kCorruptData for a golden file that is none.
Result<VerifyReport> verify_model(const OpenModel& model, LayoutOptions layout,
                                  const std::filesystem::path& golden, const ExecutorExtras& extras);

}  // namespace lariat
