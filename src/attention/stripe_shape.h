// Who holds and who computes which positions of a stripe group, from one rank's point of view.
// docs/design.md §1, §2.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/attention.h"

namespace lariat {

struct StripeShape {
  // kInvalidArgument for groups that do not fit the placement.
  static Result<StripeShape> create(const AttentionConfig& config);

  int32_t members;     // C: ranks of the ring; a member computes its share of the new tokens
  int32_t member;      // this rank's
  int32_t duplicates;  // R: ranks of a member that hold the same KV heads; they share its stored positions
  int32_t duplicate;   // this rank's
  bool replicated;
  Placement store;    // striped: over members * duplicates. Replicated: one stripe of everything
  Placement compute;  // over members

  // Stripe that the rank of ring member `of`, at this rank's t, stores.
  StripeIndex stripe(int32_t of) const { return StripeIndex(replicated ? 0 : of * duplicates + duplicate); }
  StripeIndex own_stripe() const { return stripe(member); }
  // Of the first `length` positions: how many it stores.
  int64_t stored(int32_t of, int64_t length) const { return store.local_count(stripe(of), length); }
  // Of the first `length` positions: how many member `of` computes.
  int64_t computed(int32_t of, int64_t length) const { return compute.local_count(StripeIndex(of), length); }
  // Positions among [from, to) that member `of` computes, rising.
  std::vector<int32_t> computed_positions(int32_t of, int64_t from, int64_t to) const;
};

}  // namespace lariat
