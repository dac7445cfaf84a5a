#include "attention/kv_block.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace lariat {
namespace {

// Slot `slot` of a paged row or of a block: the page's start, the 16-slot block inside it, the lane.
struct Place {
  std::byte* page = nullptr;
  int block = 0;
  int lane = 0;
};

Place place_of(const KvPages& kv, int64_t slot) {
  const int64_t page = slot / kv.layout.slots;
  LARIAT_CHECK(slot >= 0 && page < kv.pages_count, "slot {} of {} pages of {}", slot, kv.pages_count,
               kv.layout.slots);
  const auto in_page = static_cast<int>(slot % kv.layout.slots);
  return {kv.base + kv.pages[page].get() * kv.page_stride, in_page / kKvBlock, in_page % kKvBlock};
}

template <class T>
void copy_block(const KvLayout& from_layout, const Place& from, const KvLayout& to_layout, const Place& to,
                int head) {
  const auto* src = reinterpret_cast<const T*>(from.page);
  auto* dst = reinterpret_cast<T*>(to.page);
  std::memcpy(dst + to_layout.k_offset(head, to.block), src + from_layout.k_offset(head, from.block),
              static_cast<size_t>(from_layout.k_block_elements()) * sizeof(T));
  std::memcpy(dst + to_layout.v_offset(head, to.block), src + from_layout.v_offset(head, from.block),
              static_cast<size_t>(from_layout.v_block_elements()) * sizeof(T));
}

template <class T>
void copy_lane(const KvLayout& from_layout, const Place& from, const KvLayout& to_layout, const Place& to,
               int head) {
  const T* k = reinterpret_cast<const T*>(from.page) + from_layout.k_offset(head, from.block) + from.lane;
  T* k_to = reinterpret_cast<T*>(to.page) + to_layout.k_offset(head, to.block) + to.lane;
  for (int64_t d = 0; d < from_layout.k_dim; ++d) k_to[d * kKvBlock] = k[d * kKvBlock];
  const T* v = reinterpret_cast<const T*>(from.page) + from_layout.v_offset(head, from.block) +
               int64_t{from.lane} * from_layout.v_dim;
  T* v_to =
      reinterpret_cast<T*>(to.page) + to_layout.v_offset(head, to.block) + int64_t{to.lane} * to_layout.v_dim;
  std::memcpy(v_to, v, static_cast<size_t>(from_layout.v_dim) * sizeof(T));
}

// Tasks of one 16-slot block of the packed side, for every head.
template <class Task>
void for_each_block(Stream& stream, int64_t n, int heads, const Task& task) {
  const int64_t blocks = (n + kKvBlock - 1) / kKvBlock;
  constexpr int64_t kPerTask = 8;
  const int64_t parts = (blocks + kPerTask - 1) / kPerTask;
  stream.pool().parallel_for(parts * heads, [&](int64_t i, int) {
    const auto head = static_cast<int>(i / parts);
    const int64_t first = i % parts * kPerTask;
    for (int64_t b = first; b < std::min(blocks, first + kPerTask); ++b)
      task(head, b * kKvBlock, std::min<int64_t>(kKvBlock, n - b * kKvBlock));
  });
}

template <class T>
void pack_as(Stream& stream, const KvPages& from, int64_t first, int64_t n, const KvPages& to) {
  for_each_block(stream, n, from.layout.kv_heads, [&](int head, int64_t at, int64_t lanes) {
    const Place source = place_of(from, first + at);
    const bool whole =
        lanes == kKvBlock && source.lane == 0 && (source.block + 1) * kKvBlock <= from.layout.slots;
    if (whole) return copy_block<T>(from.layout, source, to.layout, place_of(to, at), head);
    for (int64_t i = at; i < at + lanes; ++i)
      copy_lane<T>(from.layout, place_of(from, first + i), to.layout, place_of(to, i), head);
  });
}

template <class T>
void unpack_as(Stream& stream, const KvPages& from, int64_t n, const int64_t* slots, const KvPages& to) {
  for_each_block(stream, n, from.layout.kv_heads, [&](int head, int64_t at, int64_t lanes) {
    for (int64_t i = at; i < at + lanes; ++i)
      copy_lane<T>(from.layout, place_of(from, i), to.layout, place_of(to, slots[i]), head);
  });
}

constexpr PageId kFirstPage{0};

}  // namespace

KvLayout block_layout(const KvLayout& page, int64_t slots) {
  KvLayout layout = page;
  layout.slots = static_cast<int>((slots + kKvBlock - 1) / kKvBlock * kKvBlock);
  return layout;
}

BlockBytes block_bytes(const KvLayout& page) {
  return {kKvBlock, block_layout(page, kKvBlock).page_bytes()};
}

KvPages block_pages(const KvLayout& page, int64_t slots, std::byte* data) {
  const KvLayout layout = block_layout(page, slots);
  return {layout, data, layout.page_bytes(), &kFirstPage, 1};
}

void pack_slots(Stream& stream, const KvPages& from, int64_t first, int64_t n, std::byte* block) {
  const KvPages to = block_pages(from.layout, n, block);
  if (dtype_size(from.layout.dtype) == 4) return pack_as<uint32_t>(stream, from, first, n, to);
  LARIAT_CHECK(dtype_size(from.layout.dtype) == 2, "KV of dtype {}", dtype_name(from.layout.dtype));
  pack_as<uint16_t>(stream, from, first, n, to);
}

void unpack_slots(Stream& stream, const std::byte* block, int64_t n, const int64_t* slots,
                  const KvPages& to) {
  const KvPages from = block_pages(to.layout, n, const_cast<std::byte*>(block));
  if (dtype_size(to.layout.dtype) == 4) return unpack_as<uint32_t>(stream, from, n, slots, to);
  LARIAT_CHECK(dtype_size(to.layout.dtype) == 2, "KV of dtype {}", dtype_name(to.layout.dtype));
  unpack_as<uint16_t>(stream, from, n, slots, to);
}

BlockPositions block_positions(const Placement& placement, StripeIndex stripe, int64_t first, int64_t n) {
  BlockPositions out;
  out.period = placement.period();
  const int64_t turn = std::min<int64_t>(n, placement.slots_per_period(stripe));
  for (int64_t i = 0; i < turn; ++i)
    out.offsets.push_back(
        placement.position(stripe, LocalSlot(static_cast<LocalSlot::rep>(first + i))).get());
  if (out.offsets.empty()) out.offsets.push_back(0);
  return out;
}

}  // namespace lariat
