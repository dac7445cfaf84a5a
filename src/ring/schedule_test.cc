// The schedules on paper: all ranks' op lists are run against each other by an interpreter that knows nothing
// of how they were made, and objects to a buffer used too early, sizes that disagree, and to standing still.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "ring/kv_rotation.h"
#include "ring/query_rotation.h"
#include "ring/strategy.h"

namespace lariat {
namespace {

struct Message {
  int32_t round = 0;
  int32_t origin = 0;
  int64_t slots = 0;
};

// One member of a ring that executes its rotation as far as it can.
struct Member {
  int32_t rank = 0;
  std::vector<RotateOp> ops;
  size_t at = 0;
  std::map<int32_t, Message> buffers;
  std::optional<RotateOp> in_flight;
  std::vector<std::pair<int32_t, int32_t>> computed;  // (round, origin)
  int computes_unhidden = 0;
};

class Ring {
 public:
  Ring(int32_t size, const std::vector<RingRound>& rounds) : size_(size), links_(static_cast<size_t>(size)) {
    for (int32_t r = 0; r < size; ++r)
      members_.push_back({r, rotate_blocks(r, size, rounds), 0, {}, {}, {}, 0});
  }

  // In a random order of members, until all are through.
  void run(std::mt19937& rng) {
    while (true) {
      std::vector<size_t> order(members_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), rng);
      bool moved = false, left = false;
      for (const size_t i : order) {
        moved = step(members_[i]) || moved;
        left = left || members_[i].at < members_[i].ops.size();
      }
      if (!left) return;
      ASSERT_TRUE(moved) << "deadlock of " << size_;
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  const std::vector<Member>& members() const { return members_; }

 private:
  bool step(Member& m) {
    if (m.at == m.ops.size()) return false;
    const RotateOp& op = m.ops[m.at];
    const bool busy_send = m.in_flight && m.in_flight->send_buffer == op.buffer;
    const bool busy_recv = m.in_flight && m.in_flight->buffer == op.buffer;
    switch (op.kind) {
      case RotateKind::kLoad:
        EXPECT_FALSE(busy_send || busy_recv) << "loads into a buffer in flight";
        m.buffers[op.buffer] = {op.round, m.rank, op.slots};
        break;
      case RotateKind::kPost: {
        EXPECT_FALSE(m.in_flight) << "two shifts at once";
        EXPECT_NE(op.buffer, op.send_buffer);
        if (op.send_slots > 0) {
          const Message& held = m.buffers.at(op.send_buffer);
          EXPECT_EQ(held.slots, op.send_slots);
          link(m.rank).push_back(held);
        } else {
          link(m.rank).push_back({op.round, -1, 0});
        }
        // What the buffer held has been computed, and sent on or come to its end.
        if (const auto old = m.buffers.find(op.buffer); old != m.buffers.end() && old->second.slots > 0) {
          const std::pair key(old->second.round, old->second.origin);
          EXPECT_NE(std::find(m.computed.begin(), m.computed.end(), key), m.computed.end())
              << "receives over a block that was never attended";
          m.buffers.erase(old);
        }
        m.in_flight = op;
        break;
      }
      case RotateKind::kWait: {
        EXPECT_TRUE(m.in_flight) << "waits for nothing";
        auto& incoming = link((m.rank + size_ - 1) % size_);
        if (incoming.empty()) return false;
        EXPECT_EQ(incoming.front().slots, m.in_flight->slots) << "sizes disagree";
        if (incoming.front().slots > 0) {
          EXPECT_EQ(incoming.front().origin, m.in_flight->origin);
          EXPECT_EQ(incoming.front().round, m.in_flight->round);
          m.buffers[m.in_flight->buffer] = incoming.front();
        }
        incoming.pop_front();
        m.in_flight.reset();
        break;
      }
      case RotateKind::kCompute: {
        EXPECT_FALSE(busy_recv) << "computes on a buffer that is being filled";
        const Message& held = m.buffers.at(op.buffer);
        EXPECT_EQ(held.origin, op.origin);
        EXPECT_EQ(held.round, op.round);
        EXPECT_EQ(held.slots, op.slots);
        m.computed.emplace_back(op.round, op.origin);
        if (!m.in_flight) ++m.computes_unhidden;
        break;
      }
    }
    ++m.at;
    return true;
  }
  std::deque<Message>& link(int32_t from) { return links_[static_cast<size_t>(from)]; }

  int32_t size_;
  std::vector<Member> members_;
  std::vector<std::deque<Message>> links_;
};

std::vector<int64_t> random_counts(std::mt19937& rng, int32_t size, int64_t most) {
  std::vector<int64_t> counts;
  for (int32_t i = 0; i < size; ++i)
    counts.push_back(rng() % 4 == 0 ? 0 : static_cast<int64_t>(rng()) % (most + 1));
  return counts;
}

TEST(KvRotation, EveryBlockVisitsEveryRankOnce) {
  std::mt19937 rng(11);
  for (int32_t size = 1; size <= 9; ++size) {
    for (int trial = 0; trial < 40; ++trial) {
      std::vector<RingRound> rounds;
      const int rows = 1 + static_cast<int>(rng() % 3);
      for (int row = 0; row < rows; ++row)
        for (RingRound& round :
             cut_rounds(random_counts(rng, size, 50), 1 + static_cast<int64_t>(rng() % 20)))
          rounds.push_back(std::move(round));
      Ring ring(size, rounds);
      ring.run(rng);
      if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "size " << size << " trial " << trial;
      for (const Member& m : ring.members()) {
        std::vector<std::pair<int32_t, int32_t>> want;
        for (size_t j = 0; j < rounds.size(); ++j)
          for (int32_t back = 0; back < size; ++back) {
            const int32_t origin = (m.rank - back + size) % size;
            if (rounds[j].slots[static_cast<size_t>(origin)] > 0)
              want.emplace_back(static_cast<int32_t>(j), origin);
          }
        // Own first, then origin r - 1, r - 2, ..
        ASSERT_EQ(m.computed, want);
        if (size > 1) {
          EXPECT_LE(m.computes_unhidden, 1) << "transfers that hide behind nothing";
        }
        ASSERT_FALSE(m.in_flight);
      }
    }
  }
}

TEST(KvRotation, ShiftsAreTheSumOfTheRanksOps) {
  std::mt19937 rng(12);
  for (int32_t size = 1; size <= 6; ++size) {
    const auto rounds = cut_rounds(random_counts(rng, size, 40), 7);
    const auto shifts = rotation_shifts(size, rounds);
    for (int32_t r = 0; r < size; ++r) {
      size_t at = 0;
      for (const RotateOp& op : rotate_blocks(r, size, rounds)) {
        if (op.kind != RotateKind::kPost) continue;
        ASSERT_LT(at, shifts.size());
        EXPECT_EQ(shifts[at][static_cast<size_t>(r)], op.send_slots);
        EXPECT_EQ(shifts[at][static_cast<size_t>((r + size - 1) % size)], op.slots);
        ++at;
      }
      EXPECT_EQ(at, shifts.size());
    }
  }
}

TEST(KvRotation, CutsCoverEverySlotOnce) {
  const std::vector<int64_t> counts{17, 0, 16, 1};
  const auto rounds = cut_rounds(counts, 8);
  ASSERT_EQ(rounds.size(), 3u);
  for (size_t m = 0; m < counts.size(); ++m) {
    int64_t next = 0;
    for (const RingRound& round : rounds) {
      if (round.slots[m] == 0) continue;
      EXPECT_EQ(round.first[m], next);
      EXPECT_LE(round.slots[m], 8);
      next += round.slots[m];
    }
    EXPECT_EQ(next, counts[m]);
  }
  EXPECT_TRUE(cut_rounds(std::vector<int64_t>{0, 0}, 8).empty());
  EXPECT_EQ((BlockBytes{16, 100})(0), 0);
  EXPECT_EQ((BlockBytes{16, 100})(16), 100);
  EXPECT_EQ((BlockBytes{16, 100})(17), 200);
}

// Queries: what each rank holds, in which buffers, when all ranks run their lists.
struct QueryMember {
  std::vector<QueryOp> ops;
  size_t at = 0;
  std::map<int32_t, int32_t> queries;                                    // buffer -> origin
  std::map<int32_t, std::pair<int32_t, std::vector<int32_t>>> partials;  // buffer -> origin, ranks folded in
  std::optional<QueryOp> queries_flying, partial_flying;
  int32_t local = -1;  // origin of what was computed last
};

class QueryRing {
 public:
  explicit QueryRing(const std::vector<int64_t>& tokens) : size_(static_cast<int32_t>(tokens.size())) {
    for (int32_t r = 0; r < size_; ++r) {
      QueryMember m;
      m.ops = rotate_queries(r, tokens);
      m.queries[0] = r;
      members_.push_back(m);
    }
    q_links_.resize(tokens.size());
    p_links_.resize(tokens.size());
  }
  void run(std::mt19937& rng) {
    for (int idle = 0; idle < 1000; ++idle) {
      bool left = false;
      for (size_t n = 0; n < members_.size(); ++n) {
        const size_t i = rng() % members_.size();
        if (step(static_cast<int32_t>(i))) idle = 0;
      }
      for (const QueryMember& m : members_) left = left || m.at < m.ops.size();
      if (!left) return;
    }
    FAIL() << "deadlock";
  }
  std::vector<QueryMember> members_;

 private:
  bool step(int32_t rank) {
    QueryMember& m = members_[static_cast<size_t>(rank)];
    if (m.at == m.ops.size()) return false;
    const QueryOp& op = m.ops[m.at];
    const auto before = static_cast<size_t>((rank + size_ - 1) % size_);
    const auto me = static_cast<size_t>(rank);
    switch (op.kind) {
      case QueryKind::kPostQueries:
        EXPECT_FALSE(m.queries_flying);
        EXPECT_NE(op.buffer, op.send_buffer);
        q_links_[me].emplace_back(m.queries.at(op.send_buffer), op.send_tokens);
        m.queries_flying = op;
        break;
      case QueryKind::kWaitQueries:
        EXPECT_TRUE(m.queries_flying);
        if (q_links_[before].empty()) return false;
        EXPECT_EQ(q_links_[before].front().first, op.origin);
        EXPECT_EQ(q_links_[before].front().second, op.tokens);
        m.queries[op.buffer] = op.origin;
        q_links_[before].pop_front();
        m.queries_flying.reset();
        break;
      case QueryKind::kCompute:
        EXPECT_EQ(m.queries.at(op.buffer), op.origin);
        EXPECT_FALSE(m.queries_flying && m.queries_flying->buffer == op.buffer);
        if (op.origin == rank) {
          EXPECT_FALSE(m.partial_flying);
          m.partials[0] = {rank, {rank}};
        } else {
          m.local = op.origin;
        }
        break;
      case QueryKind::kPostPartial:
        EXPECT_FALSE(m.partial_flying);
        EXPECT_NE(op.buffer, op.send_buffer);
        p_links_[me].emplace_back(m.partials[op.send_buffer], op.send_tokens);
        m.partial_flying = op;
        break;
      case QueryKind::kWaitPartial:
        EXPECT_TRUE(m.partial_flying);
        if (p_links_[before].empty()) return false;
        EXPECT_EQ(p_links_[before].front().second, op.tokens);
        EXPECT_EQ(m.partial_flying->buffer, op.buffer);
        m.partials[op.buffer] = p_links_[before].front().first;
        p_links_[before].pop_front();
        m.partial_flying.reset();
        break;
      case QueryKind::kMerge:
        EXPECT_EQ(m.local, op.origin);
        EXPECT_FALSE(m.partial_flying);
        EXPECT_EQ(m.partials.at(op.buffer).first, op.origin);
        m.partials[op.buffer].second.push_back(rank);
        break;
    }
    ++m.at;
    return true;
  }
  int32_t size_;
  std::vector<std::deque<std::pair<int32_t, int64_t>>> q_links_;
  std::vector<std::deque<std::pair<std::pair<int32_t, std::vector<int32_t>>, int64_t>>> p_links_;
};

TEST(QueryRotation, EveryQueryMeetsEveryRankOnceAndComesHome) {
  std::mt19937 rng(13);
  for (int32_t size = 1; size <= 9; ++size) {
    for (int trial = 0; trial < 30; ++trial) {
      const auto tokens = random_counts(rng, size, 5);
      QueryRing ring(tokens);
      ring.run(rng);
      if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "size " << size << " trial " << trial;
      for (int32_t r = 0; r < size; ++r) {
        QueryMember& m = ring.members_[static_cast<size_t>(r)];
        if (tokens[static_cast<size_t>(r)] == 0) continue;
        std::vector<int32_t> want;
        for (int32_t i = 0; i < size; ++i) want.push_back((r + i) % size);
        const auto& [origin, folded] = m.partials.at(home_partial(size));
        ASSERT_EQ(origin, r);
        ASSERT_EQ(folded, want);
      }
    }
  }
}

TEST(QueryRotation, ShiftsAreTheSumOfTheRanksOps) {
  const std::vector<std::vector<int64_t>> all{{3}, {0, 0}, {1, 0}, {2, 5, 1}, {0, 0, 4, 1}};
  for (const auto& tokens : all) {
    const auto size = static_cast<int32_t>(tokens.size());
    const auto shifts = query_shifts(tokens);
    for (int32_t r = 0; r < size; ++r) {
      size_t at = 0;
      for (const QueryOp& op : rotate_queries(r, tokens)) {
        if (op.kind != QueryKind::kPostQueries && op.kind != QueryKind::kPostPartial) continue;
        ASSERT_LT(at, shifts.size());
        EXPECT_EQ(shifts[at].partial, op.kind == QueryKind::kPostPartial);
        EXPECT_EQ(shifts[at].tokens[static_cast<size_t>(r)], op.send_tokens);
        EXPECT_EQ(shifts[at].tokens[static_cast<size_t>((r + size - 1) % size)], op.tokens);
        ++at;
      }
      EXPECT_EQ(at, shifts.size());
    }
  }
}

TEST(Strategy, FollowsWhatWouldMove) {
  const CostConstants slow{1e15, 1e8, 0};  // the network decides
  RowCost row{.resident = 0,
              .new_tokens = 4096,
              .members = 4,
              .ring_block = 4096,
              .heads = 32,
              .kv_heads = 8,
              .k_dim = 128,
              .v_dim = 128,
              .kv_element_bytes = 4};
  EXPECT_EQ(choose_strategy(row, slow), RowStrategy::kPassKv);
  row.resident = 1'000'000;
  row.new_tokens = 64;
  EXPECT_EQ(choose_strategy(row, slow), RowStrategy::kPassQ);
  row.members = 1;  // nothing moves: no reason to leave the first choice
  EXPECT_EQ(choose_strategy(row, slow), RowStrategy::kPassKv);
  row.members = 4;  // a network faster than any compute: no difference but the last partial's way home
  const CostConstants fast{1e9, 1e15, 0};
  EXPECT_EQ(choose_strategy(row, fast), RowStrategy::kPassKv);
  EXPECT_GT(pass_q_seconds(row, fast), 0);
}

}  // namespace
}  // namespace lariat
