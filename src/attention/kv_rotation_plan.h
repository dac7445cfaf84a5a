// The K/V that rotates in one layer of a step, cut into sub-blocks and put in order.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_block.h"
#include "attention/stripe_shape.h"
#include "ring/kv_rotation.h"

namespace lariat {

// What the members contribute for one row.
struct RotationItem {
  size_t row = 0;              // in the step
  bool fresh = false;          // new tokens, as the layer made them (first: 0); else slots of the store
  std::vector<int64_t> first;  // by member: its first slot, in the store or of those it computes
  std::vector<int64_t> slots;  // by member
};

// Keys that no query of the row can see (behind every window) stay where they are.
RotationItem stored_item(const StripeShape& shape, const StepRow& row, size_t index, const Mask& mask,
                         int64_t length);
RotationItem fresh_item(const StripeShape& shape, const StepRow& row, size_t index);

struct RotationPlan {
  std::vector<RotationItem> items;
  std::vector<RingRound> rounds;          // of all items, one after the other
  std::vector<size_t> round_item;         // by round
  std::vector<BlockPositions> positions;  // by round * members + origin
  std::vector<RotateOp> ops;              // this rank's
  int64_t slots_max = 0;                  // of a sub-block

  const RotationItem& item(int32_t round) const { return items[round_item[static_cast<size_t>(round)]]; }
};
RotationPlan plan_rotation(const StripeShape& shape, std::vector<RotationItem> items, int64_t block);

}  // namespace lariat
