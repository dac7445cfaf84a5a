// A model of arithmetic instead of weights, for tests of worker and head: it keeps in paged storage what a
// position's K and V would be, so a page in two rows, a position never recomputed, or a stale slot becomes a
// failed row or another token. What it draws is a function of the tokens, the key and the counter alone.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "worker/step_executor.h"

namespace lariat {

struct ToyOptions {
  int32_t page_tokens = 4;
  int32_t pages_total = 64;
  int32_t vocab = 256;
  std::chrono::microseconds per_token{0};  // of waiting, as a stand-in for compute
  // Runs before each step, on the compute thread; throws, stalls, kills or changes nothing.
  std::function<void(const StepPlan&)> before_step;
  std::function<Status()> health;  // what it says of itself between steps; nothing: well
};

class ToyExecutor final : public StepExecutor {
 public:
  explicit ToyExecutor(ToyOptions options);

  Hello hello() const override;
  Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) override;
  Status health() override { return options_.health ? options_.health() : Ok{}; }

  // The tokens this model gives to a prompt on its own, greedy or keyed: what any disturbed run must equal.
  // Ends after max_tokens or with the first of end_ids, which is included.
  static std::vector<int32_t> generate(const std::vector<int32_t>& prompt, int32_t vocab, int32_t max_tokens,
                                       const PlanSampling& sampling, const std::vector<int32_t>& end_ids);

 private:
  struct Slot {
    int32_t token = -1;
    uint64_t state = 0;
  };

  RowOutcome run_row(const PlanRow& row, const ProgressFn& progress, bool& aborted);
  Slot* slot(const PlanRow& row, int32_t pos);

  const ToyOptions options_;
  std::vector<Slot> slots_;
  std::map<RowId, int32_t> prev_;
};

ExecutorFactory toy_factory(const ToyOptions& options);

}  // namespace lariat
