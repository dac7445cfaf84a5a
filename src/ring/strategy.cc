#include "ring/strategy.h"

#include <algorithm>

namespace lariat {
namespace {

double per_member(double whole, const RowCost& row) {
  return whole / std::max(1, row.members);
}

// Of one rank: 1 / members of the visible (query, key) pairs.
double compute_seconds(const RowCost& row, const CostConstants& costs) {
  const auto n = static_cast<double>(row.new_tokens);
  const double pairs = n * static_cast<double>(row.resident) + n * (n + 1) / 2;
  return per_member(2 * pairs * row.heads * (row.k_dim + row.v_dim), row) / costs.flops_per_s;
}

}  // namespace

double pass_kv_seconds(const RowCost& row, const CostConstants& costs) {
  if (row.members <= 1) return compute_seconds(row, costs);
  const double slots = per_member(static_cast<double>(row.resident + row.new_tokens), row);
  const double bytes = slots * row.kv_heads * (row.k_dim + row.v_dim) * row.kv_element_bytes;
  const double rounds = std::max(1.0, slots / static_cast<double>(std::max<int64_t>(1, row.ring_block)));
  const double transfers = (row.members - 1) * (bytes / costs.bytes_per_s + rounds * costs.shift_s);
  return std::max(compute_seconds(row, costs), transfers);
}

double pass_q_seconds(const RowCost& row, const CostConstants& costs) {
  if (row.members <= 1) return compute_seconds(row, costs);
  const double queries = per_member(static_cast<double>(row.new_tokens), row) * row.heads * sizeof(float);
  const double partial = queries * (row.v_dim + 1) / costs.bytes_per_s + costs.shift_s;
  const double moves =
      (row.members - 1) * (queries * row.k_dim / costs.bytes_per_s + costs.shift_s + partial);
  // The last partial goes home with nothing left to compute.
  return std::max(compute_seconds(row, costs), moves) + partial;
}

RowStrategy choose_strategy(const RowCost& row, const CostConstants& costs) {
  return pass_q_seconds(row, costs) < pass_kv_seconds(row, costs) ? RowStrategy::kPassQ
                                                                  : RowStrategy::kPassKv;
}

}  // namespace lariat
