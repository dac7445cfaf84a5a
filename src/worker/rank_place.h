// Where a rank stands in its group, and how it reaches the others.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/rank_groups.h"
#include "plan/row_strategy.h"

namespace lariat {

struct RankPlace {
  Rank rank;
  ScheduleConstants constants;   // the same on every rank
  RankGroups* groups = nullptr;  // null with one rank; outlives the executor
  std::chrono::milliseconds comm_timeout{10'000};

  const Layout& layout() const { return constants.layout; }
  LayoutShape shape() const { return layout_shape(layout(), constants.heads, constants.kv_heads); }
  int32_t c() const { return rank.get() / layout().tp; }
  int32_t t() const { return rank.get() % layout().tp; }
  StripeIndex stripe() const { return stripe_of(layout(), shape(), rank); }
};

}  // namespace lariat
