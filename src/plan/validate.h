// A worker's check of a step plan before it touches memory: the plan came over a wire.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "plan/row_strategy.h"
#include "plan/step_plan.h"

namespace lariat {

// What the worker knows of itself and has said in its hello.
struct PlanLimits {
  int32_t pages_total = 0;
  int32_t page_tokens = 0;
  int32_t cache_groups = 1;
  int32_t vocab = 0;
  int32_t context = 0;            // positions rope and tables are made for
  int32_t rows_max = 0;           // 0: any
  int64_t tokens_max = 0;         // new tokens over all rows; 0: any
  int32_t top_logprobs_max = 20;  // alternatives a position
  // Of several ranks: what the schedule is derived from. Null: one rank, which has none.
  std::shared_ptr<const ScheduleConstants> schedule = nullptr;
};

// Keeps scratch between steps; one caller at a time.
class PlanValidator {
 public:
  explicit PlanValidator(const PlanLimits& limits);

  // kCorruptData naming step, row and field at the first fault. Checked: epoch; a step after the last valid
  // one; at least one row and no row twice; n >= 1 and as many tokens (or the previous one, for n == 1); ids
  // in the vocabulary; positions within the context and the row's pages; page ids in the pool, none twice in
  // a table, and none written that another row also names; known enumerators; sampling parameters that the
  // sampling op is defined for; logits asked back of wanted positions, at most kLogitsBytesMax in all; the
  // schedule hash. O(tokens + pages + counts).
  Status check(const StepPlan& plan, Epoch epoch);
  // The group was formed again: steps may be counted from any id.
  void forget_steps() { last_step_ = StepId(0); }

 private:
  Status check_row(const PlanRow& row) const;
  Status check_pages(const StepPlan& plan);
  Status check_table(const PlanRow& row, size_t group);

  PlanLimits limits_;
  StepId last_step_;
  // By page: which table named it last, counted over all tables ever checked; and whether that was to write.
  std::vector<uint64_t> named_by_;
  std::vector<uint8_t> written_;
  uint64_t tables_ = 0;
  uint64_t plan_first_table_ = 0;
};

// Sampling parameters alone; the head checks a request's with it too.
Status check_sampling(const PlanSampling& sampling, int32_t vocab, int32_t top_logprobs_max);

}  // namespace lariat
