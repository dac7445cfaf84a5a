// Passes over random rows and placements: every token once, on its owner, never more than there is room for.
#include "plan/pass_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace lariat {
namespace {

ScheduleConstants constants_of(const std::vector<int32_t>& shares, int32_t interleave, int32_t duplicates,
                               bool replicated) {
  const auto stripes = Placement::shares(shares, interleave);
  EXPECT_TRUE(stripes.ok());
  return {.layout = {.tp = duplicates, .cp = stripes->stripes() / duplicates},
          .placement = *stripes,
          .heads = duplicates,
          .kv_heads = 1,
          .k_dim = 16,
          .v_dim = 16,
          .hidden = 16,
          .windows = {0},
          .replicated = replicated};
}

ComputePlacement compute_of(const ScheduleConstants& constants) {
  auto compute = ComputePlacement::create(constants);
  EXPECT_TRUE(compute.ok());
  return std::move(compute).value();
}

StepPlan random_plan(std::mt19937& rng) {
  StepPlan plan;
  const int rows = 1 + static_cast<int>(rng() % 5);
  for (int r = 0; r < rows; ++r) {
    PlanRow row;
    row.id = RowId(rng());
    row.pos0 = static_cast<int32_t>(rng() % 100);
    row.strategy = static_cast<Strategy>(rng() % 4);
    row.n = rng() % 3 == 0 ? 1 : 1 + static_cast<int32_t>(rng() % 300);
    plan.rows.push_back(row);
  }
  return plan;
}

TEST(PassPlan, EveryTokenOnceOnItsOwner) {
  std::mt19937 rng(7);
  const std::vector<std::vector<int32_t>> shares{{1}, {1, 1}, {1, 1, 1}, {3, 1}, {1, 2, 4}, {1, 1, 1, 1}};
  for (int trial = 0; trial < 300; ++trial) {
    const auto& share = shares[rng() % shares.size()];
    const int32_t interleave = std::vector<int32_t>{1, 3, 16}[rng() % 3];
    const int32_t duplicates = share.size() == 4 && rng() % 2 ? 2 : 1;
    const ScheduleConstants constants = constants_of(share, interleave, duplicates, rng() % 2);
    const ComputePlacement compute = compute_of(constants);
    const StepPlan plan = random_plan(rng);
    const int64_t tokens_max = 1 + static_cast<int64_t>(rng() % 200);
    SCOPED_TRACE("trial " + std::to_string(trial) + " tokens_max " + std::to_string(tokens_max));

    std::vector<int32_t> done(plan.rows.size(), 0);
    for (const Pass& pass : cut_passes(plan, compute, tokens_max)) {
      ASSERT_FALSE(pass.empty());
      std::vector<int64_t> used(static_cast<size_t>(compute.cp()), 0);
      std::set<size_t> rows;
      for (const PassSegment& s : pass) {
        const PlanRow& row = plan.rows[s.row];
        ASSERT_TRUE(rows.insert(s.row).second) << "a row behind itself in one pass";
        ASSERT_EQ(s.first, done[s.row]);
        ASSERT_GT(s.n, 0);
        done[s.row] += s.n;
        std::vector<int> seen(static_cast<size_t>(s.n), 0);
        for (int32_t c = 0; c < compute.cp(); ++c) {
          std::vector<int32_t> positions;
          compute.positions(row, s, c, positions);
          ASSERT_EQ(static_cast<int64_t>(positions.size()), compute.count(row, s, c));
          const bool shared = s.strategy == RowStrategy::kPassKv || s.strategy == RowStrategy::kPassQ;
          ASSERT_LE(compute.count(row, s, c), shared ? compute.count_max(s.n) : s.n);
          used[static_cast<size_t>(c)] += static_cast<int64_t>(positions.size());
          for (size_t i = 0; i < positions.size(); ++i) {
            ++seen[static_cast<size_t>(positions[i] - row.pos0 - s.first)];
            if (compute.owner(row, s, TokenPos(positions[i])) == c) {
              ASSERT_EQ(compute.index(row, s, TokenPos(positions[i])), static_cast<int64_t>(i));
            } else {
              ASSERT_EQ(s.strategy, RowStrategy::kGather);
            }
          }
        }
        const bool everywhere = s.strategy == RowStrategy::kGather;
        for (const int n : seen) ASSERT_EQ(n, everywhere ? compute.cp() : 1);
      }
      for (const int64_t u : used) ASSERT_LE(u, tokens_max);
    }
    for (size_t r = 0; r < plan.rows.size(); ++r) EXPECT_EQ(done[r], plan.rows[r].n);
  }
}

TEST(PassPlan, OneRankFillsItsPasses) {
  StepPlan plan;
  plan.rows.resize(2);
  plan.rows[0].n = 70;
  plan.rows[1].n = 50;
  const ScheduleConstants constants = constants_of({1}, 1, 1, false);
  const auto passes = cut_passes(plan, compute_of(constants), 64);
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_EQ(passes[0], (Pass{{0, 0, 64}}));
  EXPECT_EQ(passes[1], (Pass{{0, 64, 6}, {1, 0, 50}}));
}

}  // namespace
}  // namespace lariat
