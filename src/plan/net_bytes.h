// Bytes that cross between ranks, from the schedules the ranks derive: what `lariat plan` prints.
#pragma once

#include <cstdint>

#include "plan/row_strategy.h"
#include "plan/step_plan.h"

namespace lariat {

// All layers of one step, summed over ranks, each copy counted where it is sent; the sums over tp included,
// the word about tokens and readiness (a few hundred bytes a rank) not. 0 with one rank.
int64_t step_net_bytes(const StepPlan& plan, const ScheduleConstants& constants);

// One prompt of `tokens`, alone, in steps of `chunk` (0: one step) as `prefill` says.
int64_t prefill_net_bytes(const ScheduleConstants& constants, int64_t tokens, int64_t chunk,
                          Strategy prefill);

// One decoded token; it does not depend on the depth.
int64_t decode_net_bytes(const ScheduleConstants& constants);

}  // namespace lariat
