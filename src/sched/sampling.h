// A request's sampling settings as a plan carries them.
#pragma once

#include "plan/step_plan.h"
#include "sched/request.h"

namespace lariat {

// What is the same for every token of every choice; seed, choice, output index, counts and bans are the row's
// to add.
PlanSampling sampling_of(const GenerateRequest& request);

}  // namespace lariat
