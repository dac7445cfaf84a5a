// The simulated network: right results under every seed, runs that replay, faults that name a rank.
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "comm/local/local_groups.h"
#include "comm/sim/sim_exchange.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;

Deadline in_ten_seconds() {
  return CommClock::now() + 10s;
}

// A few rounds of everything; the first error, if any.
Status exercise(RankGroups& g, int rounds) {
  const int32_t world = g.world->size();
  for (int round = 0; round < rounds; ++round) {
    int32_t token = g.ring->rank() * 1000 + round;
    for (int32_t step = 0; step < g.ring->size(); ++step) {
      int32_t next = -1;
      LARIAT_RETURN_IF_ERROR(g.ring->ring_shift({&token, 4, {}}, {&next, 4, {}})->wait(in_ten_seconds()));
      token = next;
    }
    if (token != g.ring->rank() * 1000 + round) return make_error(Errc::kInternal, "wrong token");
    std::vector<float> sums{1.0f, static_cast<float>(g.tp->rank())};
    LARIAT_RETURN_IF_ERROR(g.tp->all_reduce_sum(sums.data(), 2, {})->wait(in_ten_seconds()));
    const auto tp = static_cast<float>(g.tp->size());
    if (sums[0] != tp || sums[1] != tp * (tp - 1) / 2) return make_error(Errc::kInternal, "wrong sum");
    std::vector<int32_t> all(static_cast<size_t>(world));
    const int32_t own = g.world->rank() + round;
    LARIAT_RETURN_IF_ERROR(
        g.world->all_gather({&own, 4, {}}, {all.data(), 4 * all.size(), {}})->wait(in_ten_seconds()));
    for (int32_t r = 0; r < world; ++r)
      if (all[static_cast<size_t>(r)] != r + round) return make_error(Errc::kInternal, "wrong gather");
  }
  return Ok{};
}

struct Outcome {
  std::vector<Status> ranks;
  uint64_t trace = 0;
  int64_t virtual_us = 0;
};

Outcome simulate(const Layout& layout, const SimOptions& options, int rounds) {
  const auto exchange = make_sim_exchange(layout.world(), options);
  auto groups = make_rank_groups(exchange, layout, 1);
  Outcome outcome;
  outcome.ranks.assign(static_cast<size_t>(layout.world()), Ok{});
  run_sim_ranks(*exchange, [&](int32_t r) {
    outcome.ranks[static_cast<size_t>(r)] = exercise(groups[static_cast<size_t>(r)], rounds);
  });
  outcome.trace = exchange->trace();
  outcome.virtual_us = exchange->now_us();
  return outcome;
}

TEST(Sim, EverySeedGivesTheRightResultAndReplays) {
  std::set<uint64_t> traces;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimOptions options;
    options.seed = seed;
    const Outcome first = simulate({2, 3}, options, 2);
    for (const Status& s : first.ranks) ASSERT_TRUE(s.ok()) << "seed " << seed << ": " << s.error().message;
    EXPECT_GT(first.virtual_us, 0);
    const Outcome again = simulate({2, 3}, options, 2);
    ASSERT_EQ(first.trace, again.trace) << "seed " << seed;
    traces.insert(first.trace);
  }
  EXPECT_EQ(traces.size(), 60u);
}

TEST(Sim, StallsShorterThanTheDeadlineOnlyTakeTime) {
  SimOptions options{.seed = 5, .faults = {{SimFault::Kind::kStall, 1, 0, 3, 8'000}}};
  const Outcome outcome = simulate({1, 3}, options, 2);
  for (const Status& s : outcome.ranks) ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_GE(outcome.virtual_us, 8'000'000);
}

TEST(Sim, StallBeyondTheDeadlineNamesTheRank) {
  SimOptions options{.seed = 5, .faults = {{SimFault::Kind::kStall, 1, 0, 3, 30'000}}};
  const Outcome outcome = simulate({1, 3}, options, 2);
  for (const Status& s : outcome.ranks) {
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, Errc::kDeadlineExceeded);
    EXPECT_FALSE(s.error().param.empty());
  }
}

TEST(Sim, KilledRankIsNamedEverywhere) {
  SimOptions options{.seed = 9, .faults = {{SimFault::Kind::kKill, 2, 0, 4, 0}}};
  const Outcome outcome = simulate({2, 2}, options, 3);
  for (const Status& s : outcome.ranks) {
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, Errc::kUnavailable);
    EXPECT_EQ(s.error().param, "rank 2");
  }
  EXPECT_LT(outcome.virtual_us, 10'000'000);  // heard of, not waited for
}

TEST(Sim, CutLinkIsADeadlineOnBothSides) {
  SimOptions options{.seed = 3, .faults = {{SimFault::Kind::kCut, 0, 1, 2, 0}}};
  const Outcome outcome = simulate({1, 3}, options, 3);
  for (const Status& s : outcome.ranks) {
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().code, Errc::kDeadlineExceeded) << s.error().message;
    EXPECT_FALSE(s.error().param.empty());
  }
}

TEST(Sim, RandomFaultsEndWithoutAHangAndReplay) {
  int failed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimOptions options{.seed = seed, .faults = {random_fault(seed, 4, 12, 20'000)}};
    const Outcome first = simulate({2, 2}, options, 2);
    const Outcome again = simulate({2, 2}, options, 2);
    ASSERT_EQ(first.trace, again.trace) << "seed " << seed;
    for (size_t r = 0; r < first.ranks.size(); ++r) {
      ASSERT_EQ(first.ranks[r].ok(), again.ranks[r].ok()) << "seed " << seed;
      if (first.ranks[r].ok()) continue;
      ++failed;
      ASSERT_NE(first.ranks[r].error().code, Errc::kInternal) << "seed " << seed;
      EXPECT_EQ(first.ranks[r].error().message, again.ranks[r].error().message) << "seed " << seed;
      EXPECT_FALSE(first.ranks[r].error().param.empty());
    }
  }
  EXPECT_GT(failed, 0);
}

TEST(Sim, SizesThatDisagreeAreAnError) {
  const auto exchange = make_sim_exchange(2, {.seed = 1, .faults = {}});
  auto groups = make_groups(exchange);
  run_sim_ranks(*exchange, [&](int32_t r) {
    char in[8], out[8] = {};
    const size_t bytes = r == 0 ? 8 : 4;
    const Status status =
        groups[static_cast<size_t>(r)]->ring_shift({out, bytes, {}}, {in, bytes, {}})->wait(in_ten_seconds());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kInternal);
    EXPECT_NE(status.error().message.find("ranks disagree"), std::string::npos);
  });
}

}  // namespace
}  // namespace lariat
