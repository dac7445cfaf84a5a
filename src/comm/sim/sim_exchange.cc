#include "comm/sim/sim_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>

#include "base/philox.h"

namespace lariat {
namespace {

// A thread that neither waits in a collective nor leaves stops the clock; after so long the run is given up.
constexpr std::chrono::seconds kStandstill{120};
// Deadlines come as real times. What the caller's thread took from the clock to the call is not the network's
// doing: rounding up takes it out of the run.
constexpr int64_t kDeadlineGrainUs = 1'000'000;

}  // namespace

SimExchange::SimExchange(int32_t world, const SimOptions& options)
    : Exchange(world, "sim"), options_(options), sim_seats_(static_cast<size_t>(world)), running_(world) {
  for (const SimFault& f : options.faults)
    LARIAT_CHECK(f.rank >= 0 && f.rank < world && f.peer >= 0 && f.peer < world, "fault of rank {}", f.rank);
}

Status SimExchange::before_post(Lock&, int32_t rank) {
  SimSeat& s = sim_seats_[static_cast<size_t>(rank)];
  for (const SimFault& f : options_.faults) {
    if (f.rank != rank || f.at_call != seat(rank).calls) continue;
    switch (f.kind) {
      case SimFault::Kind::kStall:
        s.stalled_until_us = now_us_ + f.stall_ms * 1000;
        break;
      case SimFault::Kind::kCut:
        cuts_.push_back({f.rank, f.peer, now_us_});
        break;
      case SimFault::Kind::kKill:
        return make_error(Errc::kUnavailable,
                          fmt::format("rank {} died (simulated, at its call {})", rank, f.at_call),
                          fmt::format("rank {}", rank));
    }
  }
  return Ok{};
}

// Ranks run at once within an instant, in no order: what the peer sends in the cut's own instant still
// arrives.
bool SimExchange::is_cut(int32_t from, int32_t to) const {
  return std::any_of(cuts_.begin(), cuts_.end(), [&](const Cut& cut) {
    return (cut.rank == from && cut.peer == to) ||
           (cut.rank == to && cut.peer == from && cut.at_us < now_us_);
  });
}

int64_t SimExchange::delay_us(uint64_t a, uint64_t b, uint64_t id) const {
  const double u = philox_uniform(options_.seed, id, a << 16 ^ b);
  return 1 + static_cast<int64_t>(u * static_cast<double>(options_.delay_max_us));
}

void SimExchange::sent(Lock&, int32_t group, int32_t from, int32_t to) {
  const int32_t sender = circle(group).members[static_cast<size_t>(from)];
  const int32_t receiver = circle(group).members[static_cast<size_t>(to)];
  if (is_cut(sender, receiver)) return;
  const uint64_t id = channel(group, from, to).sends.back().id;
  int64_t& last = last_arrival_[{group, from, to}];
  const auto pair =
      static_cast<uint64_t>(sender) * static_cast<uint64_t>(world()) + static_cast<uint64_t>(receiver);
  const int64_t leaves = std::max(now_us_, sim_seats_[static_cast<size_t>(sender)].stalled_until_us);
  last = std::max(last, leaves + delay_us(static_cast<uint64_t>(group), pair, id));
  events_.emplace(Key{last, EventKind::kArrival, group, from, to, id}, Error{});
}

bool SimExchange::block(Lock& lock, int32_t rank, Deadline deadline) {
  SimSeat& s = sim_seats_[static_cast<size_t>(rank)];
  const int64_t left_us =
      std::chrono::duration_cast<std::chrono::microseconds>(deadline - CommClock::now()).count();
  const int64_t grains = std::max<int64_t>(0, (left_us + kDeadlineGrainUs - 1) / kDeadlineGrainUs);
  const Key timeout{now_us_ + grains * kDeadlineGrainUs, EventKind::kTimeout, rank, 0, 0, 0};
  events_.emplace(timeout, Error{});
  s.blocked = true;
  s.timed_out = false;
  --running_;
  advance(lock);
  const bool moved = seat(rank).wake.wait_for(lock, kStandstill, [&] { return !s.blocked; });
  events_.erase(timeout);
  LARIAT_CHECK(moved, "simulation of seed {} stands still: {} threads neither wait nor left", options_.seed,
               running_);
  return !s.timed_out;
}

void SimExchange::notify(Lock&, int32_t rank) {
  SimSeat& s = sim_seats_[static_cast<size_t>(rank)];
  if (!s.blocked) return;
  s.blocked = false;
  ++running_;
  seat(rank).wake.notify_all();
}

void SimExchange::spread(Lock&, int32_t rank, const Error& why) {
  for (int32_t r = 0; r < world(); ++r) {
    if (r == rank || is_cut(rank, r)) continue;
    const int64_t at = now_us_ + delay_us(static_cast<uint64_t>(rank), static_cast<uint64_t>(r), 1ull << 63);
    events_.emplace(Key{at, EventKind::kNews, r, rank, 0, news_++}, why);
  }
}

void SimExchange::advance(Lock& lock) {
  while (running_ == 0 && !events_.empty()) {
    const auto first = events_.extract(events_.begin());
    now_us_ = std::max(now_us_, std::get<0>(first.key()));
    apply(lock, first.key(), first.mapped());
  }
}

void SimExchange::apply(Lock& lock, const Key& key, const Error& news) {
  const auto& [at, kind, a, b, c, id] = key;
  for (const uint64_t word : {static_cast<uint64_t>(at), static_cast<uint64_t>(kind),
                              static_cast<uint64_t>(a), static_cast<uint64_t>(b), static_cast<uint64_t>(c)})
    trace_ = (trace_ ^ word) * 0x100000001b3ull;
  switch (kind) {
    case EventKind::kArrival: {
      // Earlier sends of the channel have arrived before, and may be gone.
      for (QueuedSend& send : channel(a, b, c).sends)
        if (send.id == id) send.arrived = true;
      match(lock, a, b, c);
      break;
    }
    case EventKind::kNews:
      die(lock, a, news);
      break;
    case EventKind::kTimeout:
      sim_seats_[static_cast<size_t>(a)].timed_out = true;
      notify(lock, a);
      break;
  }
}

void SimExchange::leave(int32_t) {
  Lock lock(mutex_);
  --running_;
  advance(lock);
}

int64_t SimExchange::now_us() {
  const Lock lock(mutex_);
  return now_us_;
}

uint64_t SimExchange::trace() {
  const Lock lock(mutex_);
  return trace_;
}

std::shared_ptr<SimExchange> make_sim_exchange(int32_t world, const SimOptions& options) {
  return std::make_shared<SimExchange>(world, options);
}

void run_sim_ranks(SimExchange& exchange, const std::function<void(int32_t rank)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < exchange.world(); ++r)
    threads.emplace_back([&, r] {
      body(r);
      exchange.leave(r);
    });
  for (std::thread& thread : threads) thread.join();
}

SimFault random_fault(uint64_t seed, int32_t world, int64_t calls, int64_t stall_max_ms) {
  const auto draw = [&](uint64_t what, int64_t below) {
    return static_cast<int64_t>(philox_uniform(seed, what, 0xfa) * static_cast<double>(below));
  };
  SimFault f;
  f.kind = static_cast<SimFault::Kind>(draw(0, 3));
  f.rank = static_cast<int32_t>(draw(1, world));
  f.peer = static_cast<int32_t>((f.rank + 1 + draw(2, std::max(1, world - 1))) % world);
  f.at_call = draw(3, std::max<int64_t>(1, calls));
  f.stall_ms = 1 + draw(4, std::max<int64_t>(1, stall_max_ms));
  return f;
}

}  // namespace lariat
