// Whose fault it is when ranks that wait for each other reach their deadline.
#include "comm/gloo/wait_board.h"

#include <gtest/gtest.h>

#include "base/test_processes.h"

namespace lariat {
namespace {

using namespace std::chrono_literals;

class WaitBoardTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int32_t r = 0; r < kWorld; ++r) {
      auto board = WaitBoard::open(dir_.path() / "board", kWorld, r);
      ASSERT_TRUE(board.ok()) << board.error().message;
      boards_[r] = std::move(board).value();
    }
  }
  static constexpr int32_t kWorld = 4;
  const test::TempDir dir_;
  WaitBoard boards_[kWorld];
  const Deadline now_ = CommClock::now(), soon_ = now_ + 1s, past_ = now_ - 1s;
};

TEST_F(WaitBoardTest, TheEndOfTheChainIsBlamed) {
  EXPECT_EQ(boards_[0].culprit(1, now_), 1) << "it waits for none";
  boards_[1].waits_for(2, soon_);
  boards_[2].waits_for(3, soon_);
  EXPECT_EQ(boards_[0].culprit(1, now_), 3);
  boards_[2].waits_no_more();
  EXPECT_EQ(boards_[0].culprit(1, now_), 2);
}

TEST_F(WaitBoardTest, AChainThatComesBackBlamesTheNeighbour) {
  boards_[1].waits_for(2, soon_);
  boards_[2].waits_for(0, soon_);
  EXPECT_EQ(boards_[0].culprit(1, now_), 1);
}

TEST_F(WaitBoardTest, WhoSleepsThroughItsDeadlineIsBlamedThoughItWaits) {
  boards_[1].waits_for(2, past_);
  boards_[1].knows_its_deadline();
  boards_[2].waits_for(3, past_);  // stuck: what it waits for has come
  EXPECT_EQ(boards_[0].culprit(1, now_), 2);
  boards_[2].knows_its_deadline();
  EXPECT_EQ(boards_[0].culprit(1, now_), 3);
  // The stuck one waits, as it seems, for the very rank that asks.
  boards_[3].waits_for(0, past_);
  EXPECT_EQ(boards_[0].culprit(1, now_), 3);
}

}  // namespace
}  // namespace lariat
