// The collectives a step makes ranks run, derived from the plan, and their fingerprint: ranks that would run
// different ones find out before the first byte moves. docs/design.md §5.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/layout.h"
#include "plan/pass_plan.h"
#include "plan/row_strategy.h"
#include "plan/step_plan.h"

namespace lariat {

enum class CollectiveKind : uint8_t { kRingExchange, kAllGather, kAllToAll, kBroadcast, kAllReduce };
// kStripes: the rings of all duplicates, side by side; kDuplicates: the ranks of a member that share KV
// heads.
enum class CollectiveGroup : uint8_t { kWorld, kTp, kCp, kStripes, kDuplicates };

// One collective, or the same one in all groups of its kind: a part of the agreed whole, so no rank's alone.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllGather;
  CollectiveGroup group = CollectiveGroup::kWorld;
  int32_t root = 0;            // of a broadcast; a ring's origin of the first block
  std::vector<int64_t> bytes;  // what is sent, by stripe (kStripes) or by cp index
  friend bool operator==(const Collective&, const Collective&) = default;
};

// A rank's word before each pass, whether it can go on; every rank's goes to all.
inline constexpr int64_t kReadyBytes = 256;

// Empty with one rank. What the step moves, in the order of its exchanges: the word before a pass, for every
// different window of the layers the attention of one such layer, one sum over tp, the logits that are wanted
// over tp, the tokens drawn. Rows are taken whole: that passes cut long ones, and that layers repeat, follows
// from constants outside and is not written out. As attention/, model/ and worker/ run it.
std::vector<Collective> derive_schedule(const StepPlan& plan, const ScheduleConstants& constants);

// The same of one of the passes that cut_passes() makes of the step, without the tokens.
std::vector<Collective> derive_pass_schedule(const StepPlan& plan, const Pass& pass,
                                             const ScheduleConstants& constants);

// A token drawn for each row that asks for one, from the rank that drew it to all; empty with one rank.
std::vector<Collective> derive_token_schedule(const StepPlan& plan, const ScheduleConstants& constants);

// Gives rows that leave their strategy open `prefill`, and the plan the hash of its schedule.
void seal(StepPlan& plan, const ScheduleConstants& constants, Strategy prefill = Strategy::kAuto);

// XXH3-128 of the schedule, {low, high}; the empty schedule is {0, 0}.
std::array<uint64_t, 2> schedule_hash(std::span<const Collective> schedule);

}  // namespace lariat
