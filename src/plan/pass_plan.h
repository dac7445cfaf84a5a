// How a step's rows become forward passes, and which of their tokens this rank computes. Pure; every rank
// cuts alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "placement/placement.h"
#include "plan/row_strategy.h"
#include "plan/step_plan.h"

namespace lariat {

// The part of one row that one pass computes: new tokens [first, first + n) of the row, over all ranks.
struct PassSegment {
  size_t row = 0;  // in the plan
  int32_t first = 0;
  int32_t n = 0;
  RowStrategy strategy = RowStrategy::kLocal;  // of the row as a whole
  friend bool operator==(const PassSegment&, const PassSegment&) = default;
};

using Pass = std::vector<PassSegment>;

// Who computes a new token. pass_kv, pass_q: the compute side of the placement over cp. gather: every cp
// rank, each against its own stripe. local: the row's home, which has every key.
class ComputePlacement {
 public:
  // `constants` outlive it. Stripe s is computed by cp rank s / duplicates.
  static Result<ComputePlacement> create(const ScheduleConstants& constants);

  int32_t cp() const { return placement_.stripes(); }
  // Positions of the segment that cp rank c computes, rising; appended to `out`.
  void positions(const PlanRow& row, const PassSegment& segment, int32_t c, std::vector<int32_t>& out) const;
  int64_t count(const PlanRow& row, const PassSegment& segment, int32_t c) const;
  // The cp rank whose logits count for position pos of the segment, and the index there among the segment's
  // tokens.
  int32_t owner(const PlanRow& row, const PassSegment& segment, TokenPos pos) const;
  int64_t index(const PlanRow& row, const PassSegment& segment, TokenPos pos) const;
  // Most tokens one rank computes of any `n` consecutive positions that are shared.
  int64_t count_max(int64_t n) const;
  // The largest n whose count_max is at most `tokens`; at least 1.
  int64_t tokens_within(int64_t tokens) const;
  RowStrategy strategy(const PlanRow& row) const { return row_strategy(row, *constants_); }

 private:
  ComputePlacement(const ScheduleConstants& constants, Placement over_cp)
      : constants_(&constants), placement_(std::move(over_cp)) {}
  bool is_shared(const PassSegment& segment) const {
    return segment.strategy == RowStrategy::kPassKv || segment.strategy == RowStrategy::kPassQ;
  }
  bool computes_whole(const PlanRow& row, const PassSegment& segment, int32_t c) const {
    return segment.strategy == RowStrategy::kGather || home_member(row, *constants_) == c;
  }

  const ScheduleConstants* constants_;
  Placement placement_;
};

// Cuts rows, in the plan's order, into passes of which no rank computes more than `tokens_max` tokens and
// none has two segments of one row.
std::vector<Pass> cut_passes(const StepPlan& plan, const ComputePlacement& compute, int64_t tokens_max);

}  // namespace lariat
