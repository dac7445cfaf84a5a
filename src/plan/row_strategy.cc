#include "plan/row_strategy.h"

namespace lariat {

RowStrategy row_strategy(const PlanRow& row, const ScheduleConstants& c) {
  if (c.layout.world() == 1 || c.placement.stripes() == 1) return RowStrategy::kLocal;
  const bool is_decode = row.use_prev || row.strategy == Strategy::kGather;
  if (c.replicated) return is_decode ? RowStrategy::kLocal : RowStrategy::kPassKv;
  if (row.n == 1 || row.strategy == Strategy::kGather) return RowStrategy::kGather;
  if (row.strategy == Strategy::kPassKv) return RowStrategy::kPassKv;
  if (row.strategy == Strategy::kPassQ) return RowStrategy::kPassQ;
  const LayoutShape shape = layout_shape(c.layout, c.heads, c.kv_heads);
  return choose_strategy({.resident = row.pos0,
                          .new_tokens = row.n,
                          .members = c.layout.cp,
                          .ring_block = c.ring_block,
                          .heads = shape.heads * shape.duplicates,
                          .kv_heads = shape.kv_heads,
                          .k_dim = c.k_dim,
                          .v_dim = c.v_dim,
                          .kv_element_bytes = c.kv_element_bytes},
                         c.costs);
}

int32_t home_member(const PlanRow& row, const ScheduleConstants& c) {
  return static_cast<int32_t>(row.id.get() % static_cast<uint64_t>(c.layout.cp));
}

}  // namespace lariat
