// The collectives a step makes ranks run, derived from the plan, and their fingerprint: ranks that would run
// different ones find out before the first byte moves. docs/design.md §5.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/layout.h"
#include "plan/step_plan.h"

namespace lariat {

enum class CollectiveKind : uint8_t { kRingExchange, kAllGather, kAllToAll, kBroadcast };
enum class CollectiveGroup : uint8_t { kWorld, kTp, kCp, kStripes };

// One collective, the same on every rank that takes part.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllGather;
  CollectiveGroup group = CollectiveGroup::kWorld;
  int32_t root = 0;            // of a broadcast; a ring's origin of the first block
  std::vector<int64_t> bytes;  // by member: what it sends
  friend bool operator==(const Collective&, const Collective&) = default;
};

// In the order they run. With one rank there are none. kUnsupported for a layout that is not served.
Result<std::vector<Collective>> derive_schedule(const StepPlan& plan, const Layout& layout);

// XXH3-128 of the schedule, {low, high}; the empty schedule is {0, 0}.
std::array<uint64_t, 2> schedule_hash(std::span<const Collective> schedule);

}  // namespace lariat
