// pass_kv as data: K/V sub-blocks rotate round the ring, one computed while the next is in flight.
// Source: docs/sources.md#ring; docs/design.md §4.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lariat {

// Bytes of a sub-block on the wire: slots in units, the last one padded.
struct BlockBytes {
  int64_t unit_slots = 1;
  int64_t unit_bytes = 0;
  int64_t operator()(int64_t slots) const { return (slots + unit_slots - 1) / unit_slots * unit_bytes; }
};

// One turn of the ring: every member's sub-block visits every other member.
struct RingRound {
  std::vector<int64_t> first;  // by origin: the sub-block's first slot in what the origin contributes
  std::vector<int64_t> slots;  // by origin: how many; may be 0
};

// What each member contributes (slots, by member), cut into sub-blocks of at most `block` >= 1 slots. As many
// rounds as the member with the most needs; none if all have none.
std::vector<RingRound> cut_rounds(std::span<const int64_t> slots, int64_t block);

// Buffers of a rotation: the member's own sub-block is staged in one, two receive in turn.
inline constexpr int32_t kOwnBuffer = 0;
inline constexpr int32_t kRingBuffers = 3;

enum class RotateKind : uint8_t {
  kLoad,     // own sub-block of `round` into kOwnBuffer
  kPost,     // one ring shift: send `send_buffer`, receive into `buffer` the sub-block of `origin`
  kCompute,  // attend the sub-block of (round, origin) in `buffer`
  kWait,     // for the shift posted last
};

struct RotateOp {
  RotateKind kind = RotateKind::kWait;
  int32_t round = 0;
  int32_t origin = 0;
  int32_t buffer = 0;
  int32_t send_buffer = 0;
  int64_t slots = 0;       // of the sub-block in `buffer`
  int64_t send_slots = 0;  // kPost
  friend bool operator==(const RotateOp&, const RotateOp&) = default;
};

// What member `rank` of `size` does. Sub-blocks are computed round by round, own first, then those of rank -
// 1, rank - 2, .. mod size; empty ones are neither loaded nor computed, but posted, so that every member
// posts alike. At every compute except a ring's very last, and with more than one member, a shift is in
// flight. Bug: counts that are not of `size` members.
std::vector<RotateOp> rotate_blocks(int32_t rank, int32_t size, std::span<const RingRound> rounds);

// The shifts of a rotation in order, each as slots sent by member.
std::vector<std::vector<int64_t>> rotation_shifts(int32_t size, std::span<const RingRound> rounds);

}  // namespace lariat
