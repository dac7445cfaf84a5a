// The exactness contract of one rank: a row's logits are the same bits alone, in company, in chunks, on any
// threads.
#include "worker/model_executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "model/model_files.h"
#include "models/embedded.h"

namespace lariat {
namespace {

constexpr int32_t kPageTokens = 16;
constexpr int32_t kPagesTotal = 256;

struct Loaded {
  DecoderConfig config;
  std::shared_ptr<const DecoderWeights> weights;
};

const Loaded& needle() {
  static const Loaded loaded = [] {
    auto files = resolve_model("needle-5m", {.dirs = {}, .embedded = embedded_models()});
    EXPECT_TRUE(files.ok());
    auto source = open_weights(*files, nullptr);
    EXPECT_TRUE(source.ok());
    auto stream = Stream::cpu(1);
    auto weights = DecoderWeights::load(files->config, shard_of(files->config, 1, 0), **source, std::nullopt,
                                        {.stream = *stream, .progress = {}});
    EXPECT_TRUE(weights.ok());
    return Loaded{files->config, *weights};
  }();
  return loaded;
}

RankPlace one_rank() {
  const auto& c = needle().config;
  auto placement = Placement::equal(1, 1);
  EXPECT_TRUE(placement.ok());
  return {.rank = Rank(0),
          .constants = {.layout = {.tp = 1, .cp = 1},
                        .placement = *placement,
                        .heads = static_cast<int32_t>(c.heads),
                        .kv_heads = static_cast<int32_t>(c.kv_heads),
                        .k_dim = static_cast<int32_t>(c.head_dim),
                        .v_dim = static_cast<int32_t>(c.head_dim),
                        .hidden = c.hidden,
                        .windows = {}}};
}

std::unique_ptr<ModelExecutor> executor(int threads, int32_t pass_tokens, bool poison = true) {
  auto decoder = std::make_shared<const Decoder>(needle().config, needle().weights);
  auto e = ModelExecutor::create(std::move(decoder), Stream::cpu(threads), one_rank(),
                                 {.kv_type = DType::kF32,
                                  .page_tokens = kPageTokens,
                                  .pages_total = kPagesTotal,
                                  .pass_tokens = pass_tokens,
                                  .poison = poison});
  EXPECT_TRUE(e.ok());
  return std::move(e).value();
}

std::vector<int32_t> random_ids(uint32_t seed, int32_t n) {
  std::mt19937 rng(seed);
  std::uniform_int_distribution<int32_t> id(0, 1456);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& i : ids) i = id(rng);
  return ids;
}

// A row fed `chunk` tokens a step; its pages are every `stride`-th from `first` on, so rows interleave.
struct Feed {
  RowId id;
  std::vector<int32_t> ids;
  int32_t chunk = 0;
  std::vector<PageId> pages;
  int32_t done = 0;

  static Feed make(uint64_t id, std::vector<int32_t> ids, int32_t chunk, int32_t first_page, int32_t stride) {
    Feed f{RowId(id), std::move(ids), chunk, {}, 0};
    const auto pages = static_cast<int32_t>((f.ids.size() + kPageTokens - 1) / kPageTokens);
    for (int32_t p = 0; p < pages; ++p) f.pages.emplace_back(first_page + p * stride);
    return f;
  }
  bool finished() const { return done == static_cast<int32_t>(ids.size()); }
  PlanRow next() {
    PlanRow row;
    row.id = id;
    row.pages = {pages};
    row.pos0 = done;
    row.n = std::min<int32_t>(chunk, static_cast<int32_t>(ids.size()) - done);
    row.tokens.assign(ids.begin() + done, ids.begin() + done + row.n);
    row.wanted = LogitsWanted::kAll;
    row.logits_count = row.n;
    done += row.n;
    return row;
  }
};

using Logits = std::map<std::pair<uint64_t, int32_t>, std::vector<float>>;  // by row and position

Logits run(ModelExecutor& e, std::vector<Feed> feeds) {
  Logits seen;
  uint64_t step = 0;
  while (true) {
    StepPlan plan;
    plan.step = StepId(++step);
    for (Feed& f : feeds) {
      if (!f.finished()) plan.rows.push_back(f.next());
    }
    if (plan.rows.empty()) return seen;
    const auto outcome = e.run(plan, [] { return true; });
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    for (const RowOutcome& row : outcome->rows) {
      EXPECT_FALSE(row.failed) << row.message;
      for (const PositionLogits& at : row.logits) seen[{row.id.get(), at.pos}] = at.values;
    }
  }
}

void expect_same_bits(const Logits& want, const Logits& got, uint64_t row, int32_t n) {
  for (int32_t pos = 0; pos < n; ++pos) {
    const auto& a = want.at({row, pos});
    const auto& b = got.at({row, pos});
    ASSERT_EQ(a.size(), b.size());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "position " << pos;
  }
}

TEST(ModelExecutor, BitsDependOnTheRowAlone) {
  constexpr int32_t kTokens = 203;
  const std::vector<int32_t> ids = random_ids(1, kTokens);
  const auto alone = executor(1, 512);
  const Logits want = run(*alone, {Feed::make(1, ids, kTokens, 0, 1)});
  for (const float x : want.at({1, 0})) ASSERT_TRUE(std::isfinite(x));

  for (const int threads : {1, 2}) {
    for (const int32_t chunk : {7, kTokens}) {
      for (const int32_t pass_tokens : {512, 33}) {
        SCOPED_TRACE("threads " + std::to_string(threads) + " chunk " + std::to_string(chunk) + " pass " +
                     std::to_string(pass_tokens));
        std::vector<Feed> feeds{Feed::make(1, ids, chunk, 3, 8)};
        // Seven neighbours of other lengths and chunkings, one of them long past the row's end.
        for (int32_t i = 0; i < 7; ++i) {
          feeds.push_back(Feed::make(10 + static_cast<uint64_t>(i),
                                     random_ids(100 + static_cast<uint32_t>(i), 5 + 61 * i), 1 + 13 * i,
                                     i < 3 ? i : i + 1, 8));
        }
        const auto e = executor(threads, pass_tokens);
        expect_same_bits(want, run(*e, std::move(feeds)), 1, kTokens);
      }
    }
  }
}

// C23: what free pages hold must not matter, be it NaN or a large number.
TEST(ModelExecutor, PoisonReachesNothing) {
  constexpr int32_t kTokens = 40;
  const auto clean = executor(2, 64, false);
  const auto poisoned = executor(2, 64, true);
  std::vector<Feed> feeds;
  for (const int32_t n : {1, 17, kTokens}) {
    feeds.push_back(Feed::make(static_cast<uint64_t>(n), random_ids(static_cast<uint32_t>(n), n), 7, n, 3));
  }
  const Logits want = run(*clean, feeds);
  const Logits got = run(*poisoned, feeds);
  for (const int32_t n : {1, 17, kTokens}) expect_same_bits(want, got, static_cast<uint64_t>(n), n);
}

TEST(ModelExecutor, ContinuesThePreviousToken) {
  const std::vector<int32_t> ids = random_ids(5, 20);
  Feed feed = Feed::make(1, ids, 20, 0, 1);
  feed.pages.emplace_back(100);
  const auto decode = [&](bool use_prev) {
    const auto e = executor(1, 64);
    StepPlan plan;
    plan.step = StepId(1);
    Feed f = feed;
    plan.rows.push_back(f.next());
    plan.rows[0].wanted = LogitsWanted::kLast;
    plan.rows[0].sample = true;
    plan.rows[0].sampling.temperature = 0;
    const auto first = e->run(plan, [] { return true; });
    EXPECT_TRUE(first.ok());
    PlanRow& row = plan.rows[0];
    plan.step = StepId(2);
    row.pos0 = 20;
    row.n = 1;
    row.use_prev = use_prev;
    row.tokens = use_prev ? std::vector<int32_t>{} : std::vector<int32_t>{first->rows[0].token};
    const auto second = e->run(plan, [] { return true; });
    EXPECT_TRUE(second.ok());
    return second->rows[0].token;
  };
  EXPECT_EQ(decode(true), decode(false));

  // A row that ended is forgotten, and one never seen has no previous token.
  const auto e = executor(1, 64);
  StepPlan plan;
  plan.step = StepId(1);
  PlanRow row;
  row.id = RowId(9);
  row.pages = {feed.pages};
  row.n = 1;
  row.use_prev = true;
  plan.rows.push_back(row);
  const auto r = e->run(plan, [] { return true; });
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("row 9"), std::string::npos);
}

TEST(ModelExecutor, StopsBetweenLayersWhenNobodyWaits) {
  const auto e = executor(1, 512);
  StepPlan plan;
  plan.step = StepId(1);
  Feed f = Feed::make(1, random_ids(3, 100), 100, 0, 1);
  plan.rows.push_back(f.next());
  int calls = 0;
  const auto r = e->run(plan, [&] { return ++calls < 3; });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Errc::kCancelled);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace lariat
