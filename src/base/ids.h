// Numbers that mean different things are different types: an index of one kind never becomes another
// silently.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace lariat {

template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep get() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Rep value_ = 0;
};

using Rank = StrongId<struct RankTag, int32_t>;           // worker process in the group, 0..world-1
using StripeIndex = StrongId<struct StripeTag, int32_t>;  // place inside a stripe group, 0..P-1
using PageId = StrongId<struct PageTag, int32_t>;         // logical page, the same on every rank of the group
using TokenPos = StrongId<struct TokenPosTag, int32_t>;   // position in a sequence, 0 first
using LocalSlot = StrongId<struct LocalSlotTag, int32_t>;  // index among the positions that one stripe holds
using LayerId = StrongId<struct LayerTag, int32_t>;
using RowId = StrongId<struct RowTag, uint64_t>;  // one sequence (one choice of one request), never reused
using StepId = StrongId<struct StepTag, uint64_t>;
using Epoch = StrongId<struct EpochTag, uint64_t>;

}  // namespace lariat

template <typename Tag, typename Rep>
struct std::hash<lariat::StrongId<Tag, Rep>> {
  size_t operator()(lariat::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.get()); }
};
