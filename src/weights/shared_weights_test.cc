// Ranks as processes that share packed weights: one copy of the pages, whoever comes when and whoever dies.
#include "weights/shared_weights.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>

#include "base/test_processes.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;
using test::Processes;
using test::TempDir;

constexpr size_t kBytes = size_t{8} << 20;

// What the processes of a test see in common.
struct Board {
  std::atomic<int> builds, holders, done;
  std::atomic<uint64_t> inodes[4];
  std::atomic<int64_t> pss_kb;
};
struct SharedBoard {
  SharedBoard() {
    void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    board = new (p) Board{};
  }
  ~SharedBoard() { munmap(board, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* operator->() const { return board; }
  Board* board;
};

bool reaches(const std::atomic<int>& counter, int value) {
  const auto until = std::chrono::steady_clock::now() + 50s;
  while (counter.load() < value) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

SharedWeightsOptions options_of(const TempDir& dir, const std::string& key = "model a, bf16, tp 0 of 1") {
  return {.dir = dir.path(), .key = key, .capacity_hint = kBytes + 4096, .timeout = 50s};
}

Status fill(PackedStore& store) {
  LARIAT_ASSIGN(std::byte * data, store.reserve("w", kBytes));
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(i % 251);
  return Ok{};
}

SharedWeights::Build counted(Board* board) {
  return [board](PackedStore& store) {
    ++board->builds;
    return fill(store);
  };
}

bool intact(const PackedStore& store) {
  const auto w = store.find("w");
  for (size_t i = 0; i < w.size(); ++i)
    if (w[i] != static_cast<std::byte>(i % 251)) return false;
  return w.size() == kBytes;
}

uint64_t inode(const PackedStore& store) {
  struct stat st{};
  return fstat(store.fds()[0], &st) == 0 ? st.st_ino : 0;
}

// This process's proportional share of the weights' pages: a page that three map counts as a third.
int64_t weights_pss_kb() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  int64_t sum = 0;
  while (std::getline(smaps, line)) {
    if (line.find("memfd:lariat-weights") != std::string::npos) inside = true;
    if (inside && line.starts_with("Pss:")) sum += std::stoll(line.substr(4));
    if (line.starts_with("VmFlags:")) inside = false;
  }
  return sum;
}

TEST(SharedWeights, FourAtOnceHoldOneCopy) {
  const TempDir dir;
  const SharedBoard board;
  Processes ranks;
  for (auto& seen : board->inodes) {
    ranks.start([&]() -> std::string {
      ++board->holders;
      if (!reaches(board->holders, 4)) return "the others are late";
      auto weights = SharedWeights::obtain(options_of(dir), counted(board.board));
      if (!weights.ok()) return weights.error().message;
      if (!weights->offer) return "does not offer";
      if (!intact(weights->store)) return "wrong bytes";
      seen = inode(weights->store);
      ++board->done;
      if (!reaches(board->done, 4)) return "the others are late";
      board->pss_kb += weights_pss_kb();
      ++board->done;
      return reaches(board->done, 8) ? "" : "the others are late";
    });
  }
  for (size_t r = 0; r < 4; ++r) EXPECT_EQ(ranks.report(r), "");
  EXPECT_EQ(board->builds, 1);
  EXPECT_NE(board->inodes[0], 0u);
  for (size_t r = 1; r < 4; ++r) EXPECT_EQ(board->inodes[r], board->inodes[0]);
  EXPECT_GE(board->pss_kb, static_cast<int64_t>(kBytes >> 10));
  EXPECT_LE(board->pss_kb, static_cast<int64_t>(kBytes >> 10) * 11 / 10);
}

TEST(SharedWeights, OutliveTheRankThatPacked) {
  const TempDir dir;
  const SharedBoard board;
  Processes ranks;
  // Each rank comes when the one before it holds the weights; the first is killed before the third comes.
  const auto rank = [&](int place, bool stays) {
    return [&, place, stays]() -> std::string {
      if (!reaches(board->holders, place)) return "the one before is late";
      auto weights = SharedWeights::obtain(options_of(dir), counted(board.board));
      if (!weights.ok()) return weights.error().message;
      if (weights->built != (place == 0)) return "packed by the wrong rank";
      board->inodes[place] = inode(weights->store);
      ++board->holders;
      if (!stays) return reaches(board->done, 99) ? "" : "was not killed";
      if (!reaches(board->done, 1)) return "the last is late";
      return intact(weights->store) ? "" : "wrong bytes";
    };
  };
  const size_t first = ranks.start(rank(0, false));
  const size_t second = ranks.start(rank(1, true));
  ASSERT_TRUE(reaches(board->holders, 2));
  kill(ranks.pid(first), SIGKILL);
  EXPECT_EQ(ranks.report(first), " (signal 9)");
  const size_t third = ranks.start(rank(2, true));
  ASSERT_TRUE(reaches(board->holders, 3));
  board->done = 1;
  EXPECT_EQ(ranks.report(second), "");
  EXPECT_EQ(ranks.report(third), "");
  EXPECT_EQ(board->builds, 1);
  EXPECT_EQ(board->inodes[2], board->inodes[0]);
}

TEST(SharedWeights, OtherWeightsAreNotShared) {
  const TempDir dir;
  const SharedBoard board;
  auto a = SharedWeights::obtain(options_of(dir), counted(board.board));
  auto b = SharedWeights::obtain(options_of(dir, "model b, bf16, tp 0 of 1"), counted(board.board));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->built && b->built);
  EXPECT_NE(inode(a->store), inode(b->store));
  // Even if the names of their files were the same.
  const std::string key = "model c";
  for (const auto& file : std::filesystem::directory_iterator(dir.path())) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(".sock"))
      std::filesystem::rename(file.path(), dir.path() / (WeightsOffer::stem(key) + "-" + name.substr(8)));
  }
  EXPECT_EQ(take_offered_weights(dir.path(), key, std::chrono::steady_clock::now() + 5s).error().code,
            Errc::kNotFound);
}

TEST(SharedWeights, RankThatDiesPackingIsReplaced) {
  const TempDir dir;
  const SharedBoard board;
  Processes ranks;
  ranks.start([&]() -> std::string {
    (void)SharedWeights::obtain(options_of(dir), [&](PackedStore&) -> Status {
      ++board->holders;
      reaches(board->done, 1);
      raise(SIGKILL);
      return Ok{};
    });
    return "lives";
  });
  ranks.start([&]() -> std::string {
    if (!reaches(board->holders, 1)) return "the first is late";
    board->done = 1;
    auto weights = SharedWeights::obtain(options_of(dir), counted(board.board));
    return weights.ok() && weights->built && intact(weights->store) ? "" : "no weights";
  });
  EXPECT_EQ(ranks.report(0), " (signal 9)");
  EXPECT_EQ(ranks.report(1), "");
}

TEST(SharedWeights, WaitsNoLongerThanToldForARankThatIsStopped) {
  const TempDir dir;
  const SharedBoard board;
  Processes ranks;
  ranks.start([&]() -> std::string {
    (void)SharedWeights::obtain(options_of(dir), [&](PackedStore&) -> Status {
      ++board->holders;
      raise(SIGSTOP);
      return Ok{};
    });
    return "";
  });
  ASSERT_TRUE(reaches(board->holders, 1));
  SharedWeightsOptions options = options_of(dir);
  options.timeout = 200ms;
  const auto since = std::chrono::steady_clock::now();
  const auto weights = SharedWeights::obtain(options, counted(board.board));
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE(weights->built && intact(weights->store));
  EXPECT_GE(std::chrono::steady_clock::now() - since, 200ms);
}

// A stopped owner does not answer, and another listener talks nonsense: both are passed over.
TEST(SharedWeights, OffersThatFailArePassedOver) {
  const TempDir dir;
  const SharedBoard board;
  Processes ranks;
  ranks.start([&]() -> std::string {
    auto weights = SharedWeights::obtain(options_of(dir), fill);
    if (!weights.ok()) return weights.error().message;
    ++board->holders;
    raise(SIGSTOP);
    return "";
  });
  ranks.start([&]() -> std::string {
    auto talker = listen_at(dir.path(), WeightsOffer::stem(options_of(dir).key) + "-1.sock");
    if (!talker.ok()) return talker.error().message;
    ++board->holders;
    const std::vector<std::byte> nonsense(4096, std::byte{0x5a});
    while (board->done == 0) {
      if (auto caller = accept_from(talker->get()); caller.ok())
        (void)send_bytes(caller->get(), nonsense, std::chrono::steady_clock::now() + 1s);
      std::this_thread::yield();
    }
    return "";
  });
  ASSERT_TRUE(reaches(board->holders, 2));
  const auto weights = SharedWeights::obtain(options_of(dir), counted(board.board));
  board->done = 1;
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE(weights->built);
  EXPECT_EQ(ranks.report(1), "");
}

TEST(SharedWeights, WithoutAFolderOrWithABadOneEveryRankPacks) {
  const TempDir dir;
  const SharedBoard board;
  SharedWeightsOptions options = options_of(dir);
  options.dir.clear();
  auto weights = SharedWeights::obtain(options, counted(board.board));
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE(weights->built && !weights->offer);
  options.dir = dir.path() / "none";
  weights = SharedWeights::obtain(options, counted(board.board));
  ASSERT_TRUE(weights.ok());
  EXPECT_TRUE(weights->built && !weights->offer);
  const auto failed = SharedWeights::obtain(
      options_of(dir), [](PackedStore&) -> Status { return make_error(Errc::kCorruptData, "no such file"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no such file");
}

TEST(SharedWeights, LongPathsAndGoneProcessesAreNoTrouble) {
  const TempDir dir;
  const SharedBoard board;
  SharedWeightsOptions options = options_of(dir);
  options.dir = dir.path() / std::string(200, 'd');
  std::filesystem::create_directory(options.dir);
  std::filesystem::permissions(options.dir, std::filesystem::perms::owner_all);
  Processes ranks;
  ranks.start([&]() -> std::string {
    auto weights = SharedWeights::obtain(options, fill);
    raise(SIGKILL);  // leaves its socket's name behind
    return "";
  });
  EXPECT_EQ(ranks.report(0), " (signal 9)");
  const auto first = SharedWeights::obtain(options, counted(board.board));
  ASSERT_TRUE(first.ok() && first->offer);
  const auto second = take_offered_weights(options.dir, options.key, std::chrono::steady_clock::now() + 5s);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(inode(*second), inode(first->store));
  size_t sockets = 0;
  for (const auto& file : std::filesystem::directory_iterator(options.dir))
    sockets += file.path().extension() == ".sock";
  EXPECT_EQ(sockets, 1u);
}

}  // namespace
}  // namespace lariat
