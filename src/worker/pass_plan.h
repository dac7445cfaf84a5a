// How a step's rows become forward passes, and which of their tokens this rank computes. Pure; every rank
// cuts alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "placement/placement.h"
#include "plan/step_plan.h"

namespace lariat {

// The part of one row that one pass computes: new tokens [first, first + n) of the row, over all ranks.
struct PassSegment {
  size_t row = 0;  // in the plan
  int32_t first = 0;
  int32_t n = 0;
  friend bool operator==(const PassSegment&, const PassSegment&) = default;
};

using Pass = std::vector<PassSegment>;

// Who computes a new token: positions over cp, after `compute`; a decode row (one token) on every cp rank if
// `replicate_decode` (striped KV: each rank attends its own stripe).
class ComputePlacement {
 public:
  ComputePlacement(Placement over_cp, bool replicate_decode)
      : placement_(std::move(over_cp)), replicate_decode_(replicate_decode) {}

  // The stripe placement's compute side: stripe s is computed by cp rank s / duplicates.
  static Result<ComputePlacement> of_stripes(const Placement& stripes, int32_t duplicates,
                                             bool replicate_decode);

  int32_t cp() const { return placement_.stripes(); }
  // Positions of the row's segment that cp rank c computes, rising; appended to `out`.
  void positions(const PlanRow& row, const PassSegment& segment, int32_t c, std::vector<int32_t>& out) const;
  int64_t count(const PlanRow& row, const PassSegment& segment, int32_t c) const;
  // The cp rank whose logits count for position pos of the row, and the index there among the segment's
  // tokens.
  int32_t owner(TokenPos pos) const { return placement_.owner(pos).get(); }
  int64_t index(const PlanRow& row, const PassSegment& segment, TokenPos pos) const;
  // Most tokens one rank computes of any `n` consecutive positions.
  int64_t count_max(int64_t n) const;
  // The largest n whose count_max is at most `tokens`; at least 1.
  int64_t tokens_within(int64_t tokens) const;

  bool replicated(const PlanRow& row) const { return replicate_decode_ && row.n == 1; }

 private:
  Placement placement_;
  bool replicate_decode_;
};

// Cuts rows, in the plan's order, into passes of which no rank computes more than `tokens_max` tokens.
std::vector<Pass> cut_passes(const StepPlan& plan, const ComputePlacement& compute, int64_t tokens_max);

}  // namespace lariat
