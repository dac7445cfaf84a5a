// A real model over a simulated network: whatever a seed delays, reorders or stalls, the tokens are those of
// one rank; whatever it cuts or kills ends in an error that names a rank, never in a hang or a wrong token.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "app/golden_test_util.h"
#include "app/model_session.h"
#include "comm/local/local_groups.h"
#include "comm/sim/sim_exchange.h"
#include "plan/schedule_hash.h"

namespace lariat {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kPrompt = 37;
constexpr int32_t kChunk = 16;
constexpr int32_t kNew = 8;

struct Shape {
  int32_t tp;
  int32_t cp;
  KvMode kv;
  Strategy strategy;
};
const std::vector<Shape> kShapes{
    {1, 2, KvMode::kStriped, Strategy::kPassKv},  {1, 3, KvMode::kStriped, Strategy::kPassQ},
    {1, 3, KvMode::kReplicated, Strategy::kAuto}, {2, 1, KvMode::kStriped, Strategy::kAuto},
    {2, 2, KvMode::kStriped, Strategy::kPassKv},  {4, 1, KvMode::kStriped, Strategy::kAuto}};

LayoutOptions options_of(const Shape& shape) {
  LayoutOptions o;
  o.tp = shape.tp;
  o.cp = shape.cp;
  o.kv_mode = shape.kv;
  o.strategy = shape.strategy;
  o.threads = 1;
  o.context = 128;
  o.max_batch = 1;
  return o;
}

// What a rank saw of the run: the tokens it drew, by output index, or the error that ended it.
struct Seen {
  std::map<int32_t, int32_t> drawn;
  std::optional<Error> error;
};

class Model {
 public:
  Model() : model_(open_test_model(golden_path("llama-gqa").string())) {}

  // All steps of one sequence on one rank: the prompt in chunks, then its own tokens.
  Seen run_rank(const LayoutOptions& options, const ResolvedPlan& plan, Rank rank, RankGroups* groups) {
    Seen seen;
    auto place = rank_place(model_, options, rank, groups);
    EXPECT_TRUE(place.ok());
    const int32_t t = place->t();
    const ScheduleConstants constants = place->constants;
    auto executor = make_executor(model_, options, plan,
                                  {.weights = weights(options.tp, t),
                                   .id = {},
                                   .stream = Stream::cpu(1),
                                   .place = std::move(*place),
                                   .poison = true});
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    int32_t done = 0;
    for (uint64_t step = 1; done < kPrompt + kNew - 1; ++step) {
      StepPlan step_plan = plan_of(step, done, plan);
      seal(step_plan, constants, options.strategy);
      const int32_t n = step_plan.rows[0].n;
      const auto outcome = (*executor)->run(step_plan, [] { return true; });
      if (!outcome.ok()) {
        seen.error = outcome.error();
        return seen;
      }
      done += n;
      if (outcome->rows[0].token >= 0) seen.drawn[done - kPrompt] = outcome->rows[0].token;
    }
    return seen;
  }

  ResolvedPlan resolve(const LayoutOptions& options) {
    auto plan = resolve_plan(model_, options);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return *plan;
  }

 private:
  static StepPlan plan_of(uint64_t step, int32_t done, const ResolvedPlan& resolved) {
    StepPlan plan;
    plan.step = StepId(step);
    PlanRow& row = plan.rows.emplace_back();
    row.id = RowId(7);
    std::vector<PageId> table;
    for (int32_t p = 0; p < (kPrompt + kNew + resolved.page_tokens - 1) / resolved.page_tokens; ++p) {
      table.emplace_back(p);
    }
    row.pages = {table};
    row.pos0 = done;
    if (done < kPrompt) {
      row.n = std::min(kChunk, kPrompt - done);
      for (int32_t i = 0; i < row.n; ++i) row.tokens.push_back((done + i) * 131 % 509);
    } else {
      row.n = 1;
      row.use_prev = true;
      row.strategy = Strategy::kGather;
    }
    if (done + row.n >= kPrompt) {
      row.wanted = LogitsWanted::kLast;
      row.sample = true;
      row.sampling.temperature = 0;
    }
    return plan;
  }

  std::shared_ptr<const DecoderWeights> weights(int32_t tp, int32_t t) {
    const std::lock_guard lock(mutex_);
    auto& w = weights_[{tp, t}];
    if (!w) {
      auto stream = Stream::cpu(1);
      auto loaded = DecoderWeights::load(model_.files.config, shard_of(model_.files.config, tp, t),
                                         *model_.source, std::nullopt, {.stream = *stream, .progress = {}});
      EXPECT_TRUE(loaded.ok());
      w = *loaded;
    }
    return w;
  }

  OpenModel model_;
  std::mutex mutex_;
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<const DecoderWeights>> weights_;
};

std::vector<Seen> run_all(Model& model, const Shape& shape, const SimOptions& sim) {
  const LayoutOptions options = options_of(shape);
  const ResolvedPlan plan = model.resolve(options);
  const Layout layout{.tp = shape.tp, .cp = shape.cp};
  const auto exchange = make_sim_exchange(layout.world(), sim);
  auto groups = make_rank_groups(exchange, layout, layout_shape(layout, 4, 2).duplicates);
  std::vector<Seen> seen(static_cast<size_t>(layout.world()));
  run_sim_ranks(*exchange, [&](int32_t rank) {
    seen[static_cast<size_t>(rank)] =
        model.run_rank(options, plan, Rank(rank), &groups[static_cast<size_t>(rank)]);
  });
  return seen;
}

std::map<int32_t, int32_t> one_rank(Model& model) {
  const LayoutOptions options = options_of({1, 1, KvMode::kStriped, Strategy::kAuto});
  return model.run_rank(options, model.resolve(options), Rank(0), nullptr).drawn;
}

int seeds() {
  const char* count = std::getenv("LARIAT_SIM_COUNT");
  return count ? std::atoi(count) : 500;
}
uint64_t first_seed() {
  const char* seed = std::getenv("LARIAT_SIM_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

bool golden_missing() {
  return !fs::exists(golden_path("llama-gqa"));
}

TEST(SimRanks, TokensAreThoseOfOneRank) {
  if (golden_missing()) GTEST_SKIP() << LARIAT_SHARED_DIR << "/golden is not here";
  Model model;
  const auto want = one_rank(model);
  ASSERT_EQ(want.size(), static_cast<size_t>(kNew));
  for (int i = 0; i < seeds(); ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    const Shape& shape = kShapes[seed % kShapes.size()];
    SCOPED_TRACE("replay with LARIAT_SIM_COUNT=1 LARIAT_SIM_SEED=" + std::to_string(seed));
    SimOptions sim;
    sim.seed = seed;
    // Every third seed stalls a rank for less than the deadline: late is not lost.
    if (seed % 3 == 0) {
      sim.faults.push_back(
          {.kind = SimFault::Kind::kStall,
           .rank = static_cast<int32_t>(seed / 3 % static_cast<uint64_t>(shape.tp * shape.cp)),
           .peer = 0,
           .at_call = static_cast<int64_t>(seed % 97),
           .stall_ms = 2000});
    }
    std::map<int32_t, int32_t> got;
    for (const Seen& seen : run_all(model, shape, sim)) {
      ASSERT_FALSE(seen.error.has_value()) << seen.error->message;
      for (const auto& [at, token] : seen.drawn) {
        ASSERT_TRUE(got.emplace(at, token).second || got[at] == token) << "two ranks drew output " << at;
      }
    }
    ASSERT_EQ(got, want);
  }
}

TEST(SimRanks, FaultsEndInAnErrorThatNamesARank) {
  if (golden_missing()) GTEST_SKIP() << LARIAT_SHARED_DIR << "/golden is not here";
  Model model;
  const auto want = one_rank(model);
  int failed = 0;
  for (int i = 0; i < seeds(); ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    const Shape& shape = kShapes[seed % kShapes.size()];
    const int32_t world = shape.tp * shape.cp;
    SCOPED_TRACE("replay with LARIAT_SIM_COUNT=1 LARIAT_SIM_SEED=" + std::to_string(seed));
    SimOptions sim;
    sim.seed = seed;
    sim.faults = {random_fault(seed, world, 150, 60'000)};
    const auto all = run_all(model, shape, sim);
    bool any_failed = false;
    for (const Seen& seen : all) {
      for (const auto& [at, token] : seen.drawn)
        ASSERT_EQ(token, want.at(at)) << "a wrong token after a fault";
      if (!seen.error) continue;
      any_failed = true;
      ASSERT_NE(seen.error->message.find("rank "), std::string::npos) << seen.error->message;
    }
    failed += any_failed;
    if (any_failed) continue;
    size_t drawn = 0;
    for (const Seen& seen : all) drawn = std::max(drawn, seen.drawn.size());
    ASSERT_GT(drawn, 0u);
  }
  if (seeds() >= 100) {
    EXPECT_GT(failed, seeds() / 4) << "the faults reach nothing";
  }
}

}  // namespace
}  // namespace lariat
