// From a position's logits to what the plan wants of it: prompt log-probabilities, a drawn token.
#pragma once

#include <cstdint>
#include <span>

#include "plan/step_plan.h"

namespace lariat {

// Logits [vocab] of the row's new token `index` into a fresh outcome: its only entries of `prompt` and
// `logits`, its token. The logits are scratch afterwards. A row whose logits are no numbers fails alone.
// Touches nothing else, so positions may be judged in parallel.
void judge_position(const PlanRow& row, int32_t index, std::span<float> logits, RowOutcome& outcome);

}  // namespace lariat
