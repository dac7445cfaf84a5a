// Target-independent parts of CPU attention: visibility by position, the last division, and merges.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu/attention_kernel.h"

namespace lariat::cpu {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// First slot in [lo, hi) whose position is >= pos.
int64_t first_at_least(const SlotPositions& positions, int64_t lo, int64_t hi, int64_t pos) {
  while (lo < hi) {
    const int64_t mid = lo + (hi - lo) / 2;
    if (positions.at(mid) < pos) {
      lo = mid + 1;
    } else {
      hi = mid;
    }
  }
  return lo;
}

// One row of merge (docs/design.md §3). The weight of the larger lse is exactly 1.
void merge_row(float* a, float& a_lse, const float* b, float b_lse, int v_dim) {
  constexpr float kPosInf = std::numeric_limits<float>::infinity();
  LARIAT_CHECK(a_lse != kPosInf && b_lse != kPosInf, "lse of +inf in a partial");
  if (b_lse == kNegInf) return;
  if (a_lse == kNegInf) {
    std::copy_n(b, v_dim, a);
    a_lse = b_lse;
    return;
  }
  const double m = std::max(a_lse, b_lse);
  const double wa = std::exp(a_lse - m);
  const double wb = std::exp(b_lse - m);
  const float fa = static_cast<float>(wa / (wa + wb));
  const float fb = static_cast<float>(wb / (wa + wb));
  for (int i = 0; i < v_dim; ++i) a[i] = a[i] * fa + b[i] * fb;
  a_lse = static_cast<float>(m + std::log(wa + wb));
}

}  // namespace

SlotRange visible_slots(const Mask& mask, const AttentionRow& row, int32_t qpos) {
  SlotRange seen{row.slot_begin, row.slot_end};
  if (mask.kind == MaskKind::kFull) return seen;
  seen.hi = first_at_least(row.positions, seen.lo, seen.hi, int64_t{qpos} + 1);
  if (mask.kind == MaskKind::kWindow)
    seen.lo = first_at_least(row.positions, seen.lo, seen.hi, int64_t{qpos} - mask.window + 1);
  return seen;
}

void finish_tile(const TileTask& task, const TileState& state) {
  const int v_dim = task.row->kv.layout.v_dim;
  const int heads = task.params->heads;
  const int group = heads / task.row->kv.layout.kv_heads;
  const int64_t stride = state_stride(v_dim);
  for (int64_t r = 0; r < task.tokens * group; ++r) {
    const int64_t row = (task.t0 + r / group) * heads + int64_t{task.kv_head} * group + r % group;
    float* out = task.row->out.out + row * v_dim;
    float unwanted = 0;
    float& lse = task.row->out.lse ? task.row->out.lse[row] : unwanted;
    if (state.l[r] == 0.0f) {  // no visible key: the identity
      if (task.row->accumulate) continue;
      std::fill_n(out, v_dim, 0.0f);
      lse = kNegInf;
      continue;
    }
    float* acc = state.acc + r * stride;
    const float inverse = 1.0f / state.l[r];
    for (int i = 0; i < v_dim; ++i) acc[i] *= inverse;
    constexpr double kLn2 = 0.6931471805599453;
    const float own = static_cast<float>(kLn2 * static_cast<double>(state.m[r]) +
                                         std::log(static_cast<double>(state.l[r])));
    if (task.row->accumulate) {
      merge_row(out, lse, acc, own, v_dim);
    } else {
      std::copy_n(acc, v_dim, out);
      lse = own;
    }
  }
}

void merge_rows(PartialView a, PartialView b, int64_t rows, int v_dim) {
  for (int64_t r = 0; r < rows; ++r)
    merge_row(a.out + r * v_dim, a.lse[r], b.out + r * v_dim, b.lse[r], v_dim);
}

}  // namespace lariat::cpu
