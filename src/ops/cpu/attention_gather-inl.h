// Finds a key tile's K blocks and V rows through the page table, or packs them into f32 scratch where the
// stored form cannot be read in place.
#if defined(LARIAT_OPS_CPU_ATTENTION_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LARIAT_OPS_CPU_ATTENTION_GATHER_INL_H_
#undef LARIAT_OPS_CPU_ATTENTION_GATHER_INL_H_
#else
#define LARIAT_OPS_CPU_ATTENTION_GATHER_INL_H_
#endif

#include <cstdint>

#include "ops/cpu/attention_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lariat::cpu::HWY_NAMESPACE {

// k[v]: the v-th vector's lanes of row d = 0, 16 elements between rows. v[i]: value of key i of the tile.
// Both of key range `keys`.
template <class T>
struct KeyTile {
  SlotRange keys;
  const T* k[kTileVecs];
  const T* v[kKeyTile];
};

// Walks local slots through the pages of one KV head.
template <class T>
class SlotCursor {
 public:
  SlotCursor(const KvPages& kv, int head, int64_t slot)
      : kv_(kv), head_(head), page_(slot / kv.layout.slots), slot_(static_cast<int>(slot % kv.layout.slots)) {
    enter();
  }
  const T* k_block() const { return base_ + kv_.layout.k_offset(head_, slot_ / kKvBlock); }
  const T* k() const { return k_block() + slot_ % kKvBlock; }
  const T* v() const {
    return base_ + kv_.layout.v_offset(head_, slot_ / kKvBlock) + slot_ % kKvBlock * kv_.layout.v_dim;
  }
  // Slots from here to the end of the page.
  int left() const { return kv_.layout.slots - slot_; }
  int left_in_block() const { return HWY_MIN(left(), kKvBlock - slot_ % kKvBlock); }
  void advance(int slots) {
    slot_ += slots;
    if (slot_ < kv_.layout.slots) return;
    slot_ -= kv_.layout.slots;
    ++page_;
    enter();
  }

 private:
  // One step past the row's last page is a legal place to stand, not to read.
  void enter() {
    if (page_ < kv_.pages_count)
      base_ = reinterpret_cast<const T*>(kv_.base + kv_.pages[page_].get() * kv_.page_stride);
  }

  const KvPages& kv_;
  int head_;
  int64_t page_;
  int slot_;
  const T* base_ = nullptr;
};

// Points at the tile's keys [keys) in the pages. Needs page slots in whole blocks, and v_dim in whole
// vectors (a vector read past the last row of a page could leave the pool).
template <class T>
HWY_INLINE void point_k(const KvPages& kv, int head, int64_t tile_slot, SlotRange keys, KeyTile<T>& tile) {
  const int first = static_cast<int>(keys.lo / kKvBlock);
  const int last = static_cast<int>((keys.hi - 1) / kKvBlock);
  SlotCursor<T> cursor(kv, head, tile_slot + first * kKvBlock);
  const T* blocks[kKeyTile / kKvBlock];
  for (int b = first; b <= last; ++b, cursor.advance(kKvBlock)) blocks[b] = cursor.k_block();
  // Blocks without a key are never looked up (their page may be gone); a kernel that computes them anyway
  // reads a neighbour's, and the scores are dropped.
  for (int b = 0; b < first; ++b) blocks[b] = blocks[first];
  for (int b = last + 1; b < kKeyTile / kKvBlock; ++b) blocks[b] = blocks[first];
  for (int v = 0; v < kTileVecs; ++v) tile.k[v] = blocks[v * kN / kKvBlock] + v * kN % kKvBlock;
}

// Values of one page follow each other, whatever their block.
template <class T>
HWY_INLINE void point_v(const KvPages& kv, int head, int64_t tile_slot, SlotRange keys, KeyTile<T>& tile) {
  SlotCursor<T> cursor(kv, head, tile_slot + keys.lo);
  for (int64_t i = keys.lo; i < keys.hi;) {
    const int run = static_cast<int>(HWY_MIN(int64_t{cursor.left()}, keys.hi - i));
    const T* v = cursor.v();
    for (int j = 0; j < run; ++j, v += kv.layout.v_dim) tile.v[i + j] = v;
    i += run;
    cursor.advance(run);
  }
}

HWY_INLINE float widen(float x) {
  return x;
}
HWY_INLINE float widen(Bf16Bits x) {
  return bf16_to_f32(x.bits);
}
HWY_INLINE float widen(F16Bits x) {
  return f16_to_f32(x.bits);
}

template <class T>
HWY_INLINE void widen_row(const T* HWY_RESTRICT from, int64_t n, float* HWY_RESTRICT to) {
  int64_t i = 0;
  for (; i + kN <= n; i += kN) hn::StoreU(load_widen(from + i), F32Tag(), to + i);
  for (; i < n; ++i) to[i] = widen(from[i]);
}

// A run of keys that lie side by side in one stored block and go side by side into one packed block.
template <class T>
struct KeyRun {
  const T* from;
  int lane;  // of the packed block
  int count;
};

// Packs keys [lo, hi) of one block of 16; to [k_dim][16] and one vector behind it. Whole vectors are stored,
// row by row and in ascending lanes: what one writes too much the next run, or the next row, overwrites, or
// it is a lane that no key has. Reading a vector from inside a block can touch what follows it in the page,
// where there is always a V block.
template <class T>
HWY_INLINE void pack_k_block(SlotCursor<T>& cursor, int lo, int hi, int k_dim, float* HWY_RESTRICT to) {
  KeyRun<T> runs[kKvBlock];
  int n = 0;
  for (int lane = lo; lane < hi;) {
    const int count = HWY_MIN(hi - lane, cursor.left_in_block());
    runs[n++] = {cursor.k(), lane, count};
    lane += count;
    cursor.advance(count);
  }
  for (int64_t d = 0; d < k_dim; ++d) {
    for (int r = 0; r < n; ++r) {
      for (int i = 0; i < runs[r].count; i += kN)
        hn::StoreU(load_widen(runs[r].from + d * kKvBlock + i), F32Tag(),
                   to + d * kKvBlock + runs[r].lane + i);
    }
  }
}

// k_scratch [4][k_dim][16] and one vector.
template <class T>
HWY_INLINE void pack_k(const KvPages& kv, int head, int64_t tile_slot, SlotRange keys, float* k_scratch,
                       KeyTile<float>& tile) {
  const int64_t block_floats = kv.layout.k_block_elements();
  if (kv.layout.slots % kKvBlock == 0) {
    KeyTile<T> stored;
    point_k(kv, head, tile_slot, keys, stored);
    for (int64_t b = keys.lo / kKvBlock; b <= (keys.hi - 1) / kKvBlock; ++b)
      widen_row(stored.k[b * kKvBlock / kN], block_floats, k_scratch + b * block_floats);
  } else {
    SlotCursor<T> cursor(kv, head, tile_slot + keys.lo);
    for (int64_t b = keys.lo / kKvBlock; b <= (keys.hi - 1) / kKvBlock; ++b) {
      const int lo = static_cast<int>(HWY_MAX(keys.lo - b * kKvBlock, int64_t{0}));
      const int hi = static_cast<int>(HWY_MIN(keys.hi - b * kKvBlock, int64_t{kKvBlock}));
      pack_k_block(cursor, lo, hi, kv.layout.k_dim, k_scratch + b * block_floats);
    }
  }
  for (int v = 0; v < kTileVecs; ++v)
    tile.k[v] = k_scratch + v * kN / kKvBlock * block_floats + v * kN % kKvBlock;
}

// v_scratch [64][v_stride]; columns v_dim.. are zero.
template <class T>
HWY_INLINE void pack_v(const KvPages& kv, int head, int64_t tile_slot, SlotRange keys, float* v_scratch,
                       KeyTile<float>& tile) {
  const int64_t stride = state_stride(kv.layout.v_dim);
  SlotCursor<T> cursor(kv, head, tile_slot + keys.lo);
  for (int64_t i = keys.lo; i < keys.hi; ++i, cursor.advance(1)) {
    float* to = v_scratch + i * stride;
    widen_row(cursor.v(), kv.layout.v_dim, to);
    for (int64_t c = kv.layout.v_dim; c < stride; ++c) to[c] = 0.0f;
    tile.v[i] = to;
  }
}

}  // namespace lariat::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
