// Sampling against the sorted double-precision oracle, the numbers of public reports, and chi-square.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/philox.h"
#include "ops/cpu/target_test.h"
#include "ops/ref/sample_ref.h"

namespace lariat {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(std::mt19937& rng, size_t n, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

SampleResult must_sample(std::vector<float> logits, const SampleParams& params) {
  auto result = sample(logits, params);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : SampleResult{-1, 0, {}};
}

// The set a distribution can give, found by drawing often.
std::vector<int32_t> support(const std::vector<float>& logits, SampleParams params, int draws = 2000) {
  std::vector<int32_t> seen;
  for (int i = 0; i < draws; ++i) {
    params.output_index = static_cast<uint64_t>(i);
    seen.push_back(must_sample(logits, params).token);
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

class SampleTargetTest : public TargetTest {};
LARIAT_FOR_EACH_TARGET(SampleTargetTest);

TEST_P(SampleTargetTest, MatchesTheOracleDrawForDraw) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    const auto number = [&](float lo, float hi) {
      return std::uniform_real_distribution<float>(lo, hi)(rng);
    };
    const auto coin = [&] { return rng() % 2 == 0; };
    const size_t vocab = 1 + rng() % (seed % 10 == 0 ? 50000 : 300);
    const auto logits = random_logits(rng, vocab, number(0.1f, 5.0f));
    SampleParams p;
    p.temperature = number(0.2f, 2.5f);
    if (coin()) p.top_k = static_cast<int32_t>(rng() % (vocab + 3));
    if (coin()) p.top_p = number(0.01f, 1.0f);
    if (coin()) p.min_p = number(0.0f, 0.5f);
    if (coin()) p.repetition_penalty = number(0.5f, 2.0f);
    p.presence_penalty = number(-2, 2);
    p.frequency_penalty = number(-2, 2);
    p.seed = rng();
    p.choice = rng() % 4;
    for (size_t id = 0; id < vocab; id += 1 + rng() % 9) {
      p.counts.push_back({static_cast<int32_t>(id), static_cast<int32_t>(rng() % 3), coin()});
      if (!coin()) continue;
      const bool certain = vocab > 20 && rng() % 20 == 0;
      p.logit_bias.emplace_back(static_cast<int32_t>(id),
                                certain ? (coin() ? 100.0f : -100.0f) : number(-5, 5));
    }
    if (vocab > 2) p.banned.push_back(static_cast<int32_t>(rng() % vocab));
    if (vocab > 64 && coin()) {
      p.allowed.resize((vocab + 63) / 64);
      for (uint64_t& word : p.allowed) word = (uint64_t{rng()} << 32) | rng();
    }
    const auto want = ref::sampling_distribution(logits, p);
    for (uint64_t i = 0; i < 5; ++i) {
      p.output_index = i;
      const double u = philox_uniform(p.seed, i, p.choice);
      ASSERT_EQ(must_sample(logits, p).token, ref::pick(want, u)) << "seed " << seed << " index " << i;
    }
  }
}

// A vocabulary of one value, and one so peaked that the rest underflows: selection has nothing to go by.
TEST_P(SampleTargetTest, FlatAndPeakedVocabularies) {
  std::vector<float> flat(4096, 2.0f);
  SampleParams p;
  for (uint64_t i = 0; i < 50; ++i) {
    p.output_index = i;
    p.top_k = 0;
    p.top_p = 0.5f;
    EXPECT_LT(must_sample(flat, p).token, 2048);
    p.top_p = 1.0f;
    p.top_k = 100;
    EXPECT_LT(must_sample(flat, p).token, 100);
    std::vector<float> peaked(4096, -300.0f);
    peaked[777] = 5.0f;
    EXPECT_EQ(must_sample(peaked, p).token, 777);
  }
}

TEST(Sample, ChiSquareOfTheDraw) {
  std::mt19937 rng(4);
  const auto logits = random_logits(rng, 20, 1.0f);
  SampleParams p;
  p.temperature = 0.8f;
  p.top_p = 0.9f;
  p.seed = 99;
  const auto want = ref::sampling_distribution(logits, p);
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    p.output_index = static_cast<uint64_t>(i);
    ++counts[static_cast<size_t>(must_sample(logits, p).token)];
  }
  double chi = 0;
  int cells = 0;
  for (size_t id = 0; id < want.size(); ++id) {
    if (want[id] == 0) {
      EXPECT_EQ(counts[id], 0) << id;
      continue;
    }
    const double expected = want[id] * kDraws;
    chi += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++cells;
  }
  // 99.9 % point of chi-square by Wilson and Hilferty.
  const double k = cells - 1;
  const double limit = k * std::pow(1 - 2 / (9 * k) + 3.09 * std::sqrt(2 / (9 * k)), 3);
  EXPECT_GT(cells, 5);
  EXPECT_LT(chi, limit);
}

TEST(Sample, SeedChoiceAndIndexAloneDecide) {
  std::mt19937 rng(8);
  const auto logits = random_logits(rng, 1000, 0.5f);
  SampleParams p;
  p.seed = 5;
  const int32_t first = must_sample(logits, p).token;
  EXPECT_EQ(must_sample(logits, p).token, first);
  int differ = 0;
  for (uint64_t i = 1; i < 20; ++i) {
    SampleParams index = p, choice = p, seed = p;
    index.output_index = i;
    choice.choice = static_cast<uint32_t>(i);
    seed.seed = 5 + i;
    differ += (must_sample(logits, index).token != first) + (must_sample(logits, choice).token != first) +
              (must_sample(logits, seed).token != first);
  }
  EXPECT_GT(differ, 50);  // of 57; a collision of 1000 near-equal tokens is rare
}

TEST(Sample, PenaltiesOfPublicReports) {  // C39
  std::vector<float> logits(10, 0.0f);
  SampleParams p;
  p.temperature = 0;
  p.frequency_penalty = 1.0f;
  p.presence_penalty = 0.5f;
  p.counts = {{5, 0, true}, {7, 2, false}, {3, 1, false}};
  std::vector<float> scratch = logits;
  ASSERT_TRUE(sample(scratch, p).ok());
  EXPECT_EQ(scratch[7], -2.5f);
  EXPECT_EQ(scratch[3], -1.5f);
  EXPECT_EQ(scratch[5], 0.0f);

  p.logit_bias = {{9, 100.0f}};
  EXPECT_EQ(must_sample(logits, p).token, 9);
  std::vector<float> nine(10, 0.0f);
  nine[9] = 20.0f;
  p.logit_bias = {{9, -100.0f}};
  EXPECT_EQ(must_sample(nine, p).token, 0);
  p.temperature = 1.0f;
  const auto seen = support(nine, p);
  EXPECT_FALSE(std::binary_search(seen.begin(), seen.end(), 9));

  for (const int32_t outside : {10, -1, 128256}) {
    p.logit_bias = {{outside, 1.0f}};
    scratch = logits;
    const auto result = sample(scratch, p);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
  }
}

// C39: the repetition penalty multiplies a negative logit by up to 100, so a bias of 100 that were only added
// would neither ban nor force.
TEST(Sample, ABiasOfAHundredIsCertainWhateverThePenalties) {
  std::mt19937 rng(7);
  for (const float penalty : {0.01f, 1.0f, 100.0f}) {
    std::vector<float> logits = random_logits(rng, 200, 30.0f);
    SampleParams p;
    p.repetition_penalty = penalty;
    p.presence_penalty = -2.0f;
    for (int32_t id = 0; id < 200; ++id) p.counts.push_back({id, id % 5, true});
    const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const auto worst = static_cast<int32_t>(std::min_element(logits.begin(), logits.end()) - logits.begin());
    for (const float temperature : {0.0f, 2.0f}) {
      p.temperature = temperature;
      p.logit_bias = {{best, -100.0f}};
      const auto banned = support(logits, p, 500);
      EXPECT_FALSE(std::binary_search(banned.begin(), banned.end(), best)) << penalty;
      p.logit_bias = {{worst, 100.0f}};
      EXPECT_EQ(support(logits, p, 100), (std::vector<int32_t>{worst})) << penalty;
    }
    p.logit_bias = {{3, 100.0f}, {4, 100.0f}, {5, 99.0f}, {6, -100.0f}};
    for (const int32_t id : support(logits, p, 200)) EXPECT_TRUE(id == 3 || id == 4) << id;
  }
}

// An end token that is forced before min_tokens is not: the ban stands, and the others go on as they were.
TEST(Sample, BansAndMasksGoBeforeAForcedToken) {
  std::vector<float> logits(10, 0.0f);
  SampleParams p;
  p.temperature = 0;
  p.logit_bias = {{9, 100.0f}};
  p.banned = {9};
  EXPECT_EQ(must_sample(logits, p).token, 0);
  p.logit_bias = {{8, 100.0f}, {9, 100.0f}};
  EXPECT_EQ(must_sample(logits, p).token, 8);
  p.banned.clear();
  p.allowed = {0b11};
  EXPECT_EQ(must_sample(logits, p).token, 0);
  p.logit_bias = {{0, -100.0f}, {1, -100.0f}};
  std::vector<float> scratch = logits;
  const auto none = sample(scratch, p);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::kInvalidArgument) << "what the client asked for, and no fault of ours";
}

TEST(Sample, RepetitionPenaltyDividesPositiveAndMultipliesNegativeOnce) {
  std::vector<float> logits{2.0f, -2.0f, 2.0f, -2.0f, 2.0f};
  SampleParams p;
  p.temperature = 0;
  p.repetition_penalty = 2.0f;
  p.counts = {{0, 5, true}, {1, 0, true}, {2, 1, false}, {4, 0, false}};
  EXPECT_EQ(must_sample(logits, p).token, 4);
  ASSERT_TRUE(sample(logits, p).ok());
  EXPECT_EQ(logits, (std::vector<float>{1.0f, -4.0f, 1.0f, -2.0f, 2.0f}));
}

TEST(Sample, GreedyTakesTheLowestIdOfEqualMaxima) {
  SampleParams p;
  p.temperature = 0;
  EXPECT_EQ(must_sample({1, 3, 3, 2}, p).token, 1);
  EXPECT_EQ(must_sample({-kInf, -5}, p).token, 1);
  EXPECT_EQ(must_sample({7}, p).token, 0);
}

TEST(Sample, TruncationEdges) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits{std::log(4.0f), std::log(2.0f), 0.0f, 0.0f};
  SampleParams p;
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(support(logits, p), (Ids{0, 1, 2, 3}));
  p.top_k = 1;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p.top_k = 3;  // the tie goes to the lower id
  EXPECT_EQ(support(logits, p), (Ids{0, 1, 2}));
  p.top_k = 100;
  EXPECT_EQ(support(logits, p), (Ids{0, 1, 2, 3}));
  p.top_k = 0;
  p.top_p = 0.0f;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p.top_p = 0.4f;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p.top_p = 0.6f;
  EXPECT_EQ(support(logits, p), (Ids{0, 1}));
  p.top_p = 0.8f;
  EXPECT_EQ(support(logits, p), (Ids{0, 1, 2}));
  p.top_p = 1.0f;
  p.min_p = 0.4f;
  EXPECT_EQ(support(logits, p), (Ids{0, 1}));
  p.min_p = 0.2f;
  EXPECT_EQ(support(logits, p), (Ids{0, 1, 2, 3}));
  p.min_p = 1.0f;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p.min_p = 0.0f;
  // top_p counts what top_k left: of {0.5, 0.25} the first has two thirds.
  p.top_k = 2;
  p.top_p = 0.6f;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p = {};
  p.temperature = 1e-6f;
  EXPECT_EQ(support(logits, p), (Ids{0}));
  p = {};
  p.banned = {0, 3};
  EXPECT_EQ(support(logits, p), (Ids{1, 2}));
  p.banned.clear();
  p.allowed = {0b0110};
  EXPECT_EQ(support(logits, p), (Ids{1, 2}));
}

TEST(Sample, LogprobsAreOfTheRawDistribution) {  // C40
  std::mt19937 rng(6);
  const auto logits = random_logits(rng, 500, 2.0f);
  const auto want = ref::log_softmax(logits);
  SampleParams p;
  p.temperature = 2.0f;
  p.top_k = 1;
  p.top_logprobs = 5;
  p.presence_penalty = 1.5f;
  p.logit_bias = {{17, 50.0f}};
  p.counts = {{17, 3, true}, {4, 1, false}};
  const SampleResult result = must_sample(logits, p);
  EXPECT_EQ(result.token, 17);
  EXPECT_NEAR(result.logprob, want[17], 1e-5);
  ASSERT_EQ(result.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(result.top[i].logprob, want[static_cast<size_t>(result.top[i].id)], 1e-5);
    EXPECT_LE(result.top[i].logprob, 0.0f);
    if (i > 0) {
      EXPECT_LE(result.top[i].logprob, result.top[i - 1].logprob);
    }
  }
  EXPECT_NEAR(result.top[0].logprob, *std::max_element(want.begin(), want.end()), 1e-5);
  EXPECT_NEAR(logprobs_of(logits, 17, 0)->logprob, want[17], 1e-5);
  EXPECT_TRUE(logprobs_of(logits, 17, 0)->top.empty());

  p.top_logprobs = 20;  // never more than there are, never fewer; ties by id; finite and <= 0
  const SampleResult all = must_sample({1, 1, -kInf, 1}, [&] {
    SampleParams small;
    small.top_logprobs = 20;
    return small;
  }());
  ASSERT_EQ(all.top.size(), 4u);
  EXPECT_EQ(all.top[0].id, 0);
  EXPECT_EQ(all.top[1].id, 1);
  EXPECT_EQ(all.top[2].id, 3);
  EXPECT_EQ(all.top[3].id, 2);
  EXPECT_EQ(all.top[3].logprob, -9999.0f);
  EXPECT_EQ(must_sample({80.0f},
                        [] {
                          SampleParams one;
                          one.top_logprobs = 0;
                          return one;
                        }())
                .logprob,
            0.0f);
}

TEST(Sample, WhatHasNoSoftmaxIsNamed) {
  SampleParams p;
  std::vector<float> nan{0, 1, kNan, 2};
  auto result = sample(nan, p);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInternal);
  EXPECT_NE(result.error().message.find("logit 2 of 4 is nan"), std::string::npos) << result.error().message;
  std::vector<float> inf{0, kInf};
  EXPECT_FALSE(sample(inf, p).ok());
  std::vector<float> none{-kInf, -kInf};
  result = sample(none, p);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInternal);
  std::vector<float> two{0, 1};
  p.banned = {0, 1};
  EXPECT_FALSE(sample(two, p).ok());
  EXPECT_FALSE(logprobs_of(nan, 0, 0).ok());
  EXPECT_FALSE(logprobs_of(std::vector<float>{1, 2}, 2, 0).ok());
  p = {};
  p.repetition_penalty = 1e-38f;
  p.counts = {{1, 1, false}};
  two = {0, 100};
  result = sample(two, p);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
  p = {};
  p.allowed = {1, 1};
  two = {0, 1};
  EXPECT_FALSE(sample(two, p).ok());
}

}  // namespace
}  // namespace lariat
