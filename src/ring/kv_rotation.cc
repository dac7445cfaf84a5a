#include "ring/kv_rotation.h"

#include <algorithm>

#include "base/check.h"

namespace lariat {
namespace {

int32_t behind(int32_t rank, int32_t steps, int32_t size) {
  return ((rank - steps) % size + size) % size;
}

int64_t slots_of(const RingRound& round, int32_t origin) {
  return round.slots[static_cast<size_t>(origin)];
}

// Writes one member's ops; remembers the block that arrived last and is still to be computed.
class Rotation {
 public:
  Rotation(int32_t rank, int32_t size, std::span<const RingRound> rounds)
      : rank_(rank), size_(size), rounds_(rounds) {}

  std::vector<RotateOp> run() {
    for (size_t j = 0; j < rounds_.size(); ++j) turn(static_cast<int32_t>(j));
    compute(arrived_);
    return std::move(ops_);
  }

 private:
  struct Block {
    int32_t round = 0;
    int32_t origin = 0;
    int32_t buffer = -1;  // none
  };

  void turn(int32_t round) {
    const Block own{round, rank_, kOwnBuffer};
    if (slots(own) > 0) add({RotateKind::kLoad, round, rank_, kOwnBuffer, 0, slots(own), 0});
    if (size_ == 1) return compute(own);
    Block next = post(own, behind(rank_, 1, size_));
    compute(arrived_);  // the last of the round before
    compute(own);
    wait(next);
    for (int32_t step = 2; step < size_; ++step) {
      const Block held = arrived_;
      next = post(held, behind(rank_, step, size_));
      compute(held);
      wait(next);
    }
  }

  // Sends `held` on and receives the next sub-block of its round into the buffer whose turn it is.
  Block post(const Block& held, int32_t origin) {
    const Block next{held.round, origin, 1 + shifts_++ % 2};
    add({RotateKind::kPost, next.round, origin, next.buffer, held.buffer, slots(next), slots(held)});
    return next;
  }
  void wait(const Block& next) {
    add({RotateKind::kWait, next.round, next.origin, next.buffer, 0, slots(next), 0});
    arrived_ = next;
  }
  void compute(const Block& block) {
    if (block.buffer < 0 || slots(block) == 0) return;
    add({RotateKind::kCompute, block.round, block.origin, block.buffer, 0, slots(block), 0});
  }
  int64_t slots(const Block& block) const {
    return slots_of(rounds_[static_cast<size_t>(block.round)], block.origin);
  }
  void add(const RotateOp& op) { ops_.push_back(op); }

  int32_t rank_;
  int32_t size_;
  std::span<const RingRound> rounds_;
  int32_t shifts_ = 0;
  Block arrived_;
  std::vector<RotateOp> ops_;
};

}  // namespace

std::vector<RingRound> cut_rounds(std::span<const int64_t> slots, int64_t block) {
  LARIAT_CHECK(block >= 1 && !slots.empty(), "{} members, blocks of {}", slots.size(), block);
  std::vector<RingRound> rounds;
  const int64_t most = *std::max_element(slots.begin(), slots.end());
  for (int64_t first = 0; first < most; first += block) {
    RingRound& round = rounds.emplace_back();
    for (const int64_t n : slots) {
      LARIAT_CHECK(n >= 0, "{} slots", n);
      round.first.push_back(std::min(first, n));
      round.slots.push_back(std::clamp<int64_t>(n - first, 0, block));
    }
  }
  return rounds;
}

std::vector<RotateOp> rotate_blocks(int32_t rank, int32_t size, std::span<const RingRound> rounds) {
  LARIAT_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  for (const RingRound& round : rounds)
    LARIAT_CHECK(round.slots.size() == static_cast<size_t>(size), "{} counts for {} members",
                 round.slots.size(), size);
  return Rotation(rank, size, rounds).run();
}

std::vector<std::vector<int64_t>> rotation_shifts(int32_t size, std::span<const RingRound> rounds) {
  std::vector<std::vector<int64_t>> shifts;
  for (const RingRound& round : rounds)
    for (int32_t step = 0; step + 1 < size; ++step) {
      auto& sent = shifts.emplace_back();
      for (int32_t m = 0; m < size; ++m) sent.push_back(slots_of(round, behind(m, step, size)));
    }
  return shifts;
}

}  // namespace lariat
