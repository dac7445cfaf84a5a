// Ranks that talk to each other: collectives of one group, whatever carries them (threads, Gloo, gRPC, NCCL).
// docs/design.md §4, §5.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "tensor/stream.h"

namespace lariat {

// Memory of one collective. It stays untouched by the caller from posting until wait() returns, whatever
// wait() says.
struct SendBytes {
  const void* data = nullptr;
  size_t bytes = 0;
  Device device;
};
struct RecvBytes {
  void* data = nullptr;
  size_t bytes = 0;
  Device device;
};

using CommClock = std::chrono::steady_clock;
using Deadline = CommClock::time_point;

// Sums of what this rank did in a group since it was made, for metrics and for schedules' proofs.
struct CommCounters {
  int64_t calls = 0;
  int64_t bytes_sent = 0;
  int64_t wait_us = 0;  // spent inside wait() with the transfer unfinished
};

// A posted collective. Destroying it unfinished is a bug unless the group has failed.
class Pending {
 public:
  virtual ~Pending() = default;
  // Ok once this rank's part is complete: its sends may be reused, its receives are filled. kDeadlineExceeded
  // or kUnavailable name the peer in the message and in Error::param ("rank 2"); the group is then dead (see
  // Group).
  virtual Status wait(Deadline deadline) = 0;
  virtual bool done() const = 0;
};
using PendingPtr = std::unique_ptr<Pending>;

// Collectives are posted by every member in the same order with sizes that agree (both follow from the step
// plan); posting never blocks and never waits for compute. One thread at a time. After the first error every
// later call returns that error at once: a group fails as a whole and is replaced under a new epoch. Ranks
// here are members of this group, 0..size-1; `name` of a member in messages is the world rank.
class Group {
 public:
  virtual ~Group() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  virtual std::string_view transport() const = 0;  // "local", "sim", "gloo"
  virtual CommCounters counters() const = 0;

  // To (rank + 1) % size, from (rank - 1) % size. Sizes may differ from rank to rank; either may be 0.
  // With size 1 it copies.
  virtual PendingPtr ring_shift(SendBytes send, RecvBytes recv) = 0;

  // recv = [size][send.bytes], member by member; every member sends the same number of bytes.
  virtual PendingPtr all_gather(SendBytes send, RecvBytes recv) = 0;

  // send = recv = [size][bytes]: block j goes to member j, which files it under this rank.
  virtual PendingPtr all_to_all(SendBytes send, RecvBytes recv) = 0;

  // data[i] = sum over members of data[i], f32, added in ascending member order from member 0's value: the
  // same bits on every member and in every run.
  virtual PendingPtr all_reduce_sum(float* data, int64_t n, Device device) = 0;

  // out [n / size] = this member's block of the sum of `data` [n], the same order of additions. size divides
  // n.
  virtual PendingPtr reduce_scatter_sum(const float* data, int64_t n, float* out, Device device) = 0;

  // Member root's bytes to all.
  virtual PendingPtr broadcast(void* data, size_t bytes, int32_t root, Device device) = 0;

  virtual PendingPtr barrier() = 0;

  // Whether the group is known to have failed, though nothing may be under way: what every later call would
  // return. Never blocks on a peer.
  virtual Status health() = 0;

  // Makes every pending and later call of this member fail with `why`, and tells the peers. Any thread may
  // call it.
  virtual void abort(Error why) = 0;
};

}  // namespace lariat
