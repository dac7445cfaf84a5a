// Which rank waits for which, in memory that all local ranks map: a deadline can then name the rank at the
// end of the chain of waits instead of the neighbour that waits too.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "comm/gloo/shared_file.h"
#include "comm/group.h"

namespace lariat {

class WaitBoard {
 public:
  WaitBoard() = default;
  // Maps the file, which the first rank to come creates.
  static Result<WaitBoard> open(const std::filesystem::path& path, int32_t world, int32_t rank);

  void waits_for(int32_t peer, Deadline deadline) const;
  void waits_no_more() const;
  // This rank's deadline has passed and it knows. Whose has passed and does not is stuck inside its wait.
  void knows_its_deadline() const;
  // The rank to blame for a wait for `peer` that has ended at its deadline: the first in the chain from
  // `peer` on that does not wait for another, or that ought to have ended its own wait before `now` and has
  // not.
  int32_t culprit(int32_t peer, Deadline now) const;

 private:
  struct alignas(64) Cell {  // zeros, as a new file reads: waits for none
    std::atomic<int32_t> waits_for_plus_one;
    std::atomic<int32_t> knows;     // 1: see knows_its_deadline()
    std::atomic<int64_t> until_ns;  // of the clock that all processes of a machine share
  };
  static_assert(std::atomic<int32_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

  Cell* cells() const { return reinterpret_cast<Cell*>(file_.data()); }

  SharedFile file_;
  int32_t world_ = 0;
  int32_t rank_ = 0;
};

}  // namespace lariat
