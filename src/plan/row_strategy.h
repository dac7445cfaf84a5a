// Which way each row of a plan goes, and the constants every rank decides it by. docs/design.md §4.
#pragma once

#include <cstdint>
#include <vector>

#include "placement/placement.h"
#include "plan/layout.h"
#include "plan/step_plan.h"
#include "ring/strategy.h"

namespace lariat {

// Fixed at start; the same on every rank of a group, or their schedules' hashes differ.
struct ScheduleConstants {
  Layout layout;
  Placement placement;  // of positions over the stripe group
  int32_t heads = 0;    // of the model
  int32_t kv_heads = 0;
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;  // split over tp
  int32_t kv_element_bytes = 4;
  std::vector<int32_t> windows;  // by layer, in positions; 0: all are seen
  bool replicated = false;       // K/V on every rank
  int64_t ring_block = 4096;     // as in StripeComm
  CostConstants costs = {};
};

// One token is decoded by gather, whatever the plan prefers; more by the plan's strategy, `auto` by cost.
// With replicated K/V a row that decodes (it says gather, or continues its own last token) is local to its
// home rank, and everything else passes K/V. One rank: local.
RowStrategy row_strategy(const PlanRow& row, const ScheduleConstants& constants);

// The ring member (c) that decodes a row of replicated K/V.
int32_t home_member(const PlanRow& row, const ScheduleConstants& constants);

}  // namespace lariat
