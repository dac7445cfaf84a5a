#include "attention/kv_rotation_plan.h"

#include <algorithm>

namespace lariat {

RotationItem stored_item(const StripeShape& shape, const StepRow& row, size_t index, const Mask& mask,
                         int64_t length) {
  const int64_t hidden =
      mask.kind == MaskKind::kWindow ? std::clamp<int64_t>(row.resident - mask.window + 1, 0, length) : 0;
  RotationItem item;
  item.row = index;
  for (int32_t m = 0; m < shape.members; ++m) {
    item.first.push_back(shape.stored(m, hidden));
    item.slots.push_back(shape.stored(m, length) - item.first.back());
  }
  return item;
}

RotationItem fresh_item(const StripeShape& shape, const StepRow& row, size_t index) {
  RotationItem item;
  item.row = index;
  item.fresh = true;
  for (int32_t m = 0; m < shape.members; ++m) {
    item.first.push_back(shape.computed(m, row.resident));
    item.slots.push_back(shape.computed(m, row.length) - item.first.back());
  }
  return item;
}

RotationPlan plan_rotation(const StripeShape& shape, std::vector<RotationItem> items, int64_t block) {
  RotationPlan plan;
  plan.items = std::move(items);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const RotationItem& item = plan.items[i];
    for (RingRound& round : cut_rounds(item.slots, block)) {
      for (int32_t m = 0; m < shape.members; ++m) {
        const auto at = static_cast<size_t>(m);
        const int64_t n = round.slots[at];
        plan.slots_max = std::max(plan.slots_max, n);
        plan.positions.push_back(block_positions(item.fresh ? shape.compute : shape.store,
                                                 item.fresh ? StripeIndex(m) : shape.stripe(m),
                                                 item.first[at] + round.first[at], n));
      }
      plan.rounds.push_back(std::move(round));
      plan.round_item.push_back(i);
    }
  }
  plan.ops = rotate_blocks(shape.member, shape.members, plan.rounds);
  return plan;
}

}  // namespace lariat
