#include "comm/local/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace lariat {

std::string_view comm_call_name(CommCall call) {
  switch (call) {
    case CommCall::kRingShift:
      return "ring_shift";
    case CommCall::kAllGather:
      return "all_gather";
    case CommCall::kAllToAll:
      return "all_to_all";
    case CommCall::kAllReduce:
      return "all_reduce";
    case CommCall::kReduceScatter:
      return "reduce_scatter";
    case CommCall::kBroadcast:
      return "broadcast";
    case CommCall::kBarrier:
      return "barrier";
  }
  return "?";
}

Exchange::Exchange(int32_t world, std::string_view transport) : transport_(transport) {
  LARIAT_CHECK(world >= 1, "a world of {} ranks", world);
  for (int32_t r = 0; r < world; ++r) seats_.push_back(std::make_unique<Seat>());
}

int32_t Exchange::add_group(std::vector<int32_t> members) {
  LARIAT_CHECK(!members.empty(), "a group without members");
  std::vector<int32_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  LARIAT_CHECK(sorted.front() >= 0 && sorted.back() < world() &&
                   std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
               "members of a group in a world of {}", world());
  const Lock lock(mutex_);
  auto circle = std::make_unique<Circle>();
  circle->channels.resize(members.size() * members.size());
  circle->members = std::move(members);
  circles_.push_back(std::move(circle));
  return static_cast<int32_t>(circles_.size()) - 1;
}

std::vector<int32_t> Exchange::members(int32_t group) {
  const Lock lock(mutex_);
  return circle(group).members;
}

Exchange::Channel& Exchange::channel(int32_t group, int32_t from, int32_t to) {
  Circle& c = circle(group);
  return c.channels[static_cast<size_t>(from) * c.members.size() + static_cast<size_t>(to)];
}

Status Exchange::post(const ExchangeOpPtr& op) {
  Lock lock(mutex_);
  const int32_t rank = rank_of(*op);
  if (!seat(rank).dead) {
    if (const Status fate = before_post(lock, rank); !fate.ok()) die(lock, rank, fate.error());
  }
  if (seat(rank).dead) return *seat(rank).dead;
  ++seat(rank).calls;
  op->open = static_cast<int32_t>(op->halves.size());
  // Receives first: a send that matches at once then finds them.
  for (size_t h = 0; h < op->halves.size(); ++h) {
    const Half& half = op->halves[h];
    if (half.send) continue;
    channel(op->group, half.peer, op->member).recvs.push_back({op, h});
  }
  for (size_t h = 0; h < op->halves.size(); ++h) {
    const Half& half = op->halves[h];
    if (!half.send) continue;
    Channel& c = channel(op->group, op->member, half.peer);
    c.sends.push_back({op, h, c.sent++, false});
    sent(lock, op->group, op->member, half.peer);
  }
  for (const Half& half : op->halves)
    if (!half.send) match(lock, op->group, half.peer, op->member);
  return Ok{};
}

void Exchange::match(Lock& lock, int32_t group, int32_t from, int32_t to) {
  Channel& c = channel(group, from, to);
  while (!c.sends.empty() && !c.recvs.empty() && c.sends.front().arrived) {
    const QueuedSend send = std::move(c.sends.front());
    const QueuedRecv recv = std::move(c.recvs.front());
    c.sends.pop_front();
    c.recvs.pop_front();
    const int32_t sender = rank_of(*send.op);
    const int32_t receiver = rank_of(*recv.op);
    if (seat(sender).dead || seat(receiver).dead) continue;
    const Half& out = send.op->halves[send.half];
    const Half& in = recv.op->halves[recv.half];
    if (out.bytes != in.bytes || send.op->call != recv.op->call) {
      const Error why = make_error(Errc::kInternal,
                                   fmt::format("ranks disagree: rank {} {}, rank {} {}", sender,
                                               describe(*send.op, out), receiver, describe(*recv.op, in)),
                                   fmt::format("rank {}", sender));
      die(lock, sender, why);
      die(lock, receiver, why);
      return;
    }
    copy(lock, send, recv);
  }
}

void Exchange::copy(Lock& lock, const QueuedSend& send, const QueuedRecv& recv) {
  Half& out = send.op->halves[send.half];
  Half& in = recv.op->halves[recv.half];
  ++send.op->copying;
  ++recv.op->copying;
  if (in.bytes > 0) {
    lock.unlock();
    std::memcpy(in.to, out.from, in.bytes);
    lock.lock();
  }
  for (const auto& [op, half] : {std::pair(send.op.get(), &out), std::pair(recv.op.get(), &in)}) {
    half->done = true;
    --op->open;
    --op->copying;
    if (op->open == 0 || op->copying == 0) notify(lock, rank_of(*op));
  }
}

Status Exchange::wait(const ExchangeOpPtr& op, Deadline deadline) {
  Lock lock(mutex_);
  const int32_t rank = rank_of(*op);
  Seat& me = seat(rank);
  while (true) {
    if (op->open == 0) return Ok{};
    if (me.dead && op->copying == 0) return *me.dead;
    me.waiting = op.get();
    // A copy in progress ends by itself, whatever the deadline says.
    const bool in_time = block(lock, rank, me.dead ? CommClock::now() + std::chrono::hours(1) : deadline);
    me.waiting = nullptr;
    if (!in_time && op->open > 0 && !me.dead) {
      me.waiting = op.get();
      const Error why = timed_out(*op);
      me.waiting = nullptr;
      die(lock, rank, why);
    }
  }
}

bool Exchange::done(const ExchangeOpPtr& op) {
  const Lock lock(mutex_);
  return op->open == 0 || (seat(rank_of(*op)).dead && op->copying == 0);
}

void Exchange::retire(const ExchangeOpPtr& op) {
  Lock lock(mutex_);
  const int32_t rank = rank_of(*op);
  LARIAT_CHECK(op->open == 0 || seat(rank).dead, "{} was dropped unfinished by rank {}",
               comm_call_name(op->call), rank);
  while (op->copying > 0) block(lock, rank, CommClock::now() + std::chrono::hours(1));
}

Status Exchange::health(int32_t group, int32_t member) {
  const Lock lock(mutex_);
  const Seat& me = seat(circle(group).members[static_cast<size_t>(member)]);
  if (me.dead) return *me.dead;
  return Ok{};
}

void Exchange::abort(int32_t group, int32_t member, Error why) {
  Lock lock(mutex_);
  const int32_t rank = circle(group).members[static_cast<size_t>(member)];
  if (why.param.empty()) {
    why = why.in(fmt::format("rank {}", rank));
    why.param = fmt::format("rank {}", rank);
  }
  die(lock, rank, why);
}

void Exchange::die(Lock& lock, int32_t rank, const Error& why) {
  Seat& s = seat(rank);
  if (s.dead) return;
  s.dead = why;
  notify(lock, rank);
  spread(lock, rank, why);
}

std::string Exchange::describe(const ExchangeOp& op, const Half& half) {
  return fmt::format("{} {} bytes in {} (its call {} of group {})", half.send ? "sends" : "expects",
                     half.bytes, comm_call_name(op.call), op.number, op.group);
}

int32_t Exchange::culprit(const ExchangeOp& op) {
  const ExchangeOp* at = &op;
  int32_t blamed = rank_of(op);
  for (int32_t hop = 0; hop < world(); ++hop) {
    // A receive that nobody sends says more than a send that nobody takes.
    const Half* stuck = nullptr;
    for (const Half& half : at->halves)
      if (!half.done && (!stuck || (stuck->send && !half.send))) stuck = &half;
    if (!stuck) return blamed;
    blamed = circle(at->group).members[static_cast<size_t>(stuck->peer)];
    const Seat& s = seat(blamed);
    if (s.dead || !s.waiting) return blamed;
    at = s.waiting;
  }
  return blamed;
}

Error Exchange::timed_out(const ExchangeOp& op) {
  const int32_t peer = culprit(op);
  return make_error(Errc::kDeadlineExceeded,
                    fmt::format("rank {} waited in {} (call {} of group {}) for rank {} until the deadline",
                                rank_of(op), comm_call_name(op.call), op.number, op.group, peer),
                    fmt::format("rank {}", peer));
}

}  // namespace lariat
