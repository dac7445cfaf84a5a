// A run of slots as one block of its own: what rotates round a ring. Its bytes are a page of KvLayout with
// just as many slots, so attention reads it where it was received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/kv_layout.h"
#include "placement/placement.h"
#include "ring/kv_rotation.h"
#include "tensor/stream.h"

namespace lariat {

// Slots are rounded up to kKvBlock; the surplus is padding.
KvLayout block_layout(const KvLayout& page, int64_t slots);
BlockBytes block_bytes(const KvLayout& page);
// The block at `data`, seen as the one page 0.
KvPages block_pages(const KvLayout& page, int64_t slots, std::byte* data);

// Block = slots [first, first + n) of `from`. Moves n slots once; whole 16-slot blocks at a time where both
// sides are aligned, else slot by slot.
void pack_slots(Stream& stream, const KvPages& from, int64_t first, int64_t n, std::byte* block);
// Slot slots[i] of `to` = slot i of the block of n slots.
void unpack_slots(Stream& stream, const std::byte* block, int64_t n, const int64_t* slots, const KvPages& to);

// Positions of slots [first, first + n) of a stripe, renumbered from 0.
struct BlockPositions {
  int32_t period = 1;
  std::vector<int32_t> offsets;
  SlotPositions slots() const { return {period, offsets.data(), static_cast<int32_t>(offsets.size())}; }
};
BlockPositions block_positions(const Placement& placement, StripeIndex stripe, int64_t first, int64_t n);

}  // namespace lariat
