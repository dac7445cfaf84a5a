// What a step holds: pages and who gives them up, chunks, fairness.
#include <gtest/gtest.h>

#include "sched/test_bench.h"

namespace lariat::sched_test {
namespace {

TEST(Batch, RowThatFillsThePoolEndsWithLength) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(250, 100)).ok());
  b.run();
  EXPECT_EQ(b.tokens[1].size(), 7u) << "six stored, and one that need not be";
  EXPECT_EQ(b.finish[1], FinishReason::kLength);
  b.expect_alone(1);
}

TEST(Batch, TenRowsThatDoNotFitTogetherAllFinish) {
  Bench b(small());
  for (uint64_t id = 1; id <= 10; ++id) ASSERT_TRUE(b.add(id, request(100, 60), id).ok());
  b.run();
  for (uint64_t id = 1; id <= 10; ++id) {
    EXPECT_EQ(b.tokens[id].size(), 60u);
    b.expect_alone(id);
  }
}

TEST(Batch, TwoRowsThatEachNeedMoreThanHalfThePool) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(100, 90), 1).ok());
  ASSERT_TRUE(b.add(2, request(100, 90), 2).ok());
  while (!b.finish.contains(1)) {
    ASSERT_TRUE(b.step());
    ASSERT_NE(b.planned(1), nullptr) << "the older advances in every step";
    ASSERT_FALSE(b.finish.contains(2));
  }
  b.run(1000);
  b.expect_alone(1);
  b.expect_alone(2);
  EXPECT_EQ(b.tokens[1].size(), 90u);
  EXPECT_EQ(b.tokens[2].size(), 90u);
  EXPECT_EQ(b.sched().counts().preemptions_total, 1) << "the younger is put back once, not again and again";
}

TEST(Batch, NoRowEntersThatTheNextTokenWouldPutBack) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(7 * 16 - 4, 20), 1).ok());
  ASSERT_TRUE(b.step());
  // Nine pages are free and nine needed, but row 1 is about to want one.
  ASSERT_TRUE(b.add(2, request(9 * 16 - 1, 20), 2).ok());
  while (!b.finish.contains(1)) {
    ASSERT_TRUE(b.step());
    ASSERT_EQ(b.sched().progress(RowId(2))->state, RowState::kWaiting);
  }
  b.run();
  EXPECT_EQ(b.sched().counts().preemptions_total, 0);
}

TEST(Batch, NobodyPassesARowThatWasPutBack) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(100, 90), 1).ok());
  ASSERT_TRUE(b.add(2, request(100, 90), 2).ok());
  while (b.sched().counts().preemptions_total == 0) ASSERT_TRUE(b.step());
  ASSERT_EQ(b.sched().progress(RowId(2))->state, RowState::kWaiting);
  ASSERT_TRUE(b.add(3, request(4, 1), 3).ok());
  while (!b.finish.contains(3)) {
    ASSERT_TRUE(b.step());
    ASSERT_TRUE(b.sched().progress(RowId(3)) == std::nullopt ||
                b.sched().progress(RowId(2))->state != RowState::kWaiting ||
                b.sched().progress(RowId(3))->state == RowState::kWaiting);
  }
  EXPECT_TRUE(b.finish.contains(1)) << "row 2 fits only then, and row 3 came after it";
  b.run();
}

TEST(Batch, DecodingRowsAdvanceEveryStepBesideALongPrompt) {
  SchedConfig c = small();
  c.pages_total = 20000;
  c.context = 200000;
  c.chunk_tokens = 512;
  c.work = {.token = 10e6, .depth = 8192, .window = 0};
  Bench b(c);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(b.add(id, request(10, 200), id).ok());
  ASSERT_TRUE(b.step());
  ASSERT_TRUE(b.add(9, request(131072, 1)).ok());
  for (size_t step = 2; step <= 200; ++step) {
    ASSERT_TRUE(b.step());
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(b.tokens[id].size(), step);
    const PlanRow* chunk = b.planned(9);
    ASSERT_NE(chunk, nullptr);
    ASSERT_LE(chunk->n, 512);
    ASSERT_GE(chunk->n, 64);
    // Bounded: that of 512 tokens at depth 0, or of the floor.
    ASSERT_LE(c.work.of(chunk->pos0, chunk->n), std::max(c.work.of(0, 512), c.work.of(chunk->pos0, 64)));
  }
}

TEST(Batch, ShortPromptBehindALongOneStartsAtOnce) {
  SchedConfig c = small();
  c.pages_total = 20000;
  c.context = 200000;
  c.chunk_tokens = 512;
  Bench b(c);
  ASSERT_TRUE(b.add(1, request(131072, 1)).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(b.step());
  for (uint64_t id = 2; id <= 8; ++id) {
    ASSERT_TRUE(b.add(id, request(100, 2), id).ok());
    ASSERT_TRUE(b.step());
    EXPECT_NE(b.planned(id), nullptr) << "first chunk in the first step";
    EXPECT_EQ(b.tokens[id].size(), 1u);
    EXPECT_NE(b.planned(1), nullptr) << "the long prompt has what is left of the step";
  }
}

TEST(Batch, LongPromptAmongManyShortOnesIsNotStarved) {
  SchedConfig c = small();
  c.pages_total = 20000;
  c.context = 200000;
  c.chunk_tokens = 128;
  c.queue_max = 1000;
  Bench b(c);
  ASSERT_TRUE(b.add(1, request(10000, 1)).ok());
  uint64_t next_id = 2;
  int since = 0;
  while (!b.finish.contains(1)) {
    // Enough short prompts to fill every step by themselves.
    while (b.sched().counts().rows_waiting < 4) ASSERT_TRUE(b.add(next_id++, request(128, 1)).ok());
    ASSERT_TRUE(b.step());
    since = b.planned(1) ? 0 : since + 1;
    ASSERT_LE(since, static_cast<int>(Scheduler::kPatience) + c.max_batch);
    ASSERT_LT(next_id, 10000u);
  }
  EXPECT_GT(next_id, 100u);
}

TEST(Batch, AWaitingRowIsOvertakenOnlySoOften) {
  SchedConfig c = small();
  Bench b(c);
  ASSERT_TRUE(b.add(1, request(100, 300), 1).ok());
  ASSERT_TRUE(b.step());
  ASSERT_TRUE(b.add(2, request(200, 2), 2).ok());  // fits only when row 1 is gone
  uint64_t next_id = 3;
  int overtook = 0;
  while (!b.finish.contains(2)) {
    while (b.sched().counts().rows_waiting < 3) ASSERT_TRUE(b.add(next_id++, request(4, 1)).ok());
    ASSERT_TRUE(b.step());
    overtook = static_cast<int>(b.finish.size()) - static_cast<int>(b.finish.contains(1));
    ASSERT_LT(next_id, 5000u);
  }
  EXPECT_GE(overtook, Scheduler::kOvertakenMax);
  EXPECT_LE(overtook, Scheduler::kOvertakenMax + 8 + 3);
}

}  // namespace
}  // namespace lariat::sched_test
