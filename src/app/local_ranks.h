// All ranks of a layout inside this process, as threads over shared weights: verify and bench on many ranks.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "app/model_session.h"
#include "comm/rank_groups.h"
#include "plan/validate.h"
#include "worker/model_executor.h"

namespace lariat {

// A StepExecutor whose run() is the whole group's step: every rank runs the plan, the outcome is all ranks'
// merged. One rank runs on the caller's thread.
class LocalRanks final : public StepExecutor {
 public:
  // Loads each tp shard once; the cp ranks that hold it share it. Errors: memory, or what a backend refuses.
  static Result<std::unique_ptr<LocalRanks>> load(const OpenModel& model, const LayoutOptions& layout,
                                                  const ResolvedPlan& plan, const ExecutorExtras& extras);

  Hello hello() const override { return ranks_.front()->hello(); }
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;

  // What all ranks' groups have sent since they were made.
  int64_t bytes_sent() const;

  // Called by one rank at a time.
  void set_logits_tap(ModelExecutor::LogitsTap tap);

 private:
  LocalRanks() = default;

  std::vector<RankGroups> groups_;  // by rank; empty with one rank. Outlives the executors
  std::vector<std::unique_ptr<ModelExecutor>> ranks_;
  Strategy prefill_ = Strategy::kAuto;  // of rows that leave it open
  std::optional<PlanValidator> validator_;
  std::mutex tap_mutex_;
};

}  // namespace lariat
