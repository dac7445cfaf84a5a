// Which stripe owns a position, and where in it: the one pure map that allocator, writer, reader and verify
// share. Source: docs/design.md §2; Striped Attention (Brandon et al. 2023), section 3.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lariat {

// owner(pos) = pattern[(pos / interleave) % pattern.size()]; local slots of a stripe are its positions in
// order.
class Placement {
 public:
  // pattern: stripe indexes 0..P-1, each at least once, at most kPatternMax entries; interleave >= 1; a
  // period of at most kPeriodMax. kInvalidArgument otherwise.
  static constexpr int32_t kPatternMax = 4096;
  static constexpr int32_t kPeriodMax = 1 << 20;
  static Result<Placement> create(std::vector<int32_t> pattern, int32_t interleave);
  // P equal stripes: [0, 1, .., P-1].
  static Result<Placement> equal(int32_t stripes, int32_t interleave);
  // Shares, each >= 1 (3,1 -> [0,0,1,0]), divided by their greatest common divisor and spread by smooth
  // weighted round robin.
  static Result<Placement> shares(std::span<const int32_t> shares, int32_t interleave);

  int32_t stripes() const { return static_cast<int32_t>(offsets_.size()); }
  int32_t interleave() const { return interleave_; }
  std::span<const int32_t> pattern() const { return pattern_; }
  int32_t period() const { return interleave_ * static_cast<int32_t>(pattern_.size()); }

  StripeIndex owner(TokenPos pos) const;
  LocalSlot local_slot(TokenPos pos) const;  // on its owner
  TokenPos position(StripeIndex stripe, LocalSlot slot) const;
  // How many of positions [0, length) the stripe owns. O(log period).
  int64_t local_count(StripeIndex stripe, int64_t length) const;
  // Slots a stripe has in one period; its positions' offsets inside the period, ascending.
  int32_t slots_per_period(StripeIndex stripe) const;
  std::span<const int32_t> offsets(StripeIndex stripe) const;
  // page_tokens (>= 1) rounded up to a multiple of the period.
  int32_t round_page_tokens(int32_t page_tokens) const;
  // Slots of a page of `page_tokens` (a multiple of the period) on a stripe.
  int32_t page_slots(StripeIndex stripe, int32_t page_tokens) const;

 private:
  Placement() = default;
  std::vector<int32_t> pattern_;
  int32_t interleave_ = 1;
  std::vector<std::vector<int32_t>> offsets_;  // by stripe
  std::vector<int32_t> slot_in_period_;        // by offset in the period: local slot inside it
};

}  // namespace lariat
