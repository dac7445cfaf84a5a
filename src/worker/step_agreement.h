// What ranks tell each other around a step, so that all of them end it alike. docs/design.md §5 (lockstep).
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "comm/group.h"

namespace lariat {

// Collectives of the world group; with one rank (no group) every call answers at once from what it is given.
// Errors beside the agreed ones are the group's: a peer that is lost or late, by name.
class StepAgreement {
 public:
  StepAgreement(Group* world, std::chrono::milliseconds timeout) : world_(world), timeout_(timeout) {}

  // Before a pass's first exchange: Ok if every rank can go on, else on every rank the same error, that of
  // the lowest rank which cannot, named. `fingerprint` (of the schedule each rank derived) must agree too.
  Status ready(const Status& own, std::span<const uint64_t, 2> fingerprint) const;

  // tokens [rows]: the token a rank drew for a row, or -1. Fills in what the others drew. Ranks that drew the
  // same row drew the same token.
  Status share_tokens(std::span<int32_t> tokens) const;

 private:
  int32_t size() const { return world_ ? world_->size() : 1; }
  Deadline deadline() const { return CommClock::now() + timeout_; }

  Group* world_;
  std::chrono::milliseconds timeout_;
};

}  // namespace lariat
