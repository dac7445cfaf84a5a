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

// Who computes a decode row (one new token): every cp rank, each against its own stripe (striped K/V); or the
// row's home alone, which has every key (replicated K/V).
enum class DecodeRows : uint8_t { kEverywhere, kHome };

// Who computes a new token: the compute side of the placement over cp, and for decode rows DecodeRows.
class ComputePlacement {
 public:
  // The stripe placement's compute side: stripe s is computed by cp rank s / duplicates.
  static Result<ComputePlacement> of_stripes(const Placement& stripes, int32_t duplicates, DecodeRows decode);

  int32_t cp() const { return placement_.stripes(); }
  // Positions of the row's segment that cp rank c computes, rising; appended to `out`.
  void positions(const PlanRow& row, const PassSegment& segment, int32_t c, std::vector<int32_t>& out) const;
  int64_t count(const PlanRow& row, const PassSegment& segment, int32_t c) const;
  // The cp rank whose logits count for position pos of the row, and the index there among the segment's
  // tokens.
  int32_t owner(const PlanRow& row, TokenPos pos) const;
  int64_t index(const PlanRow& row, const PassSegment& segment, TokenPos pos) const;
  // Most tokens one rank computes of any `n` consecutive positions.
  int64_t count_max(int64_t n) const;
  // The largest n whose count_max is at most `tokens`; at least 1.
  int64_t tokens_within(int64_t tokens) const;

  bool is_decode(const PlanRow& row) const { return row.n == 1; }
  // The cp rank that has a row's decoded keys under kHome: fixed for the row's life.
  int32_t home(const PlanRow& row) const {
    return static_cast<int32_t>(row.id.get() % static_cast<uint64_t>(cp()));
  }

 private:
  ComputePlacement(Placement over_cp, DecodeRows decode) : placement_(std::move(over_cp)), decode_(decode) {}
  bool computes_decode(const PlanRow& row, int32_t c) const {
    return decode_ == DecodeRows::kEverywhere || home(row) == c;
  }

  Placement placement_;
  DecodeRows decode_;
};

// Cuts rows, in the plan's order, into passes of which no rank computes more than `tokens_max` tokens.
std::vector<Pass> cut_passes(const StepPlan& plan, const ComputePlacement& compute, int64_t tokens_max);

}  // namespace lariat
