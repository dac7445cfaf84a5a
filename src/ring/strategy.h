// Which way a row's attention goes, from counts alone: every rank chooses alike. docs/design.md §4.
#pragma once

#include <cstdint>

namespace lariat {

// kLocal: the rank has every key of the row (replicated K/V); nothing moves.
enum class RowStrategy : uint8_t { kPassKv, kPassQ, kGather, kLocal };

// Sent by the head at start, the same for all ranks.
struct CostConstants {
  double flops_per_s = 50e9;
  double bytes_per_s = 2e9;  // of one link, one way
  double shift_s = 100e-6;   // latency of one exchange
};

struct RowCost {
  int64_t resident = 0;
  int64_t new_tokens = 0;
  int32_t members = 1;  // of the ring
  int64_t ring_block = 4096;
  int32_t heads = 0;  // query heads attended on one rank
  int32_t kv_heads = 0;
  int32_t k_dim = 0;
  int32_t v_dim = 0;
  int32_t kv_element_bytes = 4;
};

// Seconds predicted for one layer. Transfers hide behind compute where the schedule lets them.
double pass_kv_seconds(const RowCost& row, const CostConstants& costs);
double pass_q_seconds(const RowCost& row, const CostConstants& costs);
// The cheaper one of the two; pass_kv if they are equal.
RowStrategy choose_strategy(const RowCost& row, const CostConstants& costs);

}  // namespace lariat
