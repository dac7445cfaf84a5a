// Where ranks that are threads of one process meet: posted sends and receives are matched and copied. The
// transports `local` and `sim` differ in when a send arrives and in how a rank waits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/group.h"

namespace lariat {

enum class CommCall : uint8_t {
  kRingShift,
  kAllGather,
  kAllToAll,
  kAllReduce,
  kReduceScatter,
  kBroadcast,
  kBarrier
};
std::string_view comm_call_name(CommCall call);

// One direction of a collective between this member and one peer.
struct Half {
  int32_t peer = 0;  // member of the group
  bool send = false;
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  bool done = false;
};

// One member's part in one collective. Fields behind `halves` are under the exchange's lock.
struct ExchangeOp {
  CommCall call = CommCall::kBarrier;
  uint64_t number = 0;  // of the member's calls in its group, 0 first
  int32_t group = 0;
  int32_t member = 0;
  std::vector<Half> halves;
  int32_t open = 0;     // halves not done
  int32_t copying = 0;  // halves some thread is copying now
};
using ExchangeOpPtr = std::shared_ptr<ExchangeOp>;

// All groups of one world of threads. Any error of any rank ends all of them.
class Exchange {
 public:
  Exchange(int32_t world, std::string_view transport);
  virtual ~Exchange() = default;

  int32_t world() const { return static_cast<int32_t>(seats_.size()); }
  std::string_view transport() const { return transport_; }

  // Members are world ranks, each once. Every member uses the id with its own place in the list.
  int32_t add_group(std::vector<int32_t> members);
  std::vector<int32_t> members(int32_t group);

  // Queues the op's halves. Copies what matches now; never waits for a peer. The rank's error if it has one.
  Status post(const ExchangeOpPtr& op);
  // Until the op is done, or fails. After it no other thread touches the op's memory.
  Status wait(const ExchangeOpPtr& op, Deadline deadline);
  bool done(const ExchangeOpPtr& op);
  // Waits for copies in progress only; the op must be done or its rank dead.
  void retire(const ExchangeOpPtr& op);
  Status health(int32_t group, int32_t member);
  void abort(int32_t group, int32_t member, Error why);

 protected:
  using Lock = std::unique_lock<std::mutex>;

  struct Seat {  // one rank
    std::condition_variable wake;
    std::optional<Error> dead;
    const ExchangeOp* waiting = nullptr;
    int64_t calls = 0;
  };
  struct QueuedSend {
    ExchangeOpPtr op;
    size_t half = 0;
    uint64_t id = 0;  // of the channel's sends, 0 first
    bool arrived = false;
  };
  struct QueuedRecv {
    ExchangeOpPtr op;
    size_t half = 0;
  };
  struct Channel {  // from one member to another
    std::deque<QueuedSend> sends;
    std::deque<QueuedRecv> recvs;
    uint64_t sent = 0;
  };
  struct Circle {  // one group
    std::vector<int32_t> members;
    std::vector<Channel> channels;  // [from][to]
  };

  // The lock is held in all of these.
  // A rank makes one more call; an error is the rank's death.
  virtual Status before_post(Lock&, int32_t rank) = 0;
  // A send was queued: now (local) or later (sim) it arrives.
  virtual void sent(Lock& lock, int32_t group, int32_t from, int32_t to) = 0;
  // Blocks rank until notify(rank) or the deadline; false: the deadline has passed.
  virtual bool block(Lock& lock, int32_t rank, Deadline deadline) = 0;
  virtual void notify(Lock& lock, int32_t rank) = 0;
  // `rank` has just died of `why`: the others learn of it.
  virtual void spread(Lock& lock, int32_t rank, const Error& why) = 0;

  // Copies, with the lock released meanwhile, whatever has arrived and is awaited. Sizes or calls that
  // disagree kill both ranks.
  void match(Lock& lock, int32_t group, int32_t from, int32_t to);
  void die(Lock& lock, int32_t rank, const Error& why);
  Channel& channel(int32_t group, int32_t from, int32_t to);
  Seat& seat(int32_t rank) { return *seats_[static_cast<size_t>(rank)]; }
  Circle& circle(int32_t group) { return *circles_[static_cast<size_t>(group)]; }
  int32_t rank_of(const ExchangeOp& op) { return circle(op.group).members[static_cast<size_t>(op.member)]; }
  std::string describe(const ExchangeOp& op, const Half& half);
  // The rank to blame for an op that does not finish: the first in the chain of waits that is not waiting.
  int32_t culprit(const ExchangeOp& op);

  std::mutex mutex_;

 private:
  void copy(Lock& lock, const QueuedSend& send, const QueuedRecv& recv);
  Error timed_out(const ExchangeOp& op);

  std::string transport_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<std::unique_ptr<Circle>> circles_;
};

}  // namespace lariat
