#include "comm/gloo/wait_board.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lariat {

Result<WaitBoard> WaitBoard::open(const std::filesystem::path& path, int32_t world, int32_t rank) {
  const size_t bytes = static_cast<size_t>(world) * sizeof(Cell);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  // Every rank sets the same length: the file is long enough for whoever maps it.
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (memory == MAP_FAILED) {
    return make_error(Errc::kUnavailable, fmt::format("cannot map the board of waits {}: {}", path.string(),
                                                      std::strerror(error)));
  }
  WaitBoard board;
  board.cells_ = static_cast<Cell*>(memory);
  board.world_ = world;
  board.rank_ = rank;
  return board;
}

WaitBoard::~WaitBoard() {
  if (cells_) ::munmap(cells_, static_cast<size_t>(world_) * sizeof(Cell));
}

WaitBoard::WaitBoard(WaitBoard&& other) noexcept
    : cells_(std::exchange(other.cells_, nullptr)), world_(other.world_), rank_(other.rank_) {}

WaitBoard& WaitBoard::operator=(WaitBoard&& other) noexcept {
  std::swap(cells_, other.cells_);
  std::swap(world_, other.world_);
  std::swap(rank_, other.rank_);
  return *this;
}

void WaitBoard::waits_for(int32_t peer) const {
  if (cells_) cells_[rank_].waits_for_plus_one.store(peer + 1, std::memory_order_relaxed);
}

void WaitBoard::waits_no_more() const {
  if (cells_) cells_[rank_].waits_for_plus_one.store(0, std::memory_order_relaxed);
}

int32_t WaitBoard::culprit(int32_t peer) const {
  int32_t at = peer;
  for (int32_t hop = 0; cells_ && hop < world_; ++hop) {
    const int32_t next = cells_[at].waits_for_plus_one.load(std::memory_order_relaxed) - 1;
    // A chain that comes back to this rank has no end: ranks disagree, and the neighbour is as good as any.
    if (next == rank_ || next < 0 || next >= world_) return next == rank_ ? peer : at;
    at = next;
  }
  return at;
}

}  // namespace lariat
