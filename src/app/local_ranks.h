// All ranks of a layout inside this process, as threads over shared weights.
#pragma once

#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

#include "app/rank_set.h"
#include "comm/rank_groups.h"
#include "plan/validate.h"
#include "worker/model_executor.h"

namespace lariat {

// One rank runs on the caller's thread.
class LocalRanks final : public RankSet {
 public:
  // Loads each tp shard once; the cp ranks that hold it share it. Errors: memory, or what a backend refuses.
  static Result<std::unique_ptr<LocalRanks>> load(const OpenModel& model, const LayoutOptions& options,
                                                  const ResolvedPlan& plan, const ExecutorExtras& extras);

  Hello hello() const override { return ranks_.front()->hello(); }
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;

  std::vector<pid_t> pids() const override { return {getpid()}; }
  std::vector<int64_t> comm_wait_us() const override { return comm_wait_us_; }

  // What all ranks' groups have sent since they were made.
  int64_t bytes_sent() const;

 private:
  LocalRanks() = default;

  std::vector<RankGroups> groups_;  // by rank; empty with one rank. Outlives the executors
  std::vector<std::unique_ptr<ModelExecutor>> ranks_;
  Strategy prefill_ = Strategy::kAuto;  // of rows that leave it open
  std::optional<PlanValidator> validator_;
  std::vector<int64_t> comm_wait_us_;  // by rank
};

}  // namespace lariat
