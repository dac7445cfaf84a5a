// All ranks of a layout as processes of this program, the way serve runs them, for commands that make the
// step plans themselves.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "app/private_dir.h"
#include "app/rank_set.h"
#include "head/worker_group.h"
#include "plan/row_strategy.h"

namespace lariat {

// One group of one epoch: a rank that is lost is an error, not replaced. The processes end with this object.
// For one thread.
class ProcessRanks final : public RankSet {
 public:
  // `layout` is settled (settled_layout). Returns when every rank has loaded and said hello. The error names
  // the rank, the cause and how its process ended; a rank that loads without progress is given up by the
  // group's own deadlines.
  static Result<std::unique_ptr<RankSet>> start(const OpenModel& model, const LayoutOptions& layout,
                                                const RankSetOptions& options);
  ~ProcessRanks() override;

  Hello hello() const override { return hello_; }
  // `progress` is asked while the ranks compute; false aborts the step, whose rows then fail with
  // kCancelled.
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;
  std::vector<pid_t> pids() const override;
  std::vector<int64_t> comm_wait_us() const override { return comm_wait_us_; }

 private:
  explicit ProcessRanks(ScheduleConstants constants) : constants_(std::move(constants)) {}
  Status form(ProgressBar* progress);
  void on_event(GroupEvent event);  // the group's threads

  const ScheduleConstants constants_;
  Strategy prefill_ = Strategy::kAuto;  // of rows that leave it open
  Hello hello_;
  std::vector<int64_t> comm_wait_us_;  // by rank

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Hello> formed_;
  std::optional<StepOutcome> outcome_;
  std::optional<Error> lost_;

  PrivateDir group_dir_;                // for the ranks' sockets, and where they meet; gone once they have
  std::unique_ptr<WorkerGroup> group_;  // last, so that it ends first
};

}  // namespace lariat
