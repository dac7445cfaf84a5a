// Bytes that cross between ranks, from the schedules the ranks derive: what `lariat plan` prints.
#pragma once

#include <cstdint>

#include "plan/row_strategy.h"
#include "plan/step_plan.h"

namespace lariat {

// All layers of one step in passes of at most `pass_tokens` a rank, summed over ranks, each copy counted
// where it is sent: what the ranks' groups count, byte for byte. 0 with one rank.
int64_t step_net_bytes(const StepPlan& plan, const ScheduleConstants& constants, int64_t pass_tokens);

struct PromptSteps {
  int64_t tokens = 0;
  int64_t chunk = 0;  // of a step; 0: all in one
  int64_t pass_tokens = 0;
  Strategy strategy = Strategy::kAuto;
};

// One prompt, alone, with the token that follows it.
int64_t prefill_net_bytes(const ScheduleConstants& constants, const PromptSteps& prompt);

// One decoded token; it does not depend on the depth.
int64_t decode_net_bytes(const ScheduleConstants& constants);

}  // namespace lariat
