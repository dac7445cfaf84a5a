// The ranks of a layout as one thing that runs steps, whatever each of them is: what verify and bench
// measure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "app/model_session.h"
#include "app/progress.h"
#include "worker/step_executor.h"

namespace lariat {

// run() is the whole group's step: every rank runs the plan, which need not be sealed, and the outcome is all
// ranks' merged.
class RankSet : public StepExecutor {
 public:
  // The processes that the ranks are: one a rank, or this one alone.
  virtual std::vector<pid_t> pids() const = 0;
  // By rank: what it has waited for its peers in all steps so far.
  virtual std::vector<int64_t> comm_wait_us() const = 0;
};

struct RankSetOptions {
  ModelOptions model;
  bool poison = false;              // all KV starts as NaN
  ProgressBar* progress = nullptr;  // of loading
};

// Loads the ranks of a plan that was resolved for this model and layout.
using RankSetFactory = std::function<Result<std::unique_ptr<RankSet>>(
    const OpenModel& model, const LayoutOptions& layout, const ResolvedPlan& plan)>;

// `options.progress` must live as long as the factory.
RankSetFactory rank_sets(RankTransport transport, const RankSetOptions& options);

}  // namespace lariat
