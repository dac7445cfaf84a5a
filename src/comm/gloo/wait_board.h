// Which rank waits for which, in memory that all local ranks map: a deadline can then name the rank at the
// end of the chain of waits instead of the neighbour that waits too.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "comm/gloo/shared_file.h"

namespace lariat {

class WaitBoard {
 public:
  WaitBoard() = default;
  // Maps the file, which the first rank to come creates.
  static Result<WaitBoard> open(const std::filesystem::path& path, int32_t world, int32_t rank);

  void waits_for(int32_t peer) const;
  void waits_no_more() const;
  // The first rank in the chain from `peer` on that does not wait for another.
  int32_t culprit(int32_t peer) const;

 private:
  struct alignas(64) Cell {
    std::atomic<int32_t> waits_for_plus_one;  // 0: for none, as a new file reads
  };
  static_assert(std::atomic<int32_t>::is_always_lock_free);

  Cell* cells() const { return reinterpret_cast<Cell*>(file_.data()); }

  SharedFile file_;
  int32_t world_ = 0;
  int32_t rank_ = 0;
};

}  // namespace lariat
