// What attention over several ranks sends: under a simulated network, with a rank that dies, and held to what
// the plan derives.
#include <gtest/gtest.h>

#include "attention/distributed_test_world.h"
#include "comm/sim/sim_exchange.h"
#include "plan/schedule_hash.h"

namespace lariat::disttest {
namespace {

constexpr float kTolerance = 1e-5f;

// LARIAT_SIM_SEED replays one seed, LARIAT_SIM_COUNT says how many there are.
std::vector<uint64_t> sim_seeds() {
  if (const char* one = std::getenv("LARIAT_SIM_SEED")) return {std::strtoull(one, nullptr, 10)};
  uint64_t count = 250;
  if (const char* n = std::getenv("LARIAT_SIM_COUNT")) count = std::strtoull(n, nullptr, 10);
  std::vector<uint64_t> seeds(count);
  std::iota(seeds.begin(), seeds.end(), 1);
  return seeds;
}

struct SimCase {
  WorldShape shape;
  std::vector<TestSequence> sequences;
  Steps steps;
  WorldRun want;
};

std::vector<SimCase> sim_cases() {
  const auto limit = std::chrono::seconds(10);
  const Steps striped{{{0, 0, 40, RowStrategy::kPassKv, 0}, {1, 0, 20, RowStrategy::kPassQ, 0}},
                      {{0, 40, 9, RowStrategy::kPassQ, 0}, {1, 20, 1, RowStrategy::kGather, 0}},
                      {{0, 49, 1, RowStrategy::kGather, 0}}};
  const Steps copies{{{0, 0, 40, RowStrategy::kPassKv, 0}, {1, 0, 20, RowStrategy::kPassKv, 0}},
                     {{0, 40, 10, RowStrategy::kPassKv, 0}, {1, 20, 1, RowStrategy::kLocal, 1}}};
  std::vector<SimCase> cases(4);
  cases[0].shape = {.members = 3, .shares = {}, .ring_block = 16, .timeout = limit};
  cases[1].shape = {.members = 5, .shares = {}, .interleave = 4, .timeout = limit};
  cases[2].shape = {.members = 2,
                    .duplicates = 2,
                    .shares = {},
                    .ring_block = 16,
                    .heads = 2,
                    .kv_heads = 1,
                    .timeout = limit};
  cases[3].shape = {.members = 3, .shares = {}, .replicated = true, .ring_block = 16, .timeout = limit};
  for (SimCase& c : cases) {
    c.sequences = {make_sequence(c.shape, 50, 900), make_sequence(c.shape, 21, 901)};
    c.steps = c.shape.replicated ? copies : striped;
    c.want = run_local(c.shape, c.sequences, c.steps);
    check_answers(c.shape, c.sequences, c.want, kTolerance);
  }
  return cases;
}

TEST(DistributedNet, SimulatedNetworkNeverChangesABit) {
  const std::vector<SimCase> cases = sim_cases();
  if (HasFatalFailure()) return;
  for (const uint64_t seed : sim_seeds()) {
    const SimCase& c = cases[seed % cases.size()];
    const Layout layout{c.shape.duplicates, c.shape.members};
    const auto exchange = make_sim_exchange(c.shape.ranks(), {.seed = seed, .faults = {}});
    const WorldRun run =
        run_world(c.shape, make_rank_groups(exchange, layout, c.shape.duplicates), c.sequences, c.steps,
                  [&](const std::function<void(int32_t)>& body) { run_sim_ranks(*exchange, body); });
    for (size_t r = 0; r < run.status.size(); ++r) {
      ASSERT_TRUE(run.status[r].ok()) << "LARIAT_SIM_SEED=" << seed << ": " << run.status[r].error().message;
      for (size_t s = 0; s < c.sequences.size(); ++s)
        for (size_t l = 0; l < layer_masks().size(); ++l)
          ASSERT_EQ(std::memcmp(run.answers[r][s][l].data(), c.want.answers[r][s][l].data(),
                                c.want.answers[r][s][l].size() * sizeof(float)),
                    0)
              << "LARIAT_SIM_SEED=" << seed;
    }
  }
}

TEST(DistributedNet, FaultsEndEveryRankWithAName) {
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
        // What stands around attention: the word before a pass, the tokens, the sums over tp.
        if (c.group == CollectiveGroup::kWorld || c.group == CollectiveGroup::kTp) continue;
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
        answers.emplace_back(layer_masks().size(), std::vector<float>(s.q.size()));
      EXPECT_TRUE(rank.run(steps, answers).ok());
      sent[static_cast<size_t>(r)] = groups[static_cast<size_t>(r)].counters().bytes_sent;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sent, want);
}

TEST(DistributedNet, MovesWhatThePlanDerives) {
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

// The prediction that `plan` prints holds for every mixture of rows; it is of the right size, too.
TEST(DistributedNet, WorkspaceStaysWithinItsPrediction) {
  const Steps steps{{{0, 0, 40, RowStrategy::kPassKv, 0}, {1, 0, 20, RowStrategy::kPassQ, 0}},
                    {{0, 40, 9, RowStrategy::kPassQ, 0}, {1, 20, 15, RowStrategy::kPassKv, 0}},
                    {{0, 49, 1, RowStrategy::kGather, 0}, {1, 35, 1, RowStrategy::kGather, 0}}};
  for (const WorldShape& shape :
       {WorldShape{.members = 3, .shares = {}, .ring_block = 16},
        WorldShape{.members = 1, .duplicates = 3, .shares = {}, .heads = 2, .kv_heads = 1},
        WorldShape{.members = 2, .duplicates = 2, .shares = {}, .heads = 2, .kv_heads = 1}}) {
    SCOPED_TRACE(shape.str());
    const std::vector<TestSequence> sequences{make_sequence(shape, 50, 1), make_sequence(shape, 36, 2)};
    const int64_t bound = stripe_workspace_bytes({.members = shape.members,
                                                  .duplicates = shape.duplicates,
                                                  .ring_block = shape.ring_block,
                                                  .heads = shape.heads,
                                                  .layout = {DType::kF32, shape.kv_heads, kDim, kDim, 16},
                                                  .tokens_max = (60 + shape.members - 1) / shape.members});
    auto groups = make_local_rank_groups({shape.duplicates, shape.members}, shape.duplicates);
    std::vector<std::thread> threads;
    for (int32_t r = 0; r < shape.ranks(); ++r)
      threads.emplace_back([&, r] {
        TestRank rank(shape, groups[static_cast<size_t>(r)], sequences);
        std::vector<Answer> answers;
        for (const TestSequence& s : sequences)
          answers.emplace_back(layer_masks().size(), std::vector<float>(s.q.size()));
        EXPECT_TRUE(rank.run(steps, answers).ok());
        EXPECT_LE(rank.backend().workspace_bytes(), bound);
        EXPECT_GT(4 * rank.backend().workspace_bytes(), bound);
      });
    for (std::thread& t : threads) t.join();
  }
}

TEST(DistributedNet, WaitsAreMeasured) {
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
      counted[static_cast<size_t>(r)] = groups[static_cast<size_t>(r)].counters();
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
}  // namespace lariat::disttest
