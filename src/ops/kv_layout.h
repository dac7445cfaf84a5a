// The bytes of one page of K and V of one layer on one rank: the only place that computes an address inside
// it.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "tensor/dtype.h"

namespace lariat {

// Slots are stored in blocks of kKvBlock. K of a block is transposed, [k_dim][16]: lanes of a vector are
// keys, so a score is one chain of FMAs over d with no horizontal sum, in prefill and in decode alike. V
// stays [16][v_dim]. Sixteen is the widest lane count of any ISA we build, so the layout is the same on every
// rank.
inline constexpr int kKvBlock = 16;

// Page = [kv_heads] of { K: [blocks][k_dim][16], V: [blocks][16][v_dim] }, blocks = ceil(slots / 16).
struct KvLayout {
  DType dtype = DType::kF32;  // f32, bf16 or f16
  int kv_heads = 0;           // held by this rank
  int k_dim = 0;
  int v_dim = 0;
  int slots = 0;  // valid slots a page, on this rank

  int blocks() const { return (slots + kKvBlock - 1) / kKvBlock; }
  int64_t k_block_elements() const { return int64_t{k_dim} * kKvBlock; }
  int64_t v_block_elements() const { return int64_t{v_dim} * kKvBlock; }
  int64_t head_elements() const { return blocks() * (k_block_elements() + v_block_elements()); }
  int64_t page_bytes() const { return kv_heads * head_elements() * static_cast<int64_t>(dtype_size(dtype)); }
  // Element offset, from the page's start, of the K (V) block `block` of head `head`.
  int64_t k_offset(int head, int block) const { return head * head_elements() + block * k_block_elements(); }
  int64_t v_offset(int head, int block) const {
    return head * head_elements() + blocks() * k_block_elements() + block * v_block_elements();
  }
  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// Where a row's local slots are: slot s is slot s % layout.slots of page pages[s / layout.slots], found at
// base + page * page_stride bytes.
struct KvPages {
  KvLayout layout;
  std::byte* base = nullptr;
  int64_t page_stride = 0;        // bytes
  const PageId* pages = nullptr;  // one row's table, in order
  int64_t pages_count = 0;
};

// Positions of local slots as an arithmetic rule: slot s is position (s / n) * period + offsets[s % n], n =
// the number of offsets. Strictly increasing in s. One rank: period 1, offsets {0}.
struct SlotPositions {
  int32_t period = 1;
  const int32_t* offsets = nullptr;
  int32_t offsets_count = 1;

  int32_t at(int64_t slot) const {
    const int64_t turn = slot / offsets_count;
    return static_cast<int32_t>(turn * period + (offsets ? offsets[slot % offsets_count] : 0));
  }
};

}  // namespace lariat
