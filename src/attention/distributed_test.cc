// Attention over several ranks against the oracle over the whole sequence, in every layout, strategy and
// chunking; under a simulated network; with a rank that dies.
#include <gtest/gtest.h>

#include "attention/distributed_test_world.h"
#include "comm/sim/sim_exchange.h"
#include "plan/schedule_hash.h"

namespace lariat {
namespace {

using namespace disttest;

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

TEST(Distributed, SimulatedNetworkNeverChangesABit) {
  const WorldShape shape{.members = 3, .shares = {}, .ring_block = 16, .timeout = std::chrono::seconds(10)};
  const std::vector<TestSequence> sequences{make_sequence(shape, 50, 900), make_sequence(shape, 21, 901)};
  const Steps steps{{{0, 0, 40, RowStrategy::kPassKv, 0}, {1, 0, 20, RowStrategy::kPassQ, 0}},
                    {{0, 40, 9, RowStrategy::kPassQ, 0}, {1, 20, 1, RowStrategy::kGather, 0}},
                    {{0, 49, 1, RowStrategy::kGather, 0}}};
  const WorldRun want = run_local(shape, sequences, steps);
  check_answers(shape, sequences, want, kTolerance);
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const auto exchange = make_sim_exchange(shape.ranks(), {.seed = seed, .faults = {}});
    const WorldRun run =
        run_world(shape, make_rank_groups(exchange, {1, shape.members}, 1), sequences, steps,
                  [&](const std::function<void(int32_t)>& body) { run_sim_ranks(*exchange, body); });
    for (size_t r = 0; r < run.status.size(); ++r) {
      ASSERT_TRUE(run.status[r].ok()) << "seed " << seed << ": " << run.status[r].error().message;
      for (size_t s = 0; s < sequences.size(); ++s)
        for (size_t l = 0; l < layer_masks().size(); ++l)
          ASSERT_EQ(std::memcmp(run.answers[r][s][l].data(), want.answers[r][s][l].data(),
                                want.answers[r][s][l].size() * sizeof(float)),
                    0)
              << "seed " << seed;
    }
  }
}

TEST(Distributed, FaultsEndEveryRankWithAName) {
  const WorldShape shape{.members = 2,
                         .duplicates = 2,
                         .shares = {},
                         .ring_block = 16,
                         .heads = 2,
                         .kv_heads = 1,
                         .timeout = std::chrono::seconds(10)};
  const std::vector<TestSequence> sequences{make_sequence(shape, 40, 950)};
  const Steps steps = alone(shape, 40, 13, 3, RowStrategy::kPassKv);
  int failed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const SimFault fault = random_fault(seed, shape.ranks(), 30, 30'000);
    const auto exchange = make_sim_exchange(shape.ranks(), {.seed = seed, .faults = {fault}});
    const WorldRun run = run_world(
        shape, make_rank_groups(exchange, {shape.duplicates, shape.members}, shape.duplicates), sequences,
        steps, [&](const std::function<void(int32_t)>& body) { run_sim_ranks(*exchange, body); });
    const bool all_ok =
        std::all_of(run.status.begin(), run.status.end(), [](const Status& s) { return s.ok(); });
    if (all_ok) continue;
    ++failed;
    for (const Status& status : run.status) {
      // Only a rank that had finished may not have noticed; with a killed rank that is nobody.
      if (status.ok()) {
        EXPECT_NE(fault.kind, SimFault::Kind::kKill) << "seed " << seed;
        continue;
      }
      EXPECT_TRUE(status.error().code == Errc::kDeadlineExceeded || status.error().code == Errc::kUnavailable)
          << "seed " << seed << ": " << status.error().message;
      EXPECT_EQ(status.error().param.substr(0, 5), "rank ") << "seed " << seed;
    }
  }
  EXPECT_GT(failed, 10);
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

// What plan/ derives for the hash is what the ranks send, byte for byte, over both layers (of two windows).
void check_against_plan(const WorldShape& shape, const Steps& steps) {
  SCOPED_TRACE(shape.str());
  const int32_t tp = shape.duplicates;  // one KV head in all if it has duplicates
  const ScheduleConstants constants{.layout = {tp, shape.members},
                                    .placement = shape.placement(),
                                    .heads = shape.heads * tp,
                                    .kv_heads = shape.kv_heads,
                                    .k_dim = kDim,
                                    .v_dim = kDim,
                                    .hidden = 0,
                                    .kv_element_bytes = 4,
                                    .windows = {0, layer_masks()[1].window},
                                    .replicated = shape.replicated,
                                    .ring_block = shape.ring_block};
  std::vector<int64_t> want(static_cast<size_t>(shape.ranks()), 0);
  for (const auto& step : steps) {
    StepPlan plan;
    for (const StepPart& part : step) {
      PlanRow& row = plan.rows.emplace_back();
      row.id = RowId(static_cast<uint64_t>(part.home));
      row.pos0 = part.resident;
      row.n = part.n;
      row.use_prev = part.strategy == RowStrategy::kLocal;
      row.strategy = part.strategy == RowStrategy::kPassQ ? Strategy::kPassQ : Strategy::kPassKv;
    }
    for (const Collective& c : derive_schedule(plan, constants))
      for (int32_t r = 0; r < shape.ranks(); ++r) {
        const bool stripes = c.group == CollectiveGroup::kStripes;
        const int64_t sent = c.bytes[static_cast<size_t>(stripes ? r : r / tp)];
        const int32_t size = c.group == CollectiveGroup::kDuplicates ? tp : shape.members;
        if (c.kind == CollectiveKind::kRingExchange) want[static_cast<size_t>(r)] += sent;
        if (c.kind == CollectiveKind::kAllGather) want[static_cast<size_t>(r)] += sent * (size - 1);
        if (c.kind == CollectiveKind::kAllToAll) want[static_cast<size_t>(r)] += sent / size * (size - 1);
      }
  }
  const std::vector<TestSequence> sequences{make_sequence(shape, 60, 1), make_sequence(shape, 25, 2)};
  auto groups = make_local_rank_groups({tp, shape.members}, tp);
  std::vector<std::thread> threads;
  std::vector<int64_t> sent(want.size());
  for (int32_t r = 0; r < shape.ranks(); ++r)
    threads.emplace_back([&, r] {
      TestRank rank(shape, groups[static_cast<size_t>(r)], sequences);
      std::vector<Answer> answers;
      for (const TestSequence& s : sequences)
        answers.push_back(Answer(layer_masks().size(), std::vector<float>(s.q.size())));
      EXPECT_TRUE(rank.run(steps, answers).ok());
      sent[static_cast<size_t>(r)] = rank.backend().comm().bytes_sent;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sent, want);
}

TEST(Distributed, MovesWhatThePlanDerives) {
  const Steps steps{{{0, 0, 37, RowStrategy::kPassKv, 0}, {1, 0, 9, RowStrategy::kPassQ, 0}},
                    {{0, 37, 20, RowStrategy::kPassQ, 0}, {1, 9, 15, RowStrategy::kPassKv, 0}},
                    {{0, 57, 1, RowStrategy::kGather, 0}, {1, 24, 1, RowStrategy::kGather, 0}}};
  check_against_plan({.members = 3, .shares = {}, .interleave = 4}, steps);
  check_against_plan({.members = 2, .shares = {3, 1}, .ring_block = 16}, steps);
  check_against_plan({.members = 1, .duplicates = 2, .shares = {}, .heads = 2, .kv_heads = 1}, steps);
  check_against_plan({.members = 3, .duplicates = 2, .shares = {}, .heads = 2, .kv_heads = 1}, steps);
  const Steps copies{{{0, 0, 37, RowStrategy::kPassKv, 0}, {1, 0, 9, RowStrategy::kPassKv, 1}},
                     {{0, 37, 20, RowStrategy::kPassKv, 0}, {1, 9, 1, RowStrategy::kLocal, 1}}};
  check_against_plan({.members = 3, .shares = {}, .replicated = true}, copies);
}

TEST(Distributed, WaitsAreMeasured) {
  const WorldShape shape{.members = 2, .shares = {}};
  const std::vector<TestSequence> sequences{make_sequence(shape, 64, 1)};
  auto groups = make_local_rank_groups({1, 2}, 1);
  std::vector<CommCounters> counted(2);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      TestRank rank(shape, groups[static_cast<size_t>(r)], sequences);
      std::vector<Answer> answers{Answer(layer_masks().size(), std::vector<float>(sequences[0].q.size()))};
      EXPECT_TRUE(rank.run(alone(shape, 64, 0, 0, RowStrategy::kPassKv), answers).ok());
      counted[static_cast<size_t>(r)] = rank.backend().comm();
    });
  for (std::thread& t : threads) t.join();
  // One block of 32 slots each way, of K and V of 2 heads, in the layer that sees all; the other layer, with
  // a window, sends the same in its first chunk.
  for (const CommCounters& c : counted) {
    EXPECT_EQ(c.bytes_sent, 2 * 32 * 2 * 2 * kDim * 4);
    EXPECT_EQ(c.calls, 2);
  }
}

}  // namespace
}  // namespace lariat
