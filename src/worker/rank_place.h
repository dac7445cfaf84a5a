// Where a rank stands in its group, and how it reaches the others.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/rank_groups.h"
#include "placement/placement.h"
#include "plan/layout.h"
#include "ring/strategy.h"

namespace lariat {

struct RankPlace {
  Layout layout;
  Rank rank;
  LayoutShape shape;                           // of the model under this layout
  Placement placement;                         // positions over the stripe group
  bool replicated = false;                     // every rank keeps all K/V
  RowStrategy prefill = RowStrategy::kPassKv;  // of rows with several new tokens, unless `choose`
  bool choose = true;                          // auto: by cost, a row at a time
  CostConstants costs;
  int64_t ring_block = 4096;     // positions of a K/V sub-block that rotates
  RankGroups* groups = nullptr;  // null with one rank; outlives the executor
  std::chrono::milliseconds comm_timeout{10'000};

  int32_t c() const { return rank.get() / layout.tp; }
  int32_t t() const { return rank.get() % layout.tp; }
  StripeIndex stripe() const { return stripe_of(layout, shape, rank); }
};

}  // namespace lariat
