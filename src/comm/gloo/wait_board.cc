#include "comm/gloo/wait_board.h"

namespace lariat {

Result<WaitBoard> WaitBoard::open(const std::filesystem::path& path, int32_t world, int32_t rank) {
  WaitBoard board;
  LARIAT_ASSIGN(board.file_, SharedFile::open(path, static_cast<size_t>(world) * sizeof(Cell)));
  board.world_ = world;
  board.rank_ = rank;
  return board;
}

void WaitBoard::waits_for(int32_t peer) const {
  if (world_ > 0) cells()[rank_].waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
}

void WaitBoard::waits_no_more() const {
  if (world_ > 0) cells()[rank_].waits_for_plus_one.store(0, std::memory_order_relaxed);
}

int32_t WaitBoard::culprit(int32_t peer) const {
  int32_t at = peer;
  for (int32_t hop = 0; hop < world_; ++hop) {
    const int32_t next = cells()[at].waits_for_plus_one.load(std::memory_order_relaxed) - 1;
    // A chain that comes back to this rank has no end: ranks disagree, and the neighbour is as good as any.
    if (next == rank_ || next < 0 || next >= world_) return next == rank_ ? peer : at;
    at = next;
  }
  return at;
}

}  // namespace lariat
