// Collectives between processes: results at odd sizes, large blocks, and the ranks of each layout's groups.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/test_processes.h"
#include "comm/gloo/gloo_groups.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;
using test::Processes;
using test::TempDir;

Deadline soon() {
  return CommClock::now() + 60s;
}

GlooOptions options_of(const TempDir& dir, const Layout& layout, int32_t rank) {
  GlooOptions o;
  o.store_dir = dir.path();
  o.prefix = "epoch-1";
  o.layout = layout;
  o.rank = Rank(rank);
  o.connect_timeout = 60s;
  return o;
}

// Every rank of `layout` forms its groups and runs `body`, which says what is wrong.
void on_processes(const Layout& layout, const std::function<std::string(RankGroups&, int32_t)>& body) {
  const TempDir dir;
  Processes ranks;
  for (int32_t r = 0; r < layout.world(); ++r) {
    ranks.start([&, r]() -> std::string {
      auto groups = make_gloo_rank_groups(options_of(dir, layout, r));
      if (!groups.ok()) return groups.error().message;
      std::string wrong = body(*groups, r);
      const Status over = groups->world->barrier()->wait(soon());
      return wrong.empty() && !over.ok() ? over.error().message : wrong;
    });
  }
  for (int32_t r = 0; r < layout.world(); ++r)
    EXPECT_EQ(ranks.report(static_cast<size_t>(r)), "") << "rank " << r;
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

#define FAIL_UNLESS(cond) \
  if (!(cond)) return std::string(#cond) + " at line " + std::to_string(__LINE__)
#define FAIL_UNLESS_OK(expr)                      \
  if (const Status fails_ = (expr); !fails_.ok()) \
  return fails_.error().message + " at line " + std::to_string(__LINE__)

uint8_t byte_of(int32_t rank, int round, size_t i) {
  return static_cast<uint8_t>(rank * 31 + round * 7 + static_cast<int>(i) * 3);
}

std::string ring_of_odd_sizes(Group& g) {
  const int32_t before = (g.rank() + g.size() - 1) % g.size();
  for (int round = 0; round < 40; ++round) {
    // Some blocks are empty, some fill many packets.
    const auto bytes = [&](int32_t of) {
      return static_cast<size_t>(g.size() == 1 ? 8 : (of * 13 + round) % 40 * (round % 5 == 0 ? 4099 : 1));
    };
    std::vector<uint8_t> out(bytes(g.rank())), in(bytes(before));
    for (size_t i = 0; i < out.size(); ++i) out[i] = byte_of(g.rank(), round, i);
    const auto pending = g.ring_shift({out.data(), out.size(), {}}, {in.data(), in.size(), {}});
    FAIL_UNLESS_OK(pending->wait(soon()));
    FAIL_UNLESS(pending->done());
    for (size_t i = 0; i < in.size(); ++i) FAIL_UNLESS(in[i] == byte_of(before, round, i));
  }
  return "";
}

std::string exchanges_of_odd_sizes(Group& g) {
  const auto n = static_cast<size_t>(g.size());
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{7}, size_t{4097}, size_t{70001}}) {
    std::vector<uint8_t> own(bytes), all(bytes * n), to(bytes * n), from(bytes * n);
    for (size_t i = 0; i < bytes; ++i) own[i] = byte_of(g.rank(), 1, i);
    for (size_t i = 0; i < bytes * n; ++i) to[i] = byte_of(g.rank(), 2, i);
    FAIL_UNLESS_OK(g.all_gather({own.data(), bytes, {}}, {all.data(), bytes * n, {}})->wait(soon()));
    FAIL_UNLESS_OK(g.all_to_all({to.data(), bytes * n, {}}, {from.data(), bytes * n, {}})->wait(soon()));
    for (int32_t j = 0; j < g.size(); ++j) {
      const size_t block = bytes * static_cast<size_t>(j);
      const size_t mine = bytes * static_cast<size_t>(g.rank());
      for (size_t i = 0; i < bytes; ++i) {
        FAIL_UNLESS(all[block + i] == byte_of(j, 1, i));
        FAIL_UNLESS(from[block + i] == byte_of(j, 2, mine + i));
      }
    }
    for (int32_t root = 0; root < g.size(); ++root) {
      std::vector<uint8_t> data(bytes, static_cast<uint8_t>(g.rank()));
      FAIL_UNLESS_OK(g.broadcast(data.data(), bytes, root, {})->wait(soon()));
      for (const uint8_t b : data) FAIL_UNLESS(b == root);
    }
    FAIL_UNLESS_OK(g.barrier()->wait(soon()));
  }
  return "";
}

// The order of additions is that of the members: the same bits everywhere.
std::string sums_of_one_order(Group& g) {
  const auto value = [](int32_t rank, int64_t i) {
    return std::sin(static_cast<float>(rank * 97 + i * 13)) * std::pow(10.0f, static_cast<float>(rank * 2));
  };
  for (const int64_t block : {0, 1, 3, 1001}) {
    const int64_t n = block * g.size();
    std::vector<float> want(static_cast<size_t>(n)), data(want.size()), part(static_cast<size_t>(block));
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = value(0, static_cast<int64_t>(i));
      for (int32_t r = 1; r < g.size(); ++r) want[i] += value(r, static_cast<int64_t>(i));
      data[i] = value(g.rank(), static_cast<int64_t>(i));
    }
    FAIL_UNLESS_OK(g.reduce_scatter_sum(data.data(), n, part.data(), {})->wait(soon()));
    FAIL_UNLESS_OK(g.all_reduce_sum(data.data(), n, {})->wait(soon()));
    const float* own = want.data() + block * g.rank();
    FAIL_UNLESS(std::equal(part.begin(), part.end(), own));
    FAIL_UNLESS(data == want);
  }
  return "";
}

std::string many_in_flight(Group& g) {
  constexpr size_t kCalls = 60;
  std::vector<int64_t> out(kCalls), in(kCalls, -1);
  std::vector<PendingPtr> pending;
  for (size_t i = 0; i < kCalls; ++i) {
    out[i] = g.rank() * 100 + static_cast<int64_t>(i);
    pending.push_back(g.ring_shift({&out[i], 8, {}}, {&in[i], 8, {}}));
  }
  for (size_t i = kCalls; i-- > 0;) FAIL_UNLESS_OK(pending[i]->wait(soon()));
  const int32_t before = (g.rank() + g.size() - 1) % g.size();
  for (size_t i = 0; i < kCalls; ++i) FAIL_UNLESS(in[i] == before * 100 + static_cast<int64_t>(i));
  return "";
}

TEST(Gloo, CollectivesOfAllKinds) {
  for (const int32_t world : {1, 2, 3, 5}) {
    SCOPED_TRACE(world);
    on_processes({1, world}, [&](RankGroups& groups, int32_t r) -> std::string {
      Group& g = *groups.world;
      FAIL_UNLESS(g.rank() == r && g.size() == world && g.transport() == "gloo");
      for (const auto& check : {ring_of_odd_sizes, exchanges_of_odd_sizes, sums_of_one_order, many_in_flight})
        if (std::string wrong = check(g); !wrong.empty()) return wrong;
      FAIL_UNLESS(g.counters().calls > 100);
      FAIL_UNLESS(world == 1 || g.counters().bytes_sent > 100'000);
      return "";
    });
  }
}

TEST(Gloo, GroupsOfALayoutAreApart) {
  on_processes({2, 2}, [](RankGroups& g, int32_t r) -> std::string {
    for (int round = 0; round < 50; ++round) {
      // All four groups have calls in flight at once, waited for in another order.
      float sum = static_cast<float>(r);
      int32_t other = -1, all[4] = {};
      auto tp = g.tp->all_reduce_sum(&sum, 1, {});
      auto ring = g.ring->ring_shift({&r, 4, {}}, {&other, 4, {}});
      auto one = g.duplicates->barrier();
      auto world = g.world->all_gather({&r, 4, {}}, {all, sizeof all, {}});
      FAIL_UNLESS_OK(world->wait(soon()));
      FAIL_UNLESS_OK(one->wait(soon()));
      FAIL_UNLESS_OK(ring->wait(soon()));
      FAIL_UNLESS_OK(tp->wait(soon()));
      FAIL_UNLESS(sum == (r < 2 ? 1.0f : 5.0f));
      FAIL_UNLESS(other == (r + 2) % 4);
      for (int32_t i = 0; i < 4; ++i) FAIL_UNLESS(all[i] == i);
    }
    FAIL_UNLESS(g.duplicates->size() == 1);
    return "";
  });
}

// Sums larger than a mailbox, under way together, waited for in another order by every rank: what a rank
// posted goes on while it waits for something else.
TEST(Gloo, LargeSumsInAnyOrder) {
  for (const int32_t world : {2, 3}) {
    on_processes({1, world}, [&](RankGroups& groups, int32_t r) -> std::string {
      constexpr size_t kN = 300'001, kCalls = 6;
      const auto value = [](int32_t rank, size_t call, size_t i) {
        return static_cast<float>(rank + 1) * static_cast<float>(i % 1000) + static_cast<float>(call);
      };
      std::vector<std::vector<float>> data(kCalls, std::vector<float>(kN));
      std::vector<PendingPtr> sums, marks;
      std::vector<std::vector<int32_t>> all(kCalls, std::vector<int32_t>(static_cast<size_t>(world)));
      for (size_t call = 0; call < kCalls; ++call) {
        for (size_t i = 0; i < kN; ++i) data[call][i] = value(r, call, i);
        sums.push_back(groups.world->all_reduce_sum(data[call].data(), kN, {}));
        marks.push_back(groups.ring->all_gather({&r, 4, {}}, {all[call].data(), all[call].size() * 4, {}}));
      }
      for (size_t k = 0; k < kCalls; ++k) {
        const size_t call = r == 0 ? k : r == 1 ? kCalls - 1 - k : (k + 3) % kCalls;
        if (r == 1) FAIL_UNLESS_OK(sums[call]->wait(soon()));
        FAIL_UNLESS_OK(marks[call]->wait(soon()));
        if (r != 1) FAIL_UNLESS_OK(sums[call]->wait(soon()));
        for (int32_t j = 0; j < world; ++j) FAIL_UNLESS(all[call][static_cast<size_t>(j)] == j);
        for (size_t i = 0; i < kN; i += 7) {
          float want = 0;
          for (int32_t j = 0; j < world; ++j) want += value(j, call, i);
          FAIL_UNLESS(data[call][i] == want);
        }
      }
      return "";
    });
  }
}

TEST(Gloo, LargeBlocks) {
  constexpr size_t kBytes = size_t{64} << 20;
  on_processes({1, 3}, [](RankGroups& groups, int32_t) -> std::string {
    Group& g = *groups.world;
    std::vector<uint32_t> own(kBytes / 4), in(kBytes / 4), all(3 * kBytes / 4);
    for (size_t i = 0; i < own.size(); ++i)
      own[i] = static_cast<uint32_t>(i * 3) + static_cast<uint32_t>(g.rank());
    const auto before = static_cast<uint32_t>((g.rank() + 2) % 3);
    FAIL_UNLESS_OK(g.ring_shift({own.data(), kBytes, {}}, {in.data(), kBytes, {}})->wait(soon()));
    for (size_t i = 0; i < in.size(); ++i) FAIL_UNLESS(in[i] == static_cast<uint32_t>(i * 3) + before);
    FAIL_UNLESS_OK(g.all_gather({own.data(), kBytes, {}}, {all.data(), 3 * kBytes, {}})->wait(soon()));
    for (uint32_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < own.size(); i += 511)
        FAIL_UNLESS(all[r * own.size() + i] == static_cast<uint32_t>(i * 3) + r);
    return "";
  });
}

}  // namespace
}  // namespace lariat
