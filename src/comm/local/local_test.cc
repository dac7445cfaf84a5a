// Collectives between threads: results, sizes that differ, failures that name a rank.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "comm/local/local_groups.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;

void on_threads(int32_t n, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (std::thread& t : threads) t.join();
}

Deadline soon() {
  return CommClock::now() + 60s;
}

uint8_t byte_of(int32_t rank, int round, size_t i) {
  return static_cast<uint8_t>(rank * 31 + round * 7 + static_cast<int>(i) * 3);
}

TEST(LocalGroup, RingShiftWithUnevenSizes) {
  for (int32_t size = 1; size <= 5; ++size) {
    auto groups = make_local_groups(size);
    on_threads(size, [&](int32_t r) {
      Group& g = *groups[static_cast<size_t>(r)];
      EXPECT_EQ(g.rank(), r);
      EXPECT_EQ(g.size(), size);
      for (int round = 0; round < 50; ++round) {
        // Rank r sends (r * 13 + round) % 40 bytes; sometimes none.
        const auto bytes = [&](int32_t of) {
          return static_cast<size_t>(size == 1 ? 8 : (of * 13 + round) % 40);
        };
        const int32_t before = (r + size - 1) % size;
        std::vector<uint8_t> out(bytes(r)), in(bytes(before));
        for (size_t i = 0; i < out.size(); ++i) out[i] = byte_of(r, round, i);
        const auto pending = g.ring_shift({out.data(), out.size(), {}}, {in.data(), in.size(), {}});
        ASSERT_TRUE(pending->wait(soon()).ok());
        EXPECT_TRUE(pending->done());
        for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(in[i], byte_of(before, round, i));
      }
      EXPECT_EQ(g.counters().calls, 50);
    });
  }
}

// A receive completes although the sender never waits: posting is enough.
TEST(LocalGroup, ReceivingNeedsNoWaitOfTheSender) {
  auto groups = make_local_groups(2);
  std::vector<int> a(100, 1), b(100, 2), from_a(100), from_b(100);
  auto first = groups[0]->ring_shift({a.data(), 400, {}}, {from_b.data(), 400, {}});
  EXPECT_FALSE(first->done());
  auto second = groups[1]->ring_shift({b.data(), 400, {}}, {from_a.data(), 400, {}});
  EXPECT_TRUE(first->done());
  ASSERT_TRUE(second->wait(soon()).ok());
  EXPECT_EQ(from_a, a);
  ASSERT_TRUE(first->wait(soon()).ok());
  EXPECT_EQ(from_b, b);
}

TEST(LocalGroup, SeveralInFlightKeepTheirOrder) {
  auto groups = make_local_groups(3);
  on_threads(3, [&](int32_t r) {
    Group& g = *groups[static_cast<size_t>(r)];
    std::vector<int64_t> out(20), in(20, -1);
    std::vector<PendingPtr> pending;
    for (size_t i = 0; i < 20; ++i) {
      out[i] = r * 100 + static_cast<int64_t>(i);
      pending.push_back(g.ring_shift({&out[i], 8, {}}, {&in[i], 8, {}}));
    }
    for (size_t i = 20; i-- > 0;) ASSERT_TRUE(pending[i]->wait(soon()).ok());
    for (size_t i = 0; i < 20; ++i) ASSERT_EQ(in[i], (r + 2) % 3 * 100 + static_cast<int64_t>(i));
  });
}

TEST(LocalGroup, CollectivesOfAllKinds) {
  for (int32_t size = 1; size <= 5; ++size) {
    auto groups = make_local_groups(size);
    const auto n = static_cast<size_t>(size);
    on_threads(size, [&](int32_t r) {
      Group& g = *groups[static_cast<size_t>(r)];
      std::vector<int32_t> own{r, r + 100}, all(2 * n);
      ASSERT_TRUE(g.all_gather({own.data(), 8, {}}, {all.data(), 8 * n, {}})->wait(soon()).ok());
      std::vector<int32_t> to(n), from(n);
      for (int32_t j = 0; j < size; ++j) to[static_cast<size_t>(j)] = r * 10 + j;
      ASSERT_TRUE(g.all_to_all({to.data(), 4 * n, {}}, {from.data(), 4 * n, {}})->wait(soon()).ok());
      for (int32_t j = 0; j < size; ++j) {
        ASSERT_EQ(all[2 * static_cast<size_t>(j) + 1], j + 100);
        ASSERT_EQ(from[static_cast<size_t>(j)], j * 10 + r);
      }
      int64_t word = r == size - 1 ? 42 : 0;
      ASSERT_TRUE(g.broadcast(&word, 8, size - 1, {})->wait(soon()).ok());
      EXPECT_EQ(word, 42);
      ASSERT_TRUE(g.barrier()->wait(soon()).ok());
    });
  }
}

// The order of additions is that of the members, from member 0 on: the same bits everywhere, whoever is late.
TEST(LocalGroup, SumsHaveOneOrder) {
  constexpr int32_t kSize = 4;
  constexpr int64_t kN = 8;
  const auto value = [](int32_t rank, int64_t i) {
    return std::sin(static_cast<float>(rank * 97 + i * 13)) * std::pow(10.0f, static_cast<float>(rank * 2));
  };
  float want[kN];
  for (int64_t i = 0; i < kN; ++i) {
    want[i] = value(0, i);
    for (int32_t rank = 1; rank < kSize; ++rank) want[i] += value(rank, i);
  }
  auto groups = make_local_groups(kSize);
  on_threads(kSize, [&](int32_t r) {
    Group& g = *groups[static_cast<size_t>(r)];
    for (int round = 0; round < 30; ++round) {
      float data[kN], block[kN / kSize];
      for (int64_t i = 0; i < kN; ++i) data[i] = value(r, i);
      ASSERT_TRUE(g.reduce_scatter_sum(data, kN, block, {})->wait(soon()).ok());
      EXPECT_EQ(std::memcmp(block, want + r * kN / kSize, sizeof block), 0);
      ASSERT_TRUE(g.all_reduce_sum(data, kN, {})->wait(soon()).ok());
      EXPECT_EQ(std::memcmp(data, want, sizeof want), 0);
    }
  });
}

TEST(LocalGroup, DeadlineNamesTheRankThatIsMissing) {
  auto groups = make_local_groups(4);
  on_threads(4, [&](int32_t r) {
    if (r == 2) return;  // never comes
    Group& g = *groups[static_cast<size_t>(r)];
    int in = 0, out = 0;
    const Status first =
        g.ring_shift({&out, 4, {}}, {&in, 4, {}})->wait(CommClock::now() + std::chrono::milliseconds(200));
    // Ranks 1 and 3 wait for rank 2 itself. Rank 0's first call completes; its next waits for rank 3, which
    // waits for rank 2.
    if (first.ok()) {
      const Status next =
          g.ring_shift({&out, 4, {}}, {&in, 4, {}})->wait(CommClock::now() + std::chrono::milliseconds(200));
      ASSERT_FALSE(next.ok());
    } else {
      EXPECT_EQ(first.error().code, Errc::kDeadlineExceeded);
      EXPECT_EQ(first.error().param, "rank 2") << first.error().message;
    }
    // Dead for good, at once.
    const auto since = CommClock::now();
    EXPECT_FALSE(g.barrier()->wait(CommClock::now() + 60s).ok());
    EXPECT_LT(CommClock::now() - since, 10s);
    EXPECT_FALSE(g.health().ok());
  });
}

TEST(LocalGroup, AbortReachesEveryRankThatWaits) {
  auto groups = make_local_groups(3);
  on_threads(3, [&](int32_t r) {
    Group& g = *groups[static_cast<size_t>(r)];
    if (r == 1) {
      g.abort(make_error(Errc::kResourceExhausted, "no memory for the step"));
      return;
    }
    const Status status = g.barrier()->wait(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kResourceExhausted);
    EXPECT_EQ(status.error().param, "rank 1");
    EXPECT_NE(status.error().message.find("rank 1: no memory"), std::string::npos);
  });
}

TEST(LocalGroup, SizesThatDisagreeAreNamed) {
  auto groups = make_local_groups(2);
  on_threads(2, [&](int32_t r) {
    Group& g = *groups[static_cast<size_t>(r)];
    char in[8], out[8] = {};
    const size_t bytes = r == 0 ? 8 : 4;
    const Status status = g.ring_shift({out, bytes, {}}, {in, bytes, {}})->wait(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kInternal);
    EXPECT_NE(status.error().message.find("8 bytes"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("4 bytes"), std::string::npos) << status.error().message;
  });
}

TEST(LocalGroup, CallsThatDisagreeAreNamed) {
  auto groups = make_local_groups(2);
  on_threads(2, [&](int32_t r) {
    Group& g = *groups[static_cast<size_t>(r)];
    char in[16], out[8] = {};
    const Status status =
        r == 0 ? g.barrier()->wait(soon()) : g.all_gather({out, 0, {}}, {in, 0, {}})->wait(soon());
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("barrier"), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("all_gather"), std::string::npos) << status.error().message;
  });
}

TEST(RankGroups, MembersFollowTheLayout) {
  const RankMembers m = members_of({4, 3}, 2, Rank(7));  // c = 1, t = 3
  EXPECT_EQ(m.world.size(), 12u);
  EXPECT_EQ(m.tp, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(m.ring, (std::vector<int32_t>{3, 7, 11}));
  EXPECT_EQ(m.duplicates, (std::vector<int32_t>{6, 7}));
}

TEST(RankGroups, GroupsAreApartAndFailTogether) {
  auto ranks = make_local_rank_groups({2, 2}, 1);
  on_threads(4, [&](int32_t r) {
    RankGroups& g = ranks[static_cast<size_t>(r)];
    float sum = static_cast<float>(r);
    ASSERT_TRUE(g.tp->all_reduce_sum(&sum, 1, {})->wait(soon()).ok());
    EXPECT_EQ(sum, r < 2 ? 1.0f : 5.0f);
    int32_t other = -1;
    ASSERT_TRUE(g.ring->ring_shift({&r, 4, {}}, {&other, 4, {}})->wait(soon()).ok());
    EXPECT_EQ(other, (r + 2) % 4);
    EXPECT_EQ(g.duplicates->size(), 1);
    ASSERT_TRUE(g.world->barrier()->wait(soon()).ok());
    if (r == 0) return g.abort(make_error(Errc::kUnavailable, "gone"));
    const Status status = g.tp->barrier()->wait(soon());
    if (r == 1) {
      EXPECT_FALSE(status.ok());
    }
    EXPECT_FALSE(g.world->barrier()->wait(soon()).ok());
  });
}

}  // namespace
}  // namespace lariat
