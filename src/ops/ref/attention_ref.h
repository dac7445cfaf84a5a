// The oracle of attention: softmax over gathered keys in double, one query and head at a time. Tests only.
#pragma once

#include <span>
#include <vector>

#include "ops/attention.h"

namespace lariat::ref {

// One key or value element of a page, widened.
double kv_element(const KvPages& kv, int head, int64_t slot, int dim, bool value);

// Same contract as lariat::attention, T * H * S * (k_dim + v_dim) steps.
void attention(const AttentionParams& params, std::span<const AttentionRow> rows);

// docs/design.md §3 for any number of parts: out [rows, v_dim], lse [rows].
struct PartialData {
  std::vector<double> out;
  std::vector<double> lse;
};
PartialData merge(std::span<const PartialData> parts, int v_dim);

}  // namespace lariat::ref
