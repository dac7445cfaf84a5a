// Small messages between ranks of one machine, through memory that both map: a socket costs tens of
// microseconds and two more threads' wake-ups, which a decode step pays some sixty times a token.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/gloo/shared_file.h"

namespace lariat {

// One ring of bytes for each ordered pair of ranks, with one writer and one reader, and a bell a rank. A
// message has a slot; who takes names it, so the order of sending need not be that of taking. Not told of a
// dead peer: whoever waits has other news of that.
//
// For one thread of a rank.
class Mailbox {
 public:
  static constexpr size_t kMessageMax = size_t{32} << 10;

  Mailbox() = default;
  static Result<Mailbox> open(const std::filesystem::path& path, int32_t world, int32_t rank);

  // False: the peer has not taken enough yet; nothing was sent. At most kMessageMax bytes.
  bool put(int32_t peer, uint64_t slot, const void* data, size_t bytes);
  // False: it has not come yet. kCorruptData if the ring holds what no put() wrote, or the slot's message is
  // not of `bytes` bytes.
  Result<bool> take(int32_t peer, uint64_t slot, void* to, size_t bytes);

  // A count that rises with everything that is put for this rank, and when a peer has made room in a full
  // ring.
  uint32_t bell() const;
  // Sleeps until bell() is no longer `heard`, at most for `time`. May return early.
  void listen(uint32_t heard, std::chrono::microseconds time) const;

 private:
  struct Ring;
  struct Bell;
  struct Header;

  Ring& ring(int32_t from, int32_t to) const;
  Bell& bell_of(int32_t rank) const;
  void ring_bell(int32_t rank) const;

  SharedFile file_;
  int32_t world_ = 0;
  int32_t rank_ = 0;
  // Came before they were asked for.
  std::map<std::pair<int32_t, uint64_t>, std::vector<std::byte>> stash_;
};

}  // namespace lariat
