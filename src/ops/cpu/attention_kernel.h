// Between the attention op and its CPU kernels: one task is one tile of query rows against a range of slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention.h"

namespace lariat::cpu {

// Keys are handled in tiles of 64 local slots, [i * 64, (i + 1) * 64): a boundary depends on the slot alone.
inline constexpr int kKeyTile = 64;
// Query rows of a tile: (token, head of one KV group), token-major. A multiple of the kernels' 6 rows.
inline constexpr int kQueryRows = 96;

// Slots of a row that a query at one position sees: contiguous, because positions rise with the slot.
struct SlotRange {
  int64_t lo = 0;
  int64_t hi = 0;
  bool empty() const { return lo >= hi; }
};
SlotRange visible_slots(const Mask& mask, const AttentionRow& row, int32_t qpos);

// Softmax state of a tile's rows, in base 2: weight 2^(score - m), l their sum, acc [rows, v_stride] the
// weighted sum of values, not divided by l. No key yet: l = 0 (then m and acc are undefined).
struct TileState {
  float* m = nullptr;
  float* l = nullptr;
  float* acc = nullptr;
};
// Floats between rows of acc; a whole number of the widest vectors.
inline int64_t state_stride(int v_dim) {
  return (int64_t{v_dim} + 15) / 16 * 16;
}
inline int64_t state_floats(int64_t rows, int v_dim) {
  return rows * state_stride(v_dim) + (rows * 2 + 15) / 16 * 16;
}
// A state laid over `state_floats` floats.
inline TileState state_at(float* base, int64_t rows, int v_dim) {
  float* m = base + rows * state_stride(v_dim);
  return TileState{m, m + rows, base};
}

struct TileTask {
  const AttentionRow* row = nullptr;
  const AttentionParams* params = nullptr;
  int kv_head = 0;
  int64_t t0 = 0;      // first query token
  int64_t tokens = 0;  // tokens * (heads / kv_heads) rows, at most max(kQueryRows, heads / kv_heads)
  SlotRange slots;     // lo a multiple of kKeySplit
  // What this thread will likely do next, or null: its first keys are fetched during the last of this task.
  const TileTask* next = nullptr;
};

int64_t tile_rows_max(int group);
// Bytes of scratch of attend_tile.
int64_t tile_scratch_bytes(int group, int k_dim, int v_dim);

// state = the fold of the task's splits, in ascending order.
void attend_tile(const TileTask& task, std::byte* scratch, const TileState& state);
// into = into (+) from, the merge of design.md §3 on undivided sums. `from` is a later split.
void fold_state(const TileState& into, const TileState& from, int64_t rows, int v_dim);
// Divides, turns m and l into a natural-log lse, and writes (or merges into) the task's rows of row->out.
void finish_tile(const TileTask& task, const TileState& state);

// a = a (+) b for rows [0, rows).
void merge_rows(PartialView a, PartialView b, int64_t rows, int v_dim);

}  // namespace lariat::cpu
