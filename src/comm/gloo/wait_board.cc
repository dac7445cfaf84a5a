#include "comm/gloo/wait_board.h"

namespace lariat {
namespace {

int64_t ns_of(Deadline t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

}  // namespace

Result<WaitBoard> WaitBoard::open(const std::filesystem::path& path, int32_t world, int32_t rank) {
  WaitBoard board;
  LARIAT_ASSIGN(board.file_, SharedFile::open(path, static_cast<size_t>(world) * sizeof(Cell)));
  board.world_ = world;
  board.rank_ = rank;
  return board;
}

void WaitBoard::waits_for(int32_t peer, Deadline deadline) const {
  if (world_ == 0) return;
  Cell& own = cells()[rank_];
  own.until_ns.store(ns_of(deadline), std::memory_order_relaxed);
  own.waits_for_plus_one.store(peer + 1, std::memory_order_release);
}

void WaitBoard::waits_no_more() const {
  if (world_ > 0) cells()[rank_].waits_for_plus_one.store(0, std::memory_order_relaxed);
}

void WaitBoard::knows_its_deadline() const {
  if (world_ > 0) cells()[rank_].knows.store(1, std::memory_order_relaxed);
}

int32_t WaitBoard::culprit(int32_t peer, Deadline now) const {
  int32_t at = peer;
  for (int32_t hop = 0; hop < world_; ++hop) {
    const Cell& cell = cells()[at];
    const int32_t next = cell.waits_for_plus_one.load(std::memory_order_acquire) - 1;
    if (next < 0 || next >= world_) return at;
    const bool late = cell.until_ns.load(std::memory_order_relaxed) < ns_of(now);
    if (late && cell.knows.load(std::memory_order_relaxed) == 0) return at;
    // A chain that comes back to this rank has no end: ranks disagree, and the neighbour is as good as any.
    if (next == rank_) return peer;
    at = next;
  }
  return at;
}

}  // namespace lariat
