// Small messages through shared memory: order, a full ring, sleep and wake, and what a peer must not write.
#include "comm/gloo/mailbox.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "base/test_processes.h"
#include "comm/group.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;

struct Pair {
  Pair() {
    for (int32_t r = 0; r < 2; ++r) {
      auto opened = Mailbox::open(dir.path() / "mail", 2, r);
      if (opened.ok()) box[r] = std::move(opened).value();
    }
  }
  test::TempDir dir;
  Mailbox box[2];
};

std::string text_of(size_t n, int salt) {
  std::string text(n, ' ');
  for (size_t i = 0; i < n; ++i)
    text[i] = static_cast<char>('a' + (i * 7 + static_cast<size_t>(salt) * 3) % 23);
  return text;
}

// What came, or nothing.
std::optional<std::string> take(Mailbox& box, int32_t peer, uint64_t slot, size_t bytes) {
  std::string text(bytes, '?');
  const Result<bool> taken = box.take(peer, slot, text.data(), bytes);
  EXPECT_TRUE(taken.ok()) << taken.error().message;
  return taken.ok() && *taken ? std::optional(text) : std::nullopt;
}

TEST(Mailbox, TakenInAnyOrderEachWay) {
  Pair p;
  EXPECT_EQ(take(p.box[1], 0, 1, 5), std::nullopt);
  ASSERT_TRUE(p.box[0].put(1, 1, "first", 5));
  ASSERT_TRUE(p.box[0].put(1, 2, "", 0));
  ASSERT_TRUE(p.box[0].put(1, 3, "third", 5));
  ASSERT_TRUE(p.box[1].put(0, 3, "other", 5));
  EXPECT_EQ(take(p.box[1], 0, 3, 5), "third");
  EXPECT_EQ(take(p.box[1], 0, 4, 5), std::nullopt);
  EXPECT_EQ(take(p.box[1], 0, 1, 5), "first");
  EXPECT_EQ(take(p.box[1], 0, 2, 0), "");
  EXPECT_EQ(take(p.box[1], 0, 2, 0), std::nullopt);
  EXPECT_EQ(take(p.box[0], 1, 3, 5), "other");
}

TEST(Mailbox, AFullRingSaysSoAndGoesOnWhenThereIsRoom) {
  Pair p;
  uint64_t put = 0;
  uint64_t taken = 0;
  // Sizes that divide nothing, many times round the ring.
  const auto size = [](uint64_t slot) {
    return static_cast<size_t>(slot * 977 % (Mailbox::kMessageMax + 1));
  };
  bool was_full = false;
  while (taken < 500) {
    const std::string text = text_of(size(put), static_cast<int>(put));
    if (put < 500 && p.box[0].put(1, put, text.data(), text.size())) {
      ++put;
      continue;
    }
    was_full = was_full || put < 500;
    const uint32_t heard = p.box[0].bell();
    ASSERT_EQ(take(p.box[1], 0, taken, size(taken)), text_of(size(taken), static_cast<int>(taken)));
    if (put < 500) {
      EXPECT_NE(p.box[0].bell(), heard) << "whoever waits for room must hear of it";
    }
    ++taken;
  }
  EXPECT_TRUE(was_full);
}

TEST(Mailbox, SleepEndsWithAMessageOrItsTime) {
  Pair p;
  const auto since = CommClock::now();
  p.box[1].listen(p.box[1].bell(), 20ms);
  EXPECT_GE(CommClock::now() - since, 20ms);
  EXPECT_LT(CommClock::now() - since, 10s);
  for (uint64_t slot = 0; slot < 200; ++slot) {
    std::thread sender([&] { EXPECT_TRUE(p.box[0].put(1, slot, "word", 4)); });
    const auto begin = CommClock::now();
    while (true) {
      const uint32_t heard = p.box[1].bell();
      if (take(p.box[1], 0, slot, 4)) break;
      p.box[1].listen(heard, 30s);
    }
    sender.join();
    ASSERT_LT(CommClock::now() - begin, 10s) << "a message was slept through";
  }
}

// A page that cannot be had when it is first touched would end the process.
TEST(Mailbox, NoRoomForItIsAnErrorAtOnce) {
  const test::TempDir dir;
  test::Processes ranks;
  ranks.start([&]() -> std::string {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return "no limit";
    const auto opened = Mailbox::open(dir.path() / "mail", 2, 0);
    if (opened.ok()) return "opened";
    return opened.error().code == Errc::kUnavailable ? "" : opened.error().message;
  });
  EXPECT_EQ(ranks.report(0), "");
}

TEST(Mailbox, WhatIsNoMessageIsAnErrorThatNamesThePeer) {
  Pair p;
  ASSERT_TRUE(p.box[0].put(1, 7, "word", 4));
  char out[8] = {};
  Result<bool> taken = p.box[1].take(0, 7, out, 8);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Errc::kCorruptData);
  EXPECT_EQ(taken.error().param, "rank 0");
  // A header that claims more than was written, 64 bytes before its message.
  const auto path = p.dir.path() / "mail";
  std::ifstream file(path, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(file), {});
  const size_t at = all.find("word");
  ASSERT_NE(at, std::string::npos);
  std::fstream damage(path, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(static_cast<std::streamoff>(at - 64));
  damage << std::string(16, static_cast<char>(0xA5)) << std::flush;
  taken = p.box[1].take(0, 8, out, 8);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, Errc::kCorruptData);
}

}  // namespace
}  // namespace lariat
