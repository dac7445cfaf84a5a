// A model held to a reference's logits and greedy tokens, through the step plans that serving uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "app/rank_set.h"
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
// decodes greedily, on the ranks that `load` makes. A chunk with more than logits_bytes_max of
// logits is run again for each part of them. kCorruptData for a golden file that is none.
Result<VerifyReport> verify_model(const OpenModel& model, LayoutOptions layout,
                                  const std::filesystem::path& golden, const RankSetFactory& load,
                                  int64_t logits_bytes_max = kLogitsBytesMax);

}  // namespace lariat
