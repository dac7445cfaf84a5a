// Threads that talk through a network which a seed decides: sends are delayed and overtake each other between
// pairs (never within one), ranks stall, links are cut, ranks die. Time is virtual, so a deadline of ten
// seconds costs none, and a seed replays its run: the clock moves only while every rank waits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "comm/local/exchange.h"

namespace lariat {

struct SimFault {
  enum class Kind : uint8_t {
    kStall,  // for stall_ms after `rank`'s call `at_call` begins nothing that it sends leaves it
    kCut,    // from `rank`'s call `at_call` on nothing passes between it and `peer`, news of errors neither
    kKill,   // `rank` dies instead of making its call `at_call`; its peers hear of it
  };
  Kind kind = Kind::kStall;
  int32_t rank = 0;
  int32_t peer = 0;
  int64_t at_call = 0;  // counted over all of the rank's groups, 0 first
  int64_t stall_ms = 0;
};

struct SimOptions {
  uint64_t seed = 0;
  int64_t delay_max_us = 20'000;
  std::vector<SimFault> faults;
};

class SimExchange : public Exchange {
 public:
  SimExchange(int32_t world, const SimOptions& options);

  // The rank's thread will make no more calls. Every thread must say so: until then the others wait for it.
  void leave(int32_t rank);

  // Virtual microseconds since the start, and a digest of everything that happened in order.
  int64_t now_us();
  uint64_t trace();

 protected:
  Status before_post(Lock& lock, int32_t rank) override;
  void sent(Lock& lock, int32_t group, int32_t from, int32_t to) override;
  bool block(Lock& lock, int32_t rank, Deadline deadline) override;
  void notify(Lock& lock, int32_t rank) override;
  void spread(Lock& lock, int32_t rank, const Error& why) override;

 private:
  enum class EventKind : uint8_t { kArrival, kNews, kTimeout };
  // When, what, and to whom: unique, so that ties have one order too.
  using Key = std::tuple<int64_t, EventKind, int32_t, int32_t, int32_t, uint64_t>;
  struct SimSeat {
    bool blocked = false;
    bool timed_out = false;
    int64_t stalled_until_us = 0;
  };

  struct Cut {
    int32_t rank = 0;  // whose call cut it
    int32_t peer = 0;
    int64_t at_us = 0;
  };

  bool is_cut(int32_t from, int32_t to) const;
  int64_t delay_us(uint64_t a, uint64_t b, uint64_t id) const;
  void advance(Lock& lock);
  void apply(Lock& lock, const Key& key, const Error& news);

  SimOptions options_;
  std::vector<SimSeat> sim_seats_;
  std::vector<Cut> cuts_;
  std::map<Key, Error> events_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int64_t> last_arrival_;  // of a channel
  int64_t now_us_ = 0;
  uint64_t news_ = 0;
  uint64_t trace_ = 0;
  int32_t running_ = 0;
};

std::shared_ptr<SimExchange> make_sim_exchange(int32_t world, const SimOptions& options);

// Runs body(rank) on a thread for each rank and waits for all.
void run_sim_ranks(SimExchange& exchange, const std::function<void(int32_t rank)>& body);

// A fault drawn from a seed: any kind, any rank, within its first `calls` calls. A stall lasts up to
// stall_max_ms.
SimFault random_fault(uint64_t seed, int32_t world, int64_t calls, int64_t stall_max_ms);

}  // namespace lariat
