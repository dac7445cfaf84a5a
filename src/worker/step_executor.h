// What a rank computes, as its process loop sees it: loading once, then one step at a time. docs/design.md
// §5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "plan/step_plan.h"
#include "plan/validate.h"

namespace lariat {

// To be called between units of work, at least once a chunk and layer group: it kicks the stall watchdog.
// False: nobody waits for this step any more; return kCancelled as soon as convenient. Any thread of the
// executor.
using ProgressFn = std::function<bool()>;

// fraction of the load done, 0..1. Kicks the stall watchdog too.
using LoadProgressFn = std::function<void(double fraction, std::string_view what)>;

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  // The rank's constants. The worker fills in protocol, build id, rank, world and pid.
  virtual Hello hello() const = 0;

  // What plans are checked against before they run. By default the hello's numbers, and no context shorter
  // than the pages hold.
  virtual PlanLimits limits() const;

  // One step; the plan has passed validation. One outcome a row, in the plan's order. A row that fails alone
  // (NaN in its logits) is a failed RowOutcome.
  // An error with one of the codes of fails_rows_only() fails every row of the step, and the rank goes on:
  // what the step wrote to pages will not be read. Any other error, and any exception, ends the process: the
  // head forms the group again and recomputes. So does a lack of memory: what a step needs is set aside at
  // start, so the lack is the machine's and not the request's, and ranks that were in an exchange cannot go
  // on.
  virtual Result<StepOutcome> run(const StepPlan& plan, const ProgressFn& progress) = 0;

  // Asked between steps, every now and then: an error ends the process as one of run() would. So a rank whose
  // peers are gone is replaced before the next request has to wait for that. Must not block.
  virtual Status health() { return Ok{}; }
};

inline PlanLimits StepExecutor::limits() const {
  const Hello h = hello();
  PlanLimits limits;
  limits.pages_total = h.pages_total;
  limits.page_tokens = h.page_tokens;
  limits.cache_groups = h.cache_groups;
  limits.vocab = h.vocab;
  limits.context = static_cast<int32_t>(std::min<int64_t>(int64_t{h.pages_total} * h.page_tokens, INT32_MAX));
  return limits;
}

inline bool fails_rows_only(Errc code) {
  return code == Errc::kCancelled || code == Errc::kInvalidArgument || code == Errc::kUnsupported;
}

// Builds the executor: reads weights, allocates K/V memory. Runs on the compute thread, as everything after
// it.
using ExecutorFactory = std::function<Result<std::unique_ptr<StepExecutor>>(const LoadProgressFn& progress)>;

}  // namespace lariat
