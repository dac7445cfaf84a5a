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
#include "ops/cpu/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

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
  KeyTile<T> tiles[3];  // the one before (its last values may be due), this one, the next one
  RowPipe<T> pipe(task, w);
  int64_t slot = all.lo / kKeyTile * kKeyTile;
  int at = 0;
  point_tile<T>(task, slot, all, nullptr, tiles[0]);
  for (; slot < all.hi; slot += kKeyTile) {
    const int ahead = at == 2 ? 0 : at + 1;
    const KeyTile<T>* next = &tiles[ahead];
    if (slot + kKeyTile < coming.hi) {
      point_tile(task, slot + kKeyTile, coming, &tiles[at], tiles[ahead]);
    } else if (const SlotRange first = first_keys(task.next, task.row->kv.layout); !first.empty()) {
      point_tile(*task.next, first.lo, first, &tiles[at], tiles[ahead]);
    } else {
      next = nullptr;
    }
    pipe.tile(slot, &tiles[at], next);
    at = ahead;
  }
  pipe.flush();
}

// Tiles that are packed first: narrow types for many rows, and what vectors cannot read in place.
template <class T>
void attend_packed(const TileTask& task, const TileWork& w, SlotRange all) {
  const KvPages& kv = task.row->kv;
  const bool v_in_place = std::is_same_v<T, float> && kv.layout.v_dim % kN == 0;
  KeyTile<float> tile;
  RowPipe<float> pipe(task, w);
  for (int64_t slot = all.lo / kKeyTile * kKeyTile; slot < all.hi; slot += kKeyTile) {
    tile.keys = in_tile(all, slot);
    pack_k<T>(kv, task.kv_head, slot, tile.keys, w.k, tile);
    if (!v_in_place) {
      pack_v<T>(kv, task.kv_head, slot, tile.keys, w.v, tile);
    } else if constexpr (std::is_same_v<T, float>) {
      point_v(kv, task.kv_head, slot, tile.keys, tile);
    }
    pipe.tile(slot, &tile, nullptr);
    pipe.flush();  // the next tile overwrites this one
  }
}

// Up to six query rows, narrow K/V are widened in registers: they are read once. With more rows a tile is
// widened to scratch and then read by every six.
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
  if (whole && (std::is_same_v<T, float> || w.rows <= kRows)) return attend_in_place<T>(task, w, all, coming);
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
  const int64_t floats = 12 * kKeyTile + rows * (state_stride(v_dim) + 16 + 1 + k_dim) +
                         kKeyTile * (k_dim + state_stride(v_dim)) + 8 * 16;
  return floats * static_cast<int64_t>(sizeof(float)) + 2 * rows * static_cast<int64_t>(sizeof(SlotRange));
}

}  // namespace lariat::cpu
#endif
