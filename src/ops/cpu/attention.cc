// The CPU attention kernel: one tile of query rows against key tiles, with online softmax (flash attention).
// Source: docs/sources.md#flash-attention (Dao 2023, algorithm 1, forward); the split of keys is Dao et al.'s
// flash-decoding, with boundaries fixed by local slot.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/attention_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/attention_gather-inl.h"
#include "ops/cpu/attention_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
// Up to this many query rows, narrow K/V are widened in registers: one pass of the 6-row kernels reads them
// once. With more rows a tile is widened to scratch and then read by every group of six.
constexpr int64_t kInRegisterRows = kRows;

// Everything a task works on, carved from its scratch.
struct TileWork {
  float* q;         // [rows][k_dim], times scale * log2(e)
  float* o;         // [rows][v_stride], of the current split
  float* m;         // [rows]
  float* sums;      // [rows][16], lanes of l
  float* scores;    // [6][64]
  float* k;         // [4][k_dim][16]
  float* v;         // [64][v_stride]
  SlotRange* seen;  // [rows], visible slots
  int64_t rows;
  int64_t v_stride;
  int v_vecs;
};

TileWork carve(const TileTask& task, std::byte* scratch) {
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
  w.scores = take(kRows * kKeyTile);
  w.o = take(rows_max * w.v_stride);
  w.sums = take(rows_max * 16);
  w.m = take(rows_max);
  w.q = take(rows_max * layout.k_dim);
  w.k = take(int64_t{kKeyTile} * layout.k_dim + 16);
  w.v = take(kKeyTile * w.v_stride);
  w.seen = reinterpret_cast<SlotRange*>(next);
  return w;
}

void load_queries(const TileTask& task, const TileWork& w) {
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
}

// Part of `seen` inside a tile, relative to it.
HWY_INLINE SlotRange in_tile(SlotRange seen, int64_t tile_slot) {
  const int64_t lo = std::clamp<int64_t>(seen.lo - tile_slot, 0, kKeyTile);
  return SlotRange{lo, std::clamp<int64_t>(seen.hi - tile_slot, lo, kKeyTile)};
}

// Adds weights times values for rows whose visible keys differ: each row gets exactly its own keys, in
// ascending order, so neither the bits nor a NaN of a key it does not see can reach it.
template <class T>
void add_values(const TileWork& w, int64_t r0, int rows, const SlotRange* keys, const T* const* v,
                const T* const* next, const float* alpha) {
  float* o = w.o + r0 * w.v_stride;
  SlotRange common = keys[0];
  bool same = true;
  for (int r = 1; r < rows; ++r) {
    same = same && keys[r].lo == keys[0].lo && keys[r].hi == keys[0].hi;
    common.lo = std::max(common.lo, keys[r].lo);
    common.hi = std::min(common.hi, keys[r].hi);
  }
  if (same) return pv<T>(rows, w.scores, v, next, common, w.v_vecs, alpha, o, w.v_stride);
  const auto one_row = [&](int r, SlotRange range, const float* factor) HWY_ATTR {
    pv<T>(1, w.scores + r * kKeyTile, v, nullptr, range, w.v_vecs, factor, o + r * w.v_stride, w.v_stride);
  };
  const float one[kRows] = {1, 1, 1, 1, 1, 1};
  if (common.empty()) {
    for (int r = 0; r < rows; ++r)
      if (!keys[r].empty()) one_row(r, keys[r], alpha + r);
    return;
  }
  for (int r = 0; r < rows; ++r) one_row(r, {keys[r].lo, common.lo}, alpha + r);
  pv<T>(rows, w.scores, v, nullptr, common, w.v_vecs, one, o, w.v_stride);
  for (int r = 0; r < rows; ++r)
    if (keys[r].hi != common.hi) one_row(r, {common.hi, keys[r].hi}, one);
}

// One online-softmax update of up to six rows with one key tile. A row that sees no key of it is untouched.
template <class T>
void update_rows(const TileTask& task, const TileWork& w, int64_t r0, int rows, int64_t tile_slot,
                 const KeyTile<T>& tile, const KeyTile<T>* next) {
  const int k_dim = task.row->kv.layout.k_dim;
  SlotRange keys[kRows];
  SlotRange all{kKeyTile, 0};
  for (int r = 0; r < rows; ++r) {
    keys[r] = in_tile(w.seen[r0 + r], tile_slot);
    if (keys[r].empty()) continue;
    all.lo = std::min(all.lo, keys[r].lo);
    all.hi = std::max(all.hi, keys[r].hi);
  }
  if (all.empty()) return;
  qk<T>(rows, w.q + r0 * k_dim, k_dim, tile.k, next ? next->k : nullptr, k_dim, all, w.scores);
  HWY_ALIGN float m[16] = {};
  HWY_ALIGN float drop[16] = {};
  for (int r = 0; r < rows; ++r) {
    const float before = w.m[r0 + r];
    if (keys[r].empty()) {
      m[r] = before;
      continue;
    }
    const float top = row_max(w.scores + r * kKeyTile, keys[r]);
    const float after = before > top ? before : top;
    w.m[r0 + r] = after;
    // All visible scores -inf (an overflow): any finite reference gives weights 0.
    m[r] = after == kNegInf ? 0.0f : after;
    drop[r] = before - m[r];
  }
  HWY_ALIGN float alpha[16];
  for (int i = 0; i < 16; i += kN) hn::Store(exp2_neg(hn::Load(F32Tag(), drop + i)), F32Tag(), alpha + i);
  for (int r = 0; r < rows; ++r) {
    if (!keys[r].empty()) row_weights(w.scores + r * kKeyTile, m[r], alpha[r], w.sums + (r0 + r) * 16);
  }
  add_values<T>(w, r0, rows, keys, tile.v, next ? next->v : nullptr, alpha);
}

// All rows with one tile; the first rows of six fetch the next one.
template <class T>
void update_all(const TileTask& task, const TileWork& w, int64_t tile_slot, const KeyTile<T>& tile,
                const KeyTile<T>* next) {
  for (int64_t r = 0; r < w.rows; r += kRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kRows, w.rows - r));
    update_rows<T>(task, w, r, rows, tile_slot, tile, r == 0 ? next : nullptr);
  }
}

// A task's first keys, as far as they can be known without its queries; empty if they cannot be fetched.
SlotRange first_keys(const TileTask* task, const KvLayout& layout) {
  // The first keys of a window lie somewhere inside the range, and pages before it may be gone.
  if (!task || task->params->mask.kind == MaskKind::kWindow || task->row->kv.layout != layout) return {};
  return {task->slots.lo, std::min(task->slots.lo + kKeyTile, task->slots.hi)};
}

// Finds the keys of `slots` in the tile at tile_slot. Where `before` has keys and this tile none, the
// pointers are those of `before`: a kernel that works on `before` fetches by the same index here.
template <class T>
void point_tile(const TileTask& task, int64_t tile_slot, SlotRange slots, const KeyTile<T>* before,
                KeyTile<T>& tile) {
  tile.keys = in_tile(slots, tile_slot);
  if (before && (tile.keys.lo != 0 || tile.keys.hi != kKeyTile)) std::copy_n(before->v, kKeyTile, tile.v);
  point_k(task.row->kv, task.kv_head, tile_slot, tile.keys, tile);
  point_v(task.row->kv, task.kv_head, tile_slot, tile.keys, tile);
}

// Tiles that are read where they are stored; the task's tiles after `all` are only fetched.
template <class T>
void attend_in_place(const TileTask& task, const TileWork& w, SlotRange all, SlotRange coming) {
  KeyTile<T> tiles[2];
  int64_t slot = all.lo / kKeyTile * kKeyTile;
  int at = 0;
  point_tile<T>(task, slot, all, nullptr, tiles[0]);
  for (; slot < all.hi; slot += kKeyTile, at ^= 1) {
    const KeyTile<T>* next = &tiles[at ^ 1];
    if (slot + kKeyTile < coming.hi) {
      point_tile(task, slot + kKeyTile, coming, &tiles[at], tiles[at ^ 1]);
    } else if (const SlotRange first = first_keys(task.next, task.row->kv.layout); !first.empty()) {
      point_tile(*task.next, first.lo, first, &tiles[at], tiles[at ^ 1]);
    } else {
      next = nullptr;
    }
    update_all<T>(task, w, slot, tiles[at], next);
  }
}

// Tiles that are packed first: narrow types for many rows, and what vectors cannot read in place.
template <class T>
void attend_packed(const TileTask& task, const TileWork& w, SlotRange all) {
  const KvPages& kv = task.row->kv;
  KeyTile<float> tile;
  for (int64_t slot = all.lo / kKeyTile * kKeyTile; slot < all.hi; slot += kKeyTile) {
    tile.keys = in_tile(all, slot);
    pack_k<T>(kv, task.kv_head, slot, tile.keys, w.k, tile);
    if constexpr (std::is_same_v<T, float>) {
      if (kv.layout.v_dim % kN == 0) {
        point_v(kv, task.kv_head, slot, tile.keys, tile);
        update_all<float>(task, w, slot, tile, nullptr);
        continue;
      }
    }
    pack_v<T>(kv, task.kv_head, slot, tile.keys, w.v, tile);
    update_all<float>(task, w, slot, tile, nullptr);
  }
}

template <class T>
void attend_split(const TileTask& task, const TileWork& w, SlotRange split, SlotRange coming) {
  std::fill_n(w.o, w.rows * w.v_stride, 0.0f);
  std::fill_n(w.m, w.rows, kNegInf);
  std::fill_n(w.sums, w.rows * 16, 0.0f);
  SlotRange all{split.hi, split.lo};
  for (int64_t r = 0; r < w.rows; ++r) {
    if (w.seen[r].empty()) continue;
    all.lo = std::min(all.lo, std::max(w.seen[r].lo, split.lo));
    all.hi = std::max(all.hi, std::min(w.seen[r].hi, split.hi));
  }
  if (all.empty()) return;
  const KvLayout& layout = task.row->kv.layout;
  const bool whole = layout.slots % kKvBlock == 0 && layout.v_dim % kN == 0;
  if (whole && (std::is_same_v<T, float> || w.rows <= kInRegisterRows))
    return attend_in_place<T>(task, w, all, coming);
  attend_packed<T>(task, w, all);
}

void fold_split(const TileState& into, const TileState& from, int64_t rows, int v_dim) {
  const F32Tag d;
  const int64_t stride = state_stride(v_dim);
  for (int64_t r = 0; r < rows; ++r) {
    if (from.l[r] == 0.0f) continue;
    float* a = into.acc + r * stride;
    const float* b = from.acc + r * stride;
    if (into.l[r] == 0.0f) {
      into.m[r] = from.m[r];
      into.l[r] = from.l[r];
      std::copy_n(b, stride, a);
      continue;
    }
    const float m = into.m[r] > from.m[r] ? into.m[r] : from.m[r];
    const auto wa = exp2_neg(hn::Set(d, into.m[r] - m));
    const auto wb = exp2_neg(hn::Set(d, from.m[r] - m));
    into.m[r] = m;
    into.l[r] = hn::GetLane(hn::MulAdd(hn::Set(d, from.l[r]), wb, hn::Mul(hn::Set(d, into.l[r]), wa)));
    for (int64_t i = 0; i < stride; i += kN)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, b + i), wb, hn::Mul(hn::LoadU(d, a + i), wa)), d, a + i);
  }
}

void attend_tile_splits(const TileTask& task, std::byte* scratch, const TileState& state) {
  const TileWork w = carve(task, scratch);
  load_queries(task, w);
  std::fill_n(state.l, w.rows, 0.0f);
  SlotRange all{task.slots.hi, task.slots.lo};
  for (int64_t r = 0; r < w.rows; ++r) {
    if (w.seen[r].empty()) continue;
    all.lo = std::min(all.lo, w.seen[r].lo);
    all.hi = std::max(all.hi, w.seen[r].hi);
  }
  const int v_dim = task.row->kv.layout.v_dim;
  for (int64_t slot = all.lo / kKeySplit * kKeySplit; slot < all.hi; slot += kKeySplit) {
    const SlotRange split{std::max(slot, all.lo), std::min(slot + kKeySplit, all.hi)};
    switch (task.row->kv.layout.dtype) {
      case DType::kBF16:
        attend_split<Bf16Bits>(task, w, split, all);
        break;
      case DType::kF16:
        attend_split<F16Bits>(task, w, split, all);
        break;
      default:
        attend_split<float>(task, w, split, all);
        break;
    }
    // The lanes of l collapse into lane 0's place of `sums`, in the instruction set's one order.
    for (int64_t r = 0; r < w.rows; ++r) {
      const F32Tag d;
      w.sums[r] = hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, w.sums + r * 16)));
    }
    fold_split(state, TileState{w.m, w.sums, w.o}, w.rows, v_dim);
  }
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lariat::cpu {

HWY_EXPORT(attend_tile_splits);
HWY_EXPORT(fold_split);

void attend_tile(const TileTask& task, std::byte* scratch, const TileState& state) {
  HWY_DYNAMIC_DISPATCH(attend_tile_splits)(task, scratch, state);
}

void fold_state(const TileState& into, const TileState& from, int64_t rows, int v_dim) {
  HWY_DYNAMIC_DISPATCH(fold_split)(into, from, rows, v_dim);
}

int64_t tile_rows_max(int group) {
  return std::max<int64_t>(kQueryRows, group);
}

int64_t tile_scratch_bytes(int group, int k_dim, int v_dim) {
  const int64_t rows = tile_rows_max(group);
  const int64_t floats = 6 * kKeyTile + rows * (state_stride(v_dim) + 16 + 1 + k_dim) +
                         kKeyTile * (k_dim + state_stride(v_dim)) + 8 * 16;
  return floats * static_cast<int64_t>(sizeof(float)) + rows * static_cast<int64_t>(sizeof(SlotRange));
}

}  // namespace lariat::cpu
#endif
