// Ranks that die, stop, abort or never come: who is left is told who it was, soon, and forms again.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "base/test_processes.h"
#include "comm/gloo/gloo_groups.h"
#include "comm/gloo/meeting.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;
using test::Processes;
using test::TempDir;

// News of a death takes milliseconds; the rest is for a loaded machine.
constexpr auto kPrompt = 1000ms;

#define FAIL_UNLESS(cond, ...)              \
  if (!(cond))                              \
  return std::string(#cond) + " at line " + \
         std::to_string(__LINE__) __VA_OPT__(+": " + std::string(__VA_ARGS__))

GlooOptions options_of(const TempDir& dir, int32_t world, int32_t rank, const std::string& prefix = "1") {
  GlooOptions o;
  o.store_dir = dir.path();
  o.prefix = prefix;
  o.layout = {1, world};
  o.rank = Rank(rank);
  o.connect_timeout = 30s;
  return o;
}

int64_t ms_since(CommClock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(CommClock::now() - since).count();
}

// Memory that the processes of a test have in common, for the life of the test program.
void* shared_page() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  LARIAT_CHECK(page != MAP_FAILED, "no page");
  return page;
}

// Three ranks that have met; each reports what `body` does of it.
void start_three(Processes& ranks, const TempDir& dir,
                 const std::function<std::string(RankGroups&, int32_t)>& body) {
  for (int32_t r = 0; r < 3; ++r) {
    ranks.start([&, r]() -> std::string {
      auto groups = make_gloo_rank_groups(options_of(dir, 3, r));
      FAIL_UNLESS(groups.ok(), groups.error().message);
      FAIL_UNLESS(groups->world->barrier()->wait(CommClock::now() + 30s).ok());
      return body(*groups, r);
    });
  }
}

// A collective large enough to be under way when something happens to it.
struct Bulk {
  static constexpr size_t kBytes = size_t{16} << 20;
  std::vector<char> own = std::vector<char>(kBytes, 1);
  std::vector<char> all;

  PendingPtr start(Group& g) {
    all.resize(kBytes * static_cast<size_t>(g.size()));
    return g.all_gather({own.data(), own.size(), {}}, {all.data(), all.size(), {}});
  }
  Status run(Group& g, Deadline deadline) { return start(g)->wait(deadline); }
};

TEST(GlooLoss, KilledRankIsNamedAndTheGroupFormsAgain) {
  const TempDir dir;
  Processes ranks;
  auto* const died_at = new (shared_page()) CommClock::time_point;
  const auto survive = [&](int32_t r) -> std::string {
    auto groups = make_gloo_rank_groups(options_of(dir, 3, r));
    FAIL_UNLESS(groups.ok(), groups.error().message);
    Bulk bulk;
    while (true) {  // rank 2 dies within one of them
      const Status status = bulk.run(*groups->world, CommClock::now() + 30s);
      if (status.ok()) continue;
      FAIL_UNLESS(status.error().code == Errc::kUnavailable, status.error().message);
      FAIL_UNLESS(status.error().param == "rank 2", status.error().message);
      FAIL_UNLESS(status.error().message.find("rank 2") != std::string::npos, status.error().message);
      if (r == 0)
        std::fprintf(stderr, "known %ld ms after its death\n", static_cast<long>(ms_since(*died_at)));
      FAIL_UNLESS(CommClock::now() - *died_at < kPrompt, std::to_string(ms_since(*died_at)));
      break;
    }
    auto since = CommClock::now();
    FAIL_UNLESS(!groups->ring->barrier()->wait(CommClock::now() + 30s).ok());
    FAIL_UNLESS(CommClock::now() - since < kPrompt);
    since = CommClock::now();
    *groups = RankGroups{};
    auto again = make_gloo_rank_groups(options_of(dir, 3, r, "2"));
    FAIL_UNLESS(again.ok(), again.error().message);
    FAIL_UNLESS(again->world->barrier()->wait(CommClock::now() + 30s).ok());
    if (r == 0) std::fprintf(stderr, "formed again in %ld ms\n", static_cast<long>(ms_since(since)));
    FAIL_UNLESS(CommClock::now() - since < kPrompt, std::to_string(ms_since(since)));
    return "";
  };
  ranks.start([&] { return survive(0); });
  ranks.start([&] { return survive(1); });
  ranks.start([&]() -> std::string {
    auto groups = make_gloo_rank_groups(options_of(dir, 3, 2));
    FAIL_UNLESS(groups.ok(), groups.error().message);
    Bulk bulk;
    FAIL_UNLESS(bulk.run(*groups->world, CommClock::now() + 30s).ok());
    const PendingPtr pending = bulk.start(*groups->world);
    *died_at = CommClock::now();
    raise(SIGKILL);  // its sends are half written
    return "";
  });
  ranks.start([&]() -> std::string {  // what the head would respawn
    auto groups = make_gloo_rank_groups(options_of(dir, 3, 2, "2"));
    FAIL_UNLESS(groups.ok(), groups.error().message);
    FAIL_UNLESS(groups->world->barrier()->wait(CommClock::now() + 30s).ok());
    return "";
  });
  EXPECT_EQ(ranks.report(2), " (signal 9)");
  EXPECT_EQ(ranks.report(0), "");
  EXPECT_EQ(ranks.report(1), "");
  EXPECT_EQ(ranks.report(3), "");
}

// Bytes of a message: through shared memory, and through a connection.
class GlooLossBySize : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, GlooLossBySize, testing::Values(8, 100'000));

// Rank 0 waits for rank 1, which waits for rank 2, which is stopped: all say rank 2.
TEST_P(GlooLossBySize, StoppedRankIsNamedAtTheDeadline) {
  const TempDir dir;
  Processes ranks;
  start_three(ranks, dir, [](RankGroups& groups, int32_t r) -> std::string {
    if (r == 2) raise(SIGSTOP);
    Group& ring = *groups.ring;
    const size_t bytes = GetParam();
    std::vector<char> in(bytes), out(bytes);
    const auto since = CommClock::now();
    Status status = Status(Ok{});
    while (status.ok())
      status =
          ring.ring_shift({out.data(), bytes, {}}, {in.data(), bytes, {}})->wait(CommClock::now() + 500ms);
    FAIL_UNLESS(status.error().code == Errc::kDeadlineExceeded, status.error().message);
    FAIL_UNLESS(status.error().param == "rank 2", status.error().message);
    FAIL_UNLESS(ms_since(since) >= 490 && ms_since(since) < 3000, std::to_string(ms_since(since)));
    return "";
  });
  EXPECT_EQ(ranks.report(0), "");
  EXPECT_EQ(ranks.report(1), "");
  kill(ranks.pid(2), SIGCONT);  // it finds its peers gone, and ends
  EXPECT_NE(ranks.report(2), "");
}

// Rank 1 is stuck in something else and hears of it from the ranks that waited.
TEST(GlooLoss, WhoKeepsOthersWaitingIsTold) {
  const TempDir dir;
  Processes ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> std::string {
      std::mutex mutex;
      std::condition_variable changed;
      std::string told;
      GlooOptions o = options_of(dir, 2, r);
      o.on_blamed = [&](const Error& why) {
        const std::lock_guard lock(mutex);
        told = why.message;
        changed.notify_all();
      };
      auto groups = make_gloo_rank_groups(o);
      FAIL_UNLESS(groups.ok(), groups.error().message);
      if (r == 0) {
        FAIL_UNLESS(!groups->world->barrier()->wait(CommClock::now() + 300ms).ok());
        return told;
      }
      std::unique_lock lock(mutex);
      FAIL_UNLESS(changed.wait_for(lock, 30s, [&] { return !told.empty(); }));
      FAIL_UNLESS(told.find("rank 0 waited in barrier") != std::string::npos, told);
      return "";
    });
  }
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks.report(r), "");
}

// Until the thread of this process sleeps: it is then inside its wait.
void until_asleep(pid_t thread) {
  const auto until = CommClock::now() + 30s;
  while (CommClock::now() < until) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    std::getline(stat, text);
    if (const size_t name_end = text.rfind(')'); name_end != std::string::npos && text[name_end + 2] == 'S')
      return;
    std::this_thread::yield();
  }
}

TEST_P(GlooLossBySize, AbortWakesEveryRank) {
  const TempDir dir;
  Processes ranks;
  auto* const formed = new (shared_page()) std::atomic<int>(0);
  for (int32_t r = 0; r < 3; ++r) {
    ranks.start([&, r]() -> std::string {
      auto groups = make_gloo_rank_groups(options_of(dir, 3, r));
      FAIL_UNLESS(groups.ok(), groups.error().message);
      ++*formed;
      const size_t bytes = GetParam();
      std::vector<char> in(bytes), out(bytes);
      std::thread other;
      if (r == 1) {
        other = std::thread([&groups, formed, waiter = gettid()] {
          while (formed->load() < 3) std::this_thread::yield();  // else it would spoil their forming
          until_asleep(waiter);
          groups->abort(make_error(Errc::kResourceExhausted, "no memory for the step"));
        });
      }
      // Each waits for what the rank before it never sends.
      const auto since = CommClock::now();
      const Status status =
          r == 1 ? groups->ring->ring_shift({out.data(), bytes, {}}, {in.data(), bytes, {}})
                       ->wait(CommClock::now() + 30s)
                 : groups->world->broadcast(in.data(), bytes, (r + 2) % 3, {})->wait(CommClock::now() + 30s);
      if (other.joinable()) other.join();
      FAIL_UNLESS(!status.ok());
      FAIL_UNLESS(status.error().code == Errc::kResourceExhausted, status.error().message);
      FAIL_UNLESS(status.error().param == "rank 1", status.error().message);
      FAIL_UNLESS(status.error().message.find("rank 1: no memory") != std::string::npos,
                  status.error().message);
      FAIL_UNLESS(CommClock::now() - since < kPrompt, std::to_string(ms_since(since)));
      return "";
    });
  }
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.report(r), "");
}

// Shuts the first connection of this process down, as a network that fails would.
bool cut_a_connection() {
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0 && peer.sin_family == AF_INET)
      return shutdown(fd, SHUT_RDWR) == 0;
  }
  return false;
}

TEST(GlooLoss, CutConnectionEndsTheGroupForAll) {
  const TempDir dir;
  Processes ranks;
  start_three(ranks, dir, [](RankGroups& groups, int32_t r) -> std::string {
    Bulk bulk;
    const PendingPtr pending = bulk.start(*groups.world);
    if (r == 1) FAIL_UNLESS(cut_a_connection());
    const auto since = CommClock::now();
    // Where the cut is not on this rank's way, its call may still complete.
    Status status = pending->wait(CommClock::now() + 30s);
    while (status.ok()) status = bulk.run(*groups.world, CommClock::now() + 30s);
    FAIL_UNLESS(status.error().code == Errc::kUnavailable, status.error().message);
    FAIL_UNLESS(status.error().param.starts_with("rank "), status.error().message);
    FAIL_UNLESS(CommClock::now() - since < kPrompt + 1s, std::to_string(ms_since(since)));
    return "";
  });
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.report(r), "");
}

TEST(GlooLoss, ACutConnectionIsKnownToAllWithoutACall) {
  const TempDir dir;
  Processes ranks;
  auto* const well = new (shared_page()) std::atomic<int>(0);
  start_three(ranks, dir, [=](RankGroups& groups, int32_t r) -> std::string {
    FAIL_UNLESS(groups.ring->health().ok());
    ++*well;
    const auto until = CommClock::now() + 10s;
    // Not before all have said so.
    while (*well < 3 && CommClock::now() < until) std::this_thread::yield();
    if (r == 1) FAIL_UNLESS(cut_a_connection());
    Status health = Ok{};
    while ((health = groups.world->health()).ok() && CommClock::now() < until) std::this_thread::yield();
    FAIL_UNLESS(!health.ok() && health.error().code == Errc::kUnavailable);
    FAIL_UNLESS(health.error().param.starts_with("rank "), health.error().message);
    FAIL_UNLESS(!groups.ring->health().ok(), "one group of a mesh fails as all do");
    return "";
  });
  for (size_t r = 0; r < 3; ++r) EXPECT_EQ(ranks.report(r), "");
}

TEST_P(GlooLossBySize, SizesThatDisagreeEndInADeadline) {
  const TempDir dir;
  Processes ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> std::string {
      auto groups = make_gloo_rank_groups(options_of(dir, 2, r));
      FAIL_UNLESS(groups.ok(), groups.error().message);
      const size_t bytes = r == 0 ? GetParam() : GetParam() / 2;
      std::vector<char> in(bytes), out(bytes);
      const Status status = groups->ring->ring_shift({out.data(), bytes, {}}, {in.data(), bytes, {}})
                                ->wait(CommClock::now() + 300ms);
      FAIL_UNLESS(!status.ok() && status.error().code == Errc::kDeadlineExceeded);
      FAIL_UNLESS(status.error().message.find("ring_shift") != std::string::npos, status.error().message);
      return "";
    });
  }
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks.report(r), "");
}

TEST_P(GlooLossBySize, WhoLeavesInOrderSpoilsNothingAndIsNamed) {
  const TempDir dir;
  Processes ranks;
  int alive[2];  // held open by rank 1's life
  ASSERT_EQ(pipe2(alive, O_CLOEXEC), 0);
  for (int32_t r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> std::string {
      if (r == 0) close(alive[1]);
      auto groups = make_gloo_rank_groups(options_of(dir, 2, r));
      FAIL_UNLESS(groups.ok(), groups.error().message);
      std::vector<char> text(GetParam(), r == 1 ? 'x' : ' ');
      const auto from_one = groups->world->broadcast(text.data(), text.size(), 1, {});
      char none = 0;
      if (r == 0) FAIL_UNLESS(read(alive[0], &none, 1) == 0);  // rank 1 has left
      FAIL_UNLESS(from_one->wait(CommClock::now() + 30s).ok());
      if (r == 1) return "";
      FAIL_UNLESS(text == std::vector<char>(GetParam(), 'x'));
      const Status status = groups->world->barrier()->wait(CommClock::now() + 30s);
      FAIL_UNLESS(!status.ok() && status.error().param == "rank 1");
      FAIL_UNLESS(status.error().message.find("rank 1 has left") != std::string::npos,
                  status.error().message);
      return "";
    });
  }
  close(alive[0]);
  close(alive[1]);
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks.report(r), "");
}

TEST(GlooForming, MissingRankIsNamed) {
  const TempDir dir;
  Processes ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> std::string {
      GlooOptions o = options_of(dir, 3, r);
      o.connect_timeout = 300ms;
      const auto groups = make_gloo_rank_groups(o);
      FAIL_UNLESS(!groups.ok() && groups.error().code == Errc::kDeadlineExceeded);
      FAIL_UNLESS(groups.error().param == "rank 2", groups.error().message);
      return "";
    });
  }
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks.report(r), "");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "a failed forming leaves nothing";
}

TEST(GlooForming, CancelEndsTheWait) {
  const TempDir dir;
  Processes ranks;
  ranks.start([&]() -> std::string {
    std::atomic<bool> cancelled{false};
    std::thread canceller([&] {
      while (!std::filesystem::exists(dir.path() / "1.rank 0")) std::this_thread::yield();
      cancelled = true;
    });
    GlooOptions o = options_of(dir, 2, 0);
    o.cancelled = &cancelled;
    const auto groups = make_gloo_rank_groups(o);
    canceller.join();
    FAIL_UNLESS(!groups.ok() && groups.error().code == Errc::kCancelled);
    return "";
  });
  EXPECT_EQ(ranks.report(0), "");
}

// Rank 1 leaves an address and never connects, which Gloo alone would wait for much longer.
TEST(GlooForming, RankThatDoesNotConnectIsNamed) {
  const TempDir dir;
  Processes ranks;
  ranks.start([&]() -> std::string {
    std::string wrong;
    std::thread silent([&] {
      auto meeting = Meeting::create(dir.path(), "1", 1);
      auto address = meeting->find(0, CommClock::now() + 30s, nullptr);
      if (!address.ok()) return void(wrong = address.error().message);
      (*address)[2] = (*address)[3] = '\xff';  // the highest port: rank 0 is the side that listens
      if (!meeting->publish({*address, {}}).ok()) return void(wrong = "cannot publish");
      while (std::filesystem::exists(dir.path() / "1.rank 0")) std::this_thread::yield();
    });
    GlooOptions o = options_of(dir, 2, 0);
    o.connect_timeout = 700ms;
    const auto groups = make_gloo_rank_groups(o);
    silent.join();
    FAIL_UNLESS(!groups.ok() && groups.error().code == Errc::kDeadlineExceeded);
    FAIL_UNLESS(groups.error().message == "rank 1 did not connect in time", groups.error().message);
    return wrong;
  });
  EXPECT_EQ(ranks.report(0), "");
}

TEST(GlooForming, LayoutsThatDifferAreRefused) {
  const TempDir dir;
  Processes ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.start([&, r]() -> std::string {
      GlooOptions o = options_of(dir, 2, r);
      if (r == 1) o.layout = {2, 1};
      const auto groups = make_gloo_rank_groups(o);
      FAIL_UNLESS(!groups.ok() && groups.error().code == Errc::kInternal);
      FAIL_UNLESS(groups.error().message.find("tp=2,cp=1") != std::string::npos, groups.error().message);
      return "";
    });
  }
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(ranks.report(r), "");
}

TEST(GlooForming, OptionsAreChecked) {
  const TempDir dir;
  GlooOptions o = options_of(dir, 2, 0);
  o.prefix = "../elsewhere";
  EXPECT_EQ(make_gloo_rank_groups(o).error().code, Errc::kInvalidArgument);
  o = options_of(dir, 2, 0);
  o.store_dir = dir.path() / "none";
  EXPECT_EQ(make_gloo_rank_groups(o).error().code, Errc::kInvalidArgument);
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  EXPECT_EQ(make_gloo_rank_groups(options_of(dir, 2, 0)).error().code, Errc::kInvalidArgument);
  ASSERT_EQ(chmod(dir.path().c_str(), 0700), 0);
  std::ofstream(dir.path() / "1.rank 0") << "left by an older attempt";
  Processes ranks;
  ranks.start([&]() -> std::string {
    const auto groups = make_gloo_rank_groups(options_of(dir, 2, 0));
    return groups.ok() ? "formed" : groups.error().message;
  });
  EXPECT_NE(ranks.report(0).find("the prefix is in use"), std::string::npos);
}

}  // namespace
}  // namespace lariat
