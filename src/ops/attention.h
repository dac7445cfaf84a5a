// Attention of query rows against paged K/V that one rank holds, as a partial result with its log-sum-exp.
// Source: docs/sources.md#flash-attention (tiled online softmax), docs/design.md §2, §3.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "ops/kv_layout.h"
#include "tensor/stream.h"

namespace lariat {

enum class MaskKind : uint8_t { kCausal, kWindow, kFull };

// Masks are functions of positions. causal: visible iff kpos <= qpos. window w: iff 0 <= qpos - kpos < w.
struct Mask {
  MaskKind kind = MaskKind::kCausal;
  int32_t window = 0;  // > 0 for kWindow
  bool visible(int32_t qpos, int32_t kpos) const {
    if (kind == MaskKind::kFull) return true;
    if (kpos > qpos) return false;
    return kind == MaskKind::kCausal || qpos - kpos < window;
  }
};

// A Partial in memory somebody else owns: out [T, H, Dv] f32, lse [T, H] f32, natural log, scale applied.
// No visible key: out = 0, lse = -inf (the identity of merge). lse may be null for a result that nobody will
// merge.
struct PartialView {
  float* out = nullptr;
  float* lse = nullptr;
};

// One row (sequence) of a call. The keys are local slots [slot_begin, slot_end) of `kv`; those the mask
// hides, and slots outside the range, are never read into arithmetic (NaN there reaches nothing).
struct AttentionRow {
  const float* q = nullptr;        // [T, H, k_dim] f32, q_stride floats between tokens
  const int32_t* q_pos = nullptr;  // [T], non-decreasing
  int64_t t = 0;                   // query tokens; 0 is allowed and does nothing
  KvPages kv;
  SlotPositions positions;
  int64_t slot_begin =
      0;  // a multiple of kKeySplit, so that a block's partial has the same boundaries as the whole
  int64_t slot_end = 0;
  PartialView out;  // overwritten, or folded into if `accumulate`
  bool accumulate = false;
  int64_t q_stride = 0;  // 0: H * k_dim
};

struct AttentionParams {
  int heads = 0;  // query heads H; kv_heads divides it; query head h reads kv head h / (H / kv_heads)
  float scale = 1.0f;
  Mask mask;
};

// Key splits: softmax starts anew at every local slot i*kKeySplit, and the splits' sums are merged in
// ascending order (docs/design.md §3, before the division), in prefill and decode alike. Inside a split keys
// go in tiles of 64 local slots. All boundaries depend on slots alone, so a row's bits depend neither on the
// chunk it was computed in, nor on other rows, the thread count or the page size. Pages of whole blocks
// (slots % kKvBlock == 0) are read in place; others are packed tile by tile, which costs decode about half
// its speed.
inline constexpr int kKeySplit = 1024;

// Attends every row. Work is split over (row, kv head, query tile) and, where those are few for the threads,
// over key splits, whose sums are kept for one wave of splits at a time: workspace is O(threads * tile) plus
// a bounded wave, never O(T * T), never O(S). Bug (CHECK): shapes that disagree. Cost: 2 * T * S_visible * H
// * (k_dim + v_dim) flops; one read of the visible K/V for each 96 query rows of a KV head.
void attention(Stream& stream, const AttentionParams& params, std::span<const AttentionRow> rows);

// Bytes of scratch that `attention` needs at most on a stream of `threads` threads (for capacity planning).
int64_t attention_workspace_bytes(int threads, int heads, int kv_heads, int k_dim, int v_dim);

// Folds partial `b` into `a`, in place: docs/design.md §3. [T,H,D] / [T,H]. All -inf gives the identity,
// never NaN; +inf in an lse is a CHECK. Source: docs/sources.md#merge.
void merge_partial(Stream& stream, PartialView a, PartialView b, int64_t rows /* T*H */, int v_dim);

// Writes n tokens' K [n, kv_heads, k_dim] and V [n, kv_heads, v_dim] (f32) to local slots slots[i], rounded
// to the layout's dtype (nearest even). slots[i] < 0: not stored here, skipped.
struct KvWriteArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t k_stride = 0;  // floats between tokens
  int64_t v_stride = 0;
  const int64_t* slots = nullptr;
  int64_t n = 0;
  KvPages kv;
};
void kv_write(Stream& stream, std::span<const KvWriteArgs> rows);

}  // namespace lariat
