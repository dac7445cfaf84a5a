// What all ranks said of one step, as one outcome.
#pragma once

#include <span>

#include "plan/step_plan.h"

namespace lariat {

// outcomes: one a rank, of the same step. A row has failed if it has on any rank (the lowest one's reason);
// its token and log-probabilities come from the lowest rank that drew one: ranks that draw the same row agree
// by construction, and most draw none. Prompt log-probabilities and logits
// position by position, from the rank that judged each. Times are the slowest rank's.
// kCorruptData if the ranks answer different rows, drew different tokens for one or sent one position's
// logits twice.
Result<StepOutcome> merge_outcomes(std::span<const StepOutcome> outcomes);

}  // namespace lariat
