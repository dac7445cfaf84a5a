// The ranks as the engine sees them: formed under an epoch, told plans, lost as a whole. docs/design.md §5.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "head/engine.h"
#include "plan/step_plan.h"

namespace lariat {

struct GroupFormed {
  Epoch epoch;
  Hello hello;  // what all ranks agree on; pages_total is the least of theirs
};

struct GroupOutcome {
  StepOutcome outcome;  // of all ranks, merged
};

// The last event of its epoch. By then nothing of the group is left.
struct GroupLost {
  Epoch epoch;
  int32_t rank = 0;
  Error cause;  // names the rank, what happened and how the process ended
  // Forming failed for a reason that another try will meet again: the model cannot be loaded.
  bool permanent = false;
  std::chrono::steady_clock::time_point noticed{};  // when the group saw the first sign of it
};

using GroupEvent = std::variant<GroupFormed, GroupOutcome, GroupLost>;

class WorkerGroup {
 public:
  virtual ~WorkerGroup() = default;  // stops at once

  // on_event runs on the group's threads, one event at a time; must not call back into the group and not
  // block. To be set before the first form().
  virtual void set_on_event(std::function<void(GroupEvent)> on_event) = 0;
  // Begins to form the group; GroupFormed or GroupLost follows. Only at first and after GroupLost.
  virtual void form(Epoch epoch) = 0;
  // To every rank, in order; never blocks. Trouble shows as GroupLost.
  virtual void send(const StepPlan& plan) = 0;
  // Nobody waits for the step in flight: its outcome may say kCancelled for every row, and comes soon.
  virtual void abort(Epoch epoch, StepId step) = 0;
  // What the ranks say is not to be trusted: GroupLost with this cause follows.
  virtual void condemn(Error cause, bool permanent) = 0;
  // Ends every rank, asking them first and waiting for at most `grace`. No event follows. Idempotent.
  virtual void stop(std::chrono::milliseconds grace) = 0;

  // kv pages and comm_wait of the last step are left to the caller where the group does not know them.
  virtual std::vector<RankState> ranks() const = 0;
  // "rank 0: reading weights, 43 %": what forming waits for; empty when formed.
  virtual std::string forming() const = 0;
};

}  // namespace lariat
