// Attention over several ranks against the oracle over the whole sequence, in every layout, strategy and
// chunking.
#include <gtest/gtest.h>

#include "attention/distributed_test_world.h"

namespace lariat::disttest {
namespace {

constexpr float kTolerance = 1e-5f;

void check_alone(const WorldShape& shape, int32_t length, int32_t chunk, int32_t decode, RowStrategy strategy,
                 uint32_t seed) {
  SCOPED_TRACE(fmt::format("{}, length {}, chunk {}, decode {}, strategy {}, seed {}", shape.str(), length,
                           chunk, decode, static_cast<int>(strategy), seed));
  const std::vector<TestSequence> sequences{make_sequence(shape, length, seed)};
  const WorldRun run = run_local(shape, sequences, alone(shape, length, chunk, decode, strategy));
  check_answers(shape, sequences, run, shape.dtype == DType::kF32 ? kTolerance : 2e-5f);
}

std::vector<WorldShape> shapes() {
  std::vector<WorldShape> all;
  for (const int32_t interleave : {1, 16, 64})
    for (const int32_t members : {2, 3, 5})
      all.push_back({.members = members, .shares = {}, .interleave = interleave});
  all.push_back({.members = 4, .shares = {}, .interleave = 1, .ring_block = 16});
  all.push_back({.members = 2, .shares = {3, 1}, .interleave = 1});
  all.push_back({.members = 3, .shares = {1, 2, 4}, .interleave = 16});
  return all;
}

std::vector<WorldShape> shapes_with_duplicates() {
  std::vector<WorldShape> all;
  for (const int32_t members : {1, 2, 3})
    for (const int32_t interleave : {1, 16})
      all.push_back({.members = members,
                     .duplicates = 2,
                     .shares = {},
                     .interleave = interleave,
                     .heads = 2,
                     .kv_heads = 1});
  all.push_back({.members = 1, .duplicates = 4, .shares = {}, .interleave = 1, .heads = 1, .kv_heads = 1});
  all.push_back(
      {.members = 2, .duplicates = 3, .shares = {2, 1}, .interleave = 4, .heads = 2, .kv_heads = 1});
  return all;
}

TEST(Distributed, PassKv) {
  uint32_t seed = 1;
  for (const WorldShape& shape : shapes())
    for (const int32_t chunk : {0, 16, 7}) {
      check_alone(shape, 157, chunk, 5, RowStrategy::kPassKv, seed++);
      if (HasFatalFailure()) return;
    }
}

TEST(Distributed, PassQ) {
  uint32_t seed = 100;
  for (const WorldShape& shape : shapes())
    for (const int32_t chunk : {0, 16, 7}) {
      check_alone(shape, 157, chunk, 5, RowStrategy::kPassQ, seed++);
      if (HasFatalFailure()) return;
    }
}

TEST(Distributed, DuplicatesOfKvHeads) {
  uint32_t seed = 200;
  for (const WorldShape& shape : shapes_with_duplicates())
    for (const RowStrategy strategy : {RowStrategy::kPassKv, RowStrategy::kPassQ})
      for (const int32_t chunk : {0, 7}) {
        check_alone(shape, 83, chunk, 4, strategy, seed++);
        if (HasFatalFailure()) return;
      }
}

TEST(Distributed, Replicated) {
  uint32_t seed = 300;
  for (const std::vector<WorldShape>& list : {shapes(), shapes_with_duplicates()})
    for (WorldShape shape : list) {
      shape.replicated = true;
      for (const int32_t chunk : {0, 16}) {
        const std::vector<TestSequence> sequences{make_sequence(shape, 90, seed)};
        SCOPED_TRACE(fmt::format("{}, chunk {}, seed {}", shape.str(), chunk, seed++));
        // The last tokens are decoded on one member, another in each case.
        Steps steps = alone(shape, 90, chunk, 4, RowStrategy::kPassKv);
        for (auto& step : steps)
          if (step[0].strategy == RowStrategy::kLocal)
            step[0].home = static_cast<int32_t>(seed) % shape.members;
        check_answers(shape, sequences, run_local(shape, sequences, steps), kTolerance);
        if (HasFatalFailure()) return;
      }
    }
}

// C21: lengths that divide by nothing, and shorter than the ranks are many.
TEST(Distributed, LengthsThatDoNotDivide) {
  uint32_t seed = 400;
  for (const int32_t length : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127}) {
    for (int32_t members = 1; members <= 5; ++members) {
      const WorldShape shape{.members = members, .shares = {}, .interleave = length % 2 == 0 ? 1 : 16};
      if (members == 1) continue;
      for (const RowStrategy strategy : {RowStrategy::kPassKv, RowStrategy::kPassQ}) {
        check_alone(shape, length, 0, 0, strategy, seed++);
        check_alone(shape, length, 7, length / 2, strategy, seed++);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Distributed, NarrowKvTypes) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    WorldShape shape{.members = 3, .shares = {}, .dtype = dtype};
    check_alone(shape, 100, 33, 3, RowStrategy::kPassKv, 500);
    check_alone(shape, 100, 33, 3, RowStrategy::kPassQ, 501);
    shape = {.members = 2, .duplicates = 2, .shares = {}, .dtype = dtype, .heads = 2, .kv_heads = 1};
    check_alone(shape, 100, 33, 3, RowStrategy::kPassKv, 502);
    shape.replicated = true;
    check_alone(shape, 100, 33, 3, RowStrategy::kPassKv, 503);
    if (HasFatalFailure()) return;
  }
}

// Sub-blocks longer than a key split, and rounds of several.
TEST(Distributed, LongerThanAKeySplit) {
  for (const RowStrategy strategy : {RowStrategy::kPassKv, RowStrategy::kPassQ}) {
    check_alone({.members = 2, .shares = {}, .ring_block = 1200, .heads = 1, .kv_heads = 1}, 2401, 0, 1,
                strategy, 600);
    if (HasFatalFailure()) return;
  }
}

// A batch of rows of all strategies: right, and each row to the bit what it is alone.
void check_batch(const WorldShape& shape, uint32_t seed) {
  SCOPED_TRACE(fmt::format("{}, seed {}", shape.str(), seed));
  const std::vector<int32_t> lengths{40, 23, 31, 9, 17};
  std::vector<TestSequence> sequences;
  for (size_t i = 0; i < lengths.size(); ++i)
    sequences.push_back(make_sequence(shape, lengths[i], seed + static_cast<uint32_t>(i)));
  const RowStrategy other = shape.replicated ? RowStrategy::kPassKv : RowStrategy::kPassQ;
  const RowStrategy decode = shape.replicated ? RowStrategy::kLocal : RowStrategy::kGather;
  const Steps steps{
      {{0, 0, 20, RowStrategy::kPassKv, 0}, {3, 0, 8, other, 0}, {4, 0, 15, RowStrategy::kPassKv, 0}},
      {{3, 8, 1, decode, 0},
       {0, 20, 20, other, 0},
       {4, 15, 1, decode, 0},
       {1, 0, 23, RowStrategy::kPassKv, 0}},
      {{2, 0, 31, other, 0}, {4, 16, 1, decode, 0}}};
  const WorldRun together = run_local(shape, sequences, steps);
  check_answers(shape, sequences, together, kTolerance);
  if (::testing::Test::HasFatalFailure()) return;
  for (size_t s = 0; s < sequences.size(); ++s) {
    Steps mine;
    for (const auto& step : steps)
      for (const StepPart& part : step)
        if (part.sequence == s) mine.push_back({part});
    const WorldRun apart = run_local(shape, sequences, mine);
    for (size_t r = 0; r < apart.answers.size(); ++r)
      for (size_t layer = 0; layer < layer_masks().size(); ++layer)
        ASSERT_EQ(std::memcmp(apart.answers[r][s][layer].data(), together.answers[r][s][layer].data(),
                              apart.answers[r][s][layer].size() * sizeof(float)),
                  0)
            << "sequence " << s << " on rank " << r;
  }
}

TEST(Distributed, RowsDoNotFeelTheirBatch) {
  check_batch({.members = 3, .shares = {}, .interleave = 4}, 700);
  check_batch({.members = 2, .duplicates = 2, .shares = {}, .heads = 2, .kv_heads = 1}, 710);
  check_batch({.members = 1, .duplicates = 3, .shares = {}, .heads = 2, .kv_heads = 1}, 720);
  check_batch({.members = 3, .shares = {}, .replicated = true}, 730);
}

// Several tokens of a row may be decoded at once, whoever owns them.
TEST(Distributed, GatherOfSeveralTokens) {
  for (const WorldShape& shape :
       {WorldShape{.members = 3, .shares = {}},
        WorldShape{.members = 2, .duplicates = 2, .shares = {}, .heads = 2, .kv_heads = 1}}) {
    const std::vector<TestSequence> sequences{make_sequence(shape, 30, 800)};
    const Steps steps{{{0, 0, 21, RowStrategy::kPassKv, 0}},
                      {{0, 21, 3, RowStrategy::kGather, 0}},
                      {{0, 24, 6, RowStrategy::kGather, 0}}};
    check_answers(shape, sequences, run_local(shape, sequences, steps), kTolerance);
  }
}

// What one rank decoded alone, another goes on with.
TEST(Distributed, ReplicatedRowsMoveOnceShared) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const WorldShape shape{.members = 3, .shares = {}, .replicated = true, .ring_block = 16, .dtype = dtype};
    const std::vector<TestSequence> sequences{make_sequence(shape, 70, 850)};
    auto groups = make_local_rank_groups({1, 3}, 1);
    WorldRun run;
    run.status.assign(3, Ok{});
    run.answers.assign(
        3, {Answer(layer_masks().size(), std::vector<float>(sequences[0].q.size(), std::nanf("")))});
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        const auto at = static_cast<size_t>(r);
        TestRank rank(shape, groups[at], sequences);
        const auto go = [&]() -> Status {
          Steps decode;
          for (int32_t pos = 20; pos < 55; ++pos) decode.push_back({{0, pos, 1, RowStrategy::kLocal, 1}});
          LARIAT_RETURN_IF_ERROR(rank.run({{{0, 0, 20, RowStrategy::kPassKv, 0}}}, run.answers[at]));
          LARIAT_RETURN_IF_ERROR(rank.run(decode, run.answers[at]));
          LARIAT_RETURN_IF_ERROR(rank.share(0, 20, 55, 1));
          return rank.run({{{0, 55, 1, RowStrategy::kLocal, 2}}}, run.answers[at]);
        };
        run.status[at] = go();
        if (!run.status[at].ok()) return;
        run.status[at] = rank.share(0, 55, 56, 2);
        if (run.status[at].ok())
          run.status[at] = rank.run({{{0, 56, 14, RowStrategy::kPassKv, 0}}}, run.answers[at]);
      });
    for (std::thread& t : threads) t.join();
    check_answers(shape, sequences, run, 2e-5f);
    if (HasFatalFailure()) return;
  }
}

TEST(Distributed, RowsThatCannotBeAreRefusedBeforeAnythingMoves) {
  const WorldShape shape{.members = 2, .shares = {}};
  const std::vector<TestSequence> sequences{make_sequence(shape, 20, 1)};
  auto groups = make_local_rank_groups({1, 2}, 1);
  TestRank rank(shape, groups[0], sequences);
  const auto attempt = [&](std::vector<int32_t> positions, int64_t resident, int64_t length,
                           RowStrategy strategy) {
    const std::vector<std::vector<PageId>> pages{{PageId(0), PageId(1)}};
    const StepRow row{.first = 0,
                      .n = static_cast<int64_t>(positions.size()),
                      .positions = positions.data(),
                      .length = length,
                      .pages = pages,
                      .strategy = strategy,
                      .resident = resident};
    const Status status = rank.backend().begin_step(std::span(&row, 1));
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(attempt({0, 2, 4}, 0, 5, RowStrategy::kPassKv), "");
  EXPECT_EQ(attempt({0, 1, 2, 3, 4}, 0, 5, RowStrategy::kGather), "");
  EXPECT_NE(attempt({0, 1, 2}, 0, 5, RowStrategy::kPassKv), "");
  EXPECT_NE(attempt({0, 2}, 0, 5, RowStrategy::kPassQ), "");
  EXPECT_NE(attempt({0, 2, 4}, 0, 5, RowStrategy::kGather), "");
  EXPECT_NE(attempt({0}, 0, 1, RowStrategy::kLocal), "");
  EXPECT_NE(attempt({}, 3, 2, RowStrategy::kPassKv), "");
  std::vector<int32_t> many;
  for (int32_t pos = 0; pos < 200; pos += 2) many.push_back(pos);
  EXPECT_NE(attempt(many, 0, 200, RowStrategy::kPassKv), "");  // two pages do not hold it
}

}  // namespace
}  // namespace lariat::disttest
