// Online softmax of a tile of query rows against key tiles, six rows at a time.
#if defined(LARIAT_OPS_CPU_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_OPS_CPU_ATTENTION_ROWS_INL_H_
#undef LARIAT_OPS_CPU_ATTENTION_ROWS_INL_H_
#else
#define LARIAT_OPS_CPU_ATTENTION_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/cpu/attention_gather-inl.h"
#include "ops/cpu/attention_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();
// Everything a task works on, carved from its scratch.
struct TileWork {
  float* q;           // [rows][k_dim], times scale * log2(e)
  float* o;           // [rows][v_stride], of the current split
  float* m;           // [rows]
  float* sums;        // [rows][16], lanes of l
  float* scores;      // [6][64]
  float* k;           // [4][k_dim][16]
  float* v;           // [64][v_stride]
  SlotRange* seen;    // [rows], visible slots
  SlotRange* common;  // [rows / 6], slots that all six see
  int64_t rows;
  int64_t v_stride;
  int v_vecs;
};

HWY_INLINE TileWork carve(const TileTask& task, std::byte* scratch) {
  const KvLayout& layout = task.row->kv.layout;
  const int group = task.params->heads / layout.kv_heads;
  TileWork w;
  w.rows = task.tokens * group;
  w.v_stride = state_stride(layout.v_dim);
  w.v_vecs = (layout.v_dim + kN - 1) / kN;
  const int64_t rows_max = tile_rows_max(group);
  float* next = reinterpret_cast<float*>(scratch);
  const auto take = [&next](int64_t floats) {
    float* p = next;
    next += (floats + 15) / 16 * 16;
    return p;
  };
  w.scores = take(2 * kRows * kKeyTile);
  w.o = take(rows_max * w.v_stride);
  w.sums = take(rows_max * 16);
  w.m = take(rows_max);
  w.q = take(rows_max * layout.k_dim);
  w.k = take(int64_t{kKeyTile} * layout.k_dim + 16);
  w.v = take(kKeyTile * w.v_stride);
  w.seen = reinterpret_cast<SlotRange*>(next);
  w.common = w.seen + rows_max;
  return w;
}

HWY_INLINE void load_queries(const TileTask& task, const TileWork& w) {
  const KvLayout& layout = task.row->kv.layout;
  const int heads = task.params->heads;
  const int group = heads / layout.kv_heads;
  // Scores in base 2: one rounding of the factor, one of each product, in prefill and decode alike.
  const float factor = static_cast<float>(static_cast<double>(task.params->scale) * 1.4426950408889634);
  const int64_t stride = task.row->q_stride != 0 ? task.row->q_stride : int64_t{heads} * layout.k_dim;
  for (int64_t i = 0; i < task.tokens; ++i) {
    const int64_t token = task.t0 + i;
    const float* from = task.row->q + token * stride + int64_t{task.kv_head} * group * layout.k_dim;
    float* to = w.q + i * group * layout.k_dim;
    for (int64_t j = 0; j < int64_t{group} * layout.k_dim; ++j) to[j] = from[j] * factor;
    SlotRange seen = visible_slots(task.params->mask, *task.row, task.row->q_pos[token]);
    seen.lo = std::max(seen.lo, task.slots.lo);
    seen.hi = std::max(seen.lo, std::min(seen.hi, task.slots.hi));
    std::fill_n(w.seen + i * group, group, seen);
  }
  for (int64_t r = 0; r < w.rows; ++r) {
    SlotRange& common = w.common[r / kRows];
    if (r % kRows == 0) common = w.seen[r];
    common.lo = std::max(common.lo, w.seen[r].lo);
    common.hi = std::min(common.hi, w.seen[r].hi);
  }
}

// Part of `seen` inside a tile, relative to it.
HWY_INLINE SlotRange in_tile(SlotRange seen, int64_t tile_slot) {
  const int64_t lo = std::clamp<int64_t>(seen.lo - tile_slot, 0, kKeyTile);
  return SlotRange{lo, std::clamp<int64_t>(seen.hi - tile_slot, lo, kKeyTile)};
}

// Up to six rows against one key tile, between scores and values.
template <class T>
struct RowStep {
  int64_t r0 = 0;
  int rows = 0;
  const KeyTile<T>* tile = nullptr;
  const KeyTile<T>* next = nullptr;  // to fetch meanwhile, or null
  float* scores = nullptr;           // [6][64]
  SlotRange keys[kRows];             // of the tile, by row
  bool same = false;                 // all rows have the same keys
  HWY_ALIGN float m[16];             // the scores' reference
  HWY_ALIGN float alpha[16];         // factor of what was summed before
};

// Which keys of the tile each row sees. False if none sees any.
template <class T>
HWY_INLINE bool find_keys(const TileWork& w, int64_t tile_slot, RowStep<T>& step, SlotRange& any) {
  const SlotRange common = w.common[step.r0 / kRows];
  step.same = common.lo <= tile_slot && common.hi >= tile_slot + kKeyTile;
  any = {0, kKeyTile};
  if (step.same) {  // most tiles
    std::fill_n(step.keys, kRows, any);
    return true;
  }
  any = {kKeyTile, 0};
  step.same = true;
  for (int r = 0; r < step.rows; ++r) {
    const SlotRange keys = step.keys[r] = in_tile(w.seen[step.r0 + r], tile_slot);
    step.same = step.same && keys.lo == step.keys[0].lo && keys.hi == step.keys[0].hi;
    if (keys.empty()) continue;
    any.lo = std::min(any.lo, keys.lo);
    any.hi = std::max(any.hi, keys.hi);
  }
  return !any.empty();
}

// Scores, and the maxima they bring. False if no row sees a key of the tile. A row that sees none is
// untouched, here and in weigh_rows.
template <class T>
bool score_rows(const TileTask& task, const TileWork& w, int64_t tile_slot, RowStep<T>& step) {
  const int k_dim = task.row->kv.layout.k_dim;
  SlotRange any;
  if (!find_keys(w, tile_slot, step, any)) return false;
  qk<T>(step.rows, w.q + step.r0 * k_dim, k_dim, step.tile->k, step.next ? step.next->k : nullptr, k_dim, any,
        step.scores);
  HWY_ALIGN float drop[16] = {};
  for (int r = 0; r < step.rows; ++r) {
    if (step.keys[r].empty()) continue;
    const float before = w.m[step.r0 + r];
    const float top = row_max(step.scores + r * kKeyTile, step.keys[r]);
    const float after = before > top ? before : top;
    w.m[step.r0 + r] = after;
    // All visible scores -inf (an overflow): any finite reference gives weights 0.
    step.m[r] = after == kNegInf ? 0.0f : after;
    drop[r] = before - step.m[r];
  }
  for (int i = 0; i < 16; i += kN)
    hn::Store(exp2_neg(hn::Load(F32Tag(), drop + i)), F32Tag(), step.alpha + i);
  return true;
}

// Adds weights times values for rows whose visible keys differ: each row gets exactly its own keys, in
// ascending order, so neither the bits nor a NaN of a key it does not see can reach it.
template <class T>
void add_values(const TileWork& w, const RowStep<T>& step) {
  const SlotRange* keys = step.keys;
  const float* s = step.scores;
  const T* const* v = step.tile->v;
  float* o = w.o + step.r0 * w.v_stride;
  if (step.same) {
    const T* const* next = step.next ? step.next->v : nullptr;
    return pv<T>(step.rows, s, v, next, keys[0], w.v_vecs, step.alpha, o, w.v_stride);
  }
  SlotRange common = keys[0];
  for (int r = 1; r < step.rows; ++r) {
    common.lo = std::max(common.lo, keys[r].lo);
    common.hi = std::min(common.hi, keys[r].hi);
  }
  const auto one_row = [&](int r, SlotRange range, const float* factor) HWY_ATTR {
    pv<T>(1, s + r * kKeyTile, v, nullptr, range, w.v_vecs, factor, o + r * w.v_stride, w.v_stride);
  };
  const float one[kRows] = {1, 1, 1, 1, 1, 1};
  if (common.empty()) {
    for (int r = 0; r < step.rows; ++r)
      if (!keys[r].empty()) one_row(r, keys[r], step.alpha + r);
    return;
  }
  for (int r = 0; r < step.rows; ++r) one_row(r, {keys[r].lo, common.lo}, step.alpha + r);
  pv<T>(step.rows, s, v, nullptr, common, w.v_vecs, one, o, w.v_stride);
  for (int r = 0; r < step.rows; ++r)
    if (keys[r].hi != common.hi) one_row(r, {common.hi, keys[r].hi}, one);
}

// The other half of a step: scores become weights, weights meet values.
template <class T>
void weigh_rows(const TileWork& w, RowStep<T>& step) {
  for (int r = 0; r < step.rows; ++r) {
    if (!step.keys[r].empty())
      row_weights(step.scores + r * kKeyTile, step.m[r], step.alpha[r], w.sums + (step.r0 + r) * 16);
  }
  add_values<T>(w, step);
}

// Runs steps one half apart: the scores of a step are computed before the values of the one before it, so
// that the processor has independent work during the short dependent chains between the halves.
template <class T>
class RowPipe {
 public:
  RowPipe(const TileTask& task, const TileWork& w) : task_(task), w_(w) {
    steps_[0].scores = w.scores;
    steps_[1].scores = w.scores + kRows * kKeyTile;
  }

  // All rows with one tile; the first rows fetch `next`. `tile` and `next` stay until the last step of the
  // tile after this one, or flush().
  void tile(int64_t tile_slot, const KeyTile<T>* tile, const KeyTile<T>* next) {
    // A few rows fetch as they read. With many, each six fetch their part ahead of their own work.
    const bool in_kernel = w_.rows <= 2 * kRows;
    for (int64_t r = 0; r < w_.rows; r += kRows) {
      RowStep<T>& step = steps_[at_];
      if (next && !in_kernel) fetch_k(*next, r);
      step.r0 = r;
      step.rows = static_cast<int>(std::min<int64_t>(kRows, w_.rows - r));
      step.tile = tile;
      step.next = in_kernel && r == 0 ? next : nullptr;
      const bool any = score_rows(task_, w_, tile_slot, step);
      if (next && !in_kernel) fetch_v(*next, r);
      if (!any) continue;
      flush();
      waiting_ = true;
      at_ ^= 1;
    }
  }

  void flush() {
    if (waiting_) weigh_rows(w_, steps_[at_ ^ 1]);
    waiting_ = false;
  }

 private:
  // The share of `next` that six rows of all fetch.
  void fetch_k(const KeyTile<T>& next, int64_t r) {
    const int64_t k_dim = task_.row->kv.layout.k_dim;
    const int64_t end = std::min(r + kRows, w_.rows);
    for (int64_t d = k_dim * r / w_.rows; d < k_dim * end / w_.rows; ++d) {
      for (int v = 0; v < kTileVecs; v += kKvBlock / kN) fetch(next.k[v] + d * kKvBlock);
    }
  }
  void fetch_v(const KeyTile<T>& next, int64_t r) {
    constexpr int64_t kLine = 64 / sizeof(T);
    const int64_t v_dim = task_.row->kv.layout.v_dim;
    const int64_t n = next.keys.hi - next.keys.lo;
    const int64_t end = std::min(r + kRows, w_.rows);
    for (int64_t i = n * r / w_.rows; i < n * end / w_.rows; ++i) {
      for (int64_t c = 0; c < v_dim; c += kLine) fetch(next.v[next.keys.lo + i] + c);
    }
  }

  const TileTask& task_;
  const TileWork& w_;
  RowStep<T> steps_[2];
  int at_ = 0;
  bool waiting_ = false;
};

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
