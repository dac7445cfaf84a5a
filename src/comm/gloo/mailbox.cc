#include "comm/gloo/mailbox.h"

#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/check.h"
#include "comm/gloo/obituary.h"

namespace lariat {
namespace {

constexpr size_t kRingBytes = size_t{256} << 10;
constexpr size_t kLine = 64;
// A peer that sends what nobody asks for is wrong, and is met at the deadline; it must not fill this rank's
// memory.
constexpr size_t kStashMax = 4096;

size_t padded(size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

struct Mailbox::Header {
  uint64_t slot;
  uint64_t bytes;
};

// Positions are bytes since the beginning and never wrap; the ring is where they are modulo its size.
struct Mailbox::Ring {
  alignas(kLine) std::atomic<uint64_t> written;  // the writer's to change
  alignas(kLine) std::atomic<uint64_t> read;     // the reader's to change
  alignas(kLine) std::byte bytes[kRingBytes];

  void copy_in(uint64_t at, const void* from, size_t n) {
    const size_t begin = at % kRingBytes;
    const size_t first = std::min(n, kRingBytes - begin);
    std::memcpy(bytes + begin, from, first);
    std::memcpy(bytes, static_cast<const std::byte*>(from) + first, n - first);
  }
  void copy_out(uint64_t at, void* to, size_t n) const {
    const size_t begin = at % kRingBytes;
    const size_t first = std::min(n, kRingBytes - begin);
    std::memcpy(to, bytes + begin, first);
    std::memcpy(static_cast<std::byte*>(to) + first, bytes, n - first);
  }
};

struct Mailbox::Bell {
  alignas(kLine) std::atomic<uint32_t> rung;
  std::atomic<uint32_t> asleep;
};

Result<Mailbox> Mailbox::open(const std::filesystem::path& path, int32_t world, int32_t rank) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  const auto ranks = static_cast<size_t>(world);
  Mailbox box;
  LARIAT_ASSIGN(box.file_, SharedFile::open(path, ranks * sizeof(Bell) + ranks * ranks * sizeof(Ring)));
  box.world_ = world;
  box.rank_ = rank;
  return box;
}

Mailbox::Bell& Mailbox::bell_of(int32_t rank) const {
  return reinterpret_cast<Bell*>(file_.data())[rank];
}

Mailbox::Ring& Mailbox::ring(int32_t from, int32_t to) const {
  auto* rings = reinterpret_cast<Ring*>(file_.data() + static_cast<size_t>(world_) * sizeof(Bell));
  return rings[static_cast<size_t>(from) * static_cast<size_t>(world_) + static_cast<size_t>(to)];
}

bool Mailbox::put(int32_t peer, uint64_t slot, const void* data, size_t bytes) {
  LARIAT_CHECK(bytes <= kMessageMax, "a small message of {} bytes", bytes);
  Ring& to = ring(rank_, peer);
  const uint64_t written = to.written.load(std::memory_order_relaxed);
  const size_t size = kLine + padded(bytes);
  if (written + size - to.read.load(std::memory_order_acquire) > kRingBytes) return false;
  const Header header{slot, bytes};
  to.copy_in(written, &header, sizeof header);
  if (bytes > 0) to.copy_in(written + kLine, data, bytes);
  to.written.store(written + size, std::memory_order_release);
  ring_bell(peer);
  return true;
}

Result<bool> Mailbox::take(int32_t peer, uint64_t slot, void* to, size_t bytes) {
  const auto corrupt = [&](const std::string& how) {
    return make_error(Errc::kCorruptData, fmt::format("rank {} sent {}", peer, how), rank_name(peer));
  };
  if (const auto early = stash_.find({peer, slot}); early != stash_.end()) {
    if (early->second.size() != bytes)
      return corrupt(fmt::format("{} bytes where {} were due", early->second.size(), bytes));
    if (bytes > 0) std::memcpy(to, early->second.data(), bytes);
    stash_.erase(early);
    return true;
  }
  Ring& from = ring(peer, rank_);
  uint64_t read = from.read.load(std::memory_order_relaxed);
  bool found = false;
  // Who finds the ring full sleeps until it is not.
  const bool full = from.written.load(std::memory_order_relaxed) - read + kLine + kMessageMax > kRingBytes;
  while (!found) {
    const uint64_t there = from.written.load(std::memory_order_acquire) - read;
    if (there == 0) break;
    Header header{};
    if (there <= kRingBytes && there >= kLine) from.copy_out(read, &header, sizeof header);
    if (there > kRingBytes || there < kLine || header.bytes > kMessageMax ||
        kLine + padded(header.bytes) > there)
      return corrupt("what is no message");
    if (header.slot == slot) {
      if (header.bytes != bytes)
        return corrupt(fmt::format("{} bytes where {} were due", header.bytes, bytes));
      if (bytes > 0) from.copy_out(read + kLine, to, bytes);
      found = true;
    } else {
      if (stash_.size() >= kStashMax) break;
      std::vector<std::byte>& kept = stash_[{peer, header.slot}];
      kept.resize(header.bytes);
      if (header.bytes > 0) from.copy_out(read + kLine, kept.data(), header.bytes);
    }
    read += kLine + padded(header.bytes);
    from.read.store(read, std::memory_order_release);
  }
  if (full) ring_bell(peer);
  return found;
}

uint32_t Mailbox::bell() const {
  return bell_of(rank_).rung.load(std::memory_order_seq_cst);
}

void Mailbox::ring_bell(int32_t rank) const {
  Bell& bell = bell_of(rank);
  bell.rung.fetch_add(1, std::memory_order_seq_cst);
  if (bell.asleep.load(std::memory_order_seq_cst) != 0)
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell.rung), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Mailbox::listen(uint32_t heard, std::chrono::microseconds time) const {
  Bell& bell = bell_of(rank_);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wait{.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count() * 1000};
  bell.asleep.store(1, std::memory_order_seq_cst);
  // The kernel compares once more: a bell between our look and the sleep is not slept through.
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell.rung), FUTEX_WAIT, heard, &wait, nullptr, 0);
  bell.asleep.store(0, std::memory_order_seq_cst);
}

}  // namespace lariat
