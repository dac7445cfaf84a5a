#include "plan/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>

namespace lariat {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

PlanLimits limits() {
  PlanLimits l;
  l.pages_total = 8;
  l.page_tokens = 4;
  l.vocab = 100;
  l.context = 24;
  l.rows_max = 3;
  l.tokens_max = 16;
  return l;
}

// A prompt's second chunk and a decoding row.
StepPlan good() {
  StepPlan plan;
  plan.epoch = Epoch(3);
  plan.step = StepId(7);
  PlanRow prompt;
  prompt.id = RowId(1);
  prompt.pages = {{PageId(7), PageId(0), PageId(2)}};
  prompt.pos0 = 4;
  prompt.n = 6;
  prompt.tokens = {0, 99, 5, 5, 5, 5};
  PlanRow decode;
  decode.id = RowId(2);
  decode.pages = {{PageId(1)}};
  decode.pos0 = 3;
  decode.n = 1;
  decode.tokens = {42};
  decode.wanted = LogitsWanted::kLast;
  decode.sample = true;
  plan.rows = {prompt, decode};
  return plan;
}

Status check(const StepPlan& plan, const PlanLimits& l = limits()) {
  PlanValidator validator(l);
  return validator.check(plan, Epoch(3));
}

TEST(Validate, AcceptsWhatIsRight) {
  EXPECT_TRUE(check(good()).ok());
  auto plan = good();
  plan.rows[1].use_prev = true;
  plan.rows[1].tokens.clear();
  EXPECT_TRUE(check(plan).ok());
  plan = good();
  auto& s = plan.rows[1].sampling;
  s.temperature = 0;
  s.top_p = 0;
  s.counts = {{5, 2, true}, {6, 0, true}};
  s.logit_bias = {{9, -100.0f}};
  s.banned = {0, 99};
  s.allowed = {~0ull, ~0ull};
  s.top_logprobs = 20;
  plan.rows[0].wanted = LogitsWanted::kAll;
  plan.rows[0].prompt_logprobs = 0;
  plan.rows[0].next_token = 99;
  plan.rows[0].logits_first = 2;
  plan.rows[0].logits_count = 4;
  plan.rows[1].logits_count = 1;
  plan.rows[0].pages[0].emplace_back(3);  // more pages than needed
  plan.rows[0].pages[0].emplace_back(4);
  EXPECT_TRUE(check(plan).ok());
}

TEST(Validate, ReadOnlyPagesMayBeShared) {
  auto plan = good();
  plan.rows[0].pages = {{PageId(7), PageId(0), PageId(2)}};
  plan.rows[1].pages = {{PageId(7), PageId(3)}};
  plan.rows[1].pos0 = 5;
  EXPECT_TRUE(check(plan).ok()) << "page 7 is only read by both";
  plan.rows[1].pos0 = 3;
  EXPECT_THAT(check(plan).error().message, HasSubstr("page 7 is written and belongs to another row too"));
  std::swap(plan.rows[0], plan.rows[1]);
  EXPECT_THAT(check(plan).error().message, HasSubstr("page 7 is written and belongs to another row too"));
}

TEST(Validate, StepsGoForwardAndAFaultDoesNotCount) {
  PlanValidator validator(limits());
  auto plan = good();
  auto bad = good();
  bad.rows[0].n = 0;
  EXPECT_FALSE(validator.check(bad, Epoch(3)).ok());
  EXPECT_TRUE(validator.check(plan, Epoch(3)).ok());
  EXPECT_THAT(validator.check(plan, Epoch(3)).error().message, HasSubstr("done already"));
  plan.step = StepId(8);
  EXPECT_TRUE(validator.check(plan, Epoch(3)).ok()) << "pages of an earlier step are not of another row";
  plan.step = StepId(1);
  plan.epoch = Epoch(4);
  validator.forget_steps();
  EXPECT_TRUE(validator.check(plan, Epoch(4)).ok());
}

TEST(Validate, OtherPlanLimits) {
  auto l = limits();
  l.cache_groups = 2;
  auto plan = good();
  EXPECT_THAT(check(plan, l).error().message, HasSubstr("1 page tables for 2 cache groups"));
  for (auto& row : plan.rows) row.pages.push_back(row.pages[0]);
  EXPECT_TRUE(check(plan, l).ok()) << "the groups' pages are different pages";
  l = limits();
  l.rows_max = 0;
  l.tokens_max = 0;
  EXPECT_TRUE(check(good(), l).ok());
}

TEST(Validate, LogitsAskedBackFitAMessage) {
  auto l = limits();
  l.vocab = kLogitsBytesMax / sizeof(float) / 6;
  auto plan = good();
  plan.rows[0].wanted = LogitsWanted::kAll;
  plan.rows[0].logits_count = 6;
  EXPECT_TRUE(check(plan, l).ok());
  plan.rows[1].logits_count = 1;
  EXPECT_THAT(check(plan, l).error().message, HasSubstr("bytes of logits asked back, at most 50331648"));
}

struct Fault {
  const char* says;
  std::function<void(StepPlan&)> make;
};

TEST(Validate, EachFaultIsNamed) {
  const std::vector<Fault> faults{
      {"epoch 2, this group is 3", [](StepPlan& p) { p.epoch = Epoch(2); }},
      {"step 0: step 0 was done already", [](StepPlan& p) { p.step = StepId(0); }},
      {"no rows", [](StepPlan& p) { p.rows.clear(); }},
      {"4 rows of at most 3", [](StepPlan& p) { p.rows.resize(4); }},
      {"row 1 twice", [](StepPlan& p) { p.rows[1].id = RowId(1); }},
      {"row 1: 0 new tokens", [](StepPlan& p) { p.rows[0].n = 0; }},
      {"-5 new tokens", [](StepPlan& p) { p.rows[0].n = -5; }},
      {"position -1", [](StepPlan& p) { p.rows[0].pos0 = -1; }},
      {"to position 25 in a context of 24", [](StepPlan& p) { p.rows[0].pos0 = 19; }},
      {"to position 4294967294 in", [](StepPlan& p) { p.rows[0].pos0 = p.rows[0].n = 2147483647; }},
      {"5 ids for 6 tokens", [](StepPlan& p) { p.rows[0].tokens.pop_back(); }},
      {"6 tokens and 6 ids beside the previous", [](StepPlan& p) { p.rows[0].use_prev = true; }},
      {"1 tokens and 1 ids beside the previous", [](StepPlan& p) { p.rows[1].use_prev = true; }},
      {"tokens: id 100 is not in the vocabulary of 100", [](StepPlan& p) { p.rows[0].tokens[3] = 100; }},
      {"tokens: id -1 is not", [](StepPlan& p) { p.rows[1].tokens[0] = -1; }},
      {"0 page tables for 1", [](StepPlan& p) { p.rows[1].pages.clear(); }},
      {"2 pages of 4 hold fewer than 10 tokens", [](StepPlan& p) { p.rows[0].pages[0].pop_back(); }},
      {"row 2: page 8 of a pool of 8", [](StepPlan& p) { p.rows[1].pages[0][0] = PageId(8); }},
      {"page -1 of a pool", [](StepPlan& p) { p.rows[1].pages[0][0] = PageId(-1); }},
      {"row 1: page 0 twice", [](StepPlan& p) { p.rows[0].pages[0][2] = PageId(0); }},
      {"row 2: page 2 is written", [](StepPlan& p) { p.rows[1].pages[0][0] = PageId(2); }},
      {"strategy 9", [](StepPlan& p) { p.rows[0].strategy = static_cast<Strategy>(9); }},
      {"wanted logits 3", [](StepPlan& p) { p.rows[0].wanted = static_cast<LogitsWanted>(3); }},
      {"a sample without logits", [](StepPlan& p) { p.rows[1].wanted = LogitsWanted::kNone; }},
      {"prompt_logprobs 21 of at most 20",
       [](StepPlan& p) {
         p.rows[0].prompt_logprobs = 21;
         p.rows[0].wanted = LogitsWanted::kAll;
       }},
      {"prompt_logprobs -2", [](StepPlan& p) { p.rows[0].prompt_logprobs = -2; }},
      {"prompt_logprobs without all logits", [](StepPlan& p) { p.rows[0].prompt_logprobs = 1; }},
      {"logits of 7 tokens from 0 on, of 6",
       [](StepPlan& p) {
         p.rows[0].wanted = LogitsWanted::kAll;
         p.rows[0].logits_count = 7;
       }},
      {"logits of 2147483647 tokens from 2147483647",
       [](StepPlan& p) {
         p.rows[0].wanted = LogitsWanted::kAll;
         p.rows[0].logits_first = p.rows[0].logits_count = 2147483647;
       }},
      {"logits of 1 tokens from -1",
       [](StepPlan& p) { p.rows[1].logits_first = -1, p.rows[1].logits_count = 1; }},
      {"logits of 0 tokens from 1", [](StepPlan& p) { p.rows[0].logits_first = 1; }},
      {"logits of token 0 of 6 that are not wanted", [](StepPlan& p) { p.rows[0].logits_count = 1; }},
      {"logits of token 0 of 6 that are not wanted",
       [](StepPlan& p) {
         p.rows[0].wanted = LogitsWanted::kLast;
         p.rows[0].logits_count = 6;
       }},
      {"next_token: id 100", [](StepPlan& p) { p.rows[0].next_token = 100; }},
      {"next_token: id -2", [](StepPlan& p) { p.rows[0].next_token = -2; }},
      {"17 new tokens of at most 16",
       [](StepPlan& p) {
         p.rows[0].n = 16;
         p.rows[0].tokens.assign(16, 1);
         p.rows[0].pages[0] = {PageId(7), PageId(0), PageId(2), PageId(3), PageId(4)};
       }},
      {"schedule hash 00000000000000000000000000000001", [](StepPlan& p) { p.schedule_hash[0] = 1; }},
      {"schedule hash 00000000000000010000000000000000", [](StepPlan& p) { p.schedule_hash[1] = 1; }},
      {"temperature nan", [](StepPlan& p) { p.rows[1].sampling.temperature = kNan; }},
      {"temperature -1", [](StepPlan& p) { p.rows[1].sampling.temperature = -1; }},
      {"temperature inf", [](StepPlan& p) { p.rows[1].sampling.temperature = kInf; }},
      {"top_k -1", [](StepPlan& p) { p.rows[1].sampling.top_k = -1; }},
      {"top_p 1.5", [](StepPlan& p) { p.rows[1].sampling.top_p = 1.5f; }},
      {"top_p nan", [](StepPlan& p) { p.rows[1].sampling.top_p = kNan; }},
      {"min_p -0.5", [](StepPlan& p) { p.rows[1].sampling.min_p = -0.5f; }},
      {"repetition_penalty 0", [](StepPlan& p) { p.rows[1].sampling.repetition_penalty = 0; }},
      {"presence_penalty nan", [](StepPlan& p) { p.rows[1].sampling.presence_penalty = kNan; }},
      {"frequency_penalty -inf", [](StepPlan& p) { p.rows[1].sampling.frequency_penalty = -kInf; }},
      {"top_logprobs 21 of at most 20", [](StepPlan& p) { p.rows[1].sampling.top_logprobs = 21; }},
      {"top_logprobs -2", [](StepPlan& p) { p.rows[1].sampling.top_logprobs = -2; }},
      {"counts: id 100 is not", [](StepPlan& p) { p.rows[1].sampling.counts = {{100, 1, false}}; }},
      {"counts: id 4 twice", [](StepPlan& p) { p.rows[1].sampling.counts = {{4, 1, false}, {4, 1, true}}; }},
      {"counts: id 4 counted -1 times", [](StepPlan& p) { p.rows[1].sampling.counts = {{4, -1, false}}; }},
      {"logit_bias: id -1", [](StepPlan& p) { p.rows[1].sampling.logit_bias = {{-1, 1.0f}}; }},
      {"logit_bias: id 3 twice", [](StepPlan& p) { p.rows[1].sampling.logit_bias = {{3, 1.0f}, {3, 1.0f}}; }},
      {"logit_bias: that of id 3", [](StepPlan& p) { p.rows[1].sampling.logit_bias = {{3, kInf}}; }},
      {"banned: id 100", [](StepPlan& p) { p.rows[1].sampling.banned = {100}; }},
      {"allowed: 1 words for a vocabulary of 100, 2", [](StepPlan& p) { p.rows[1].sampling.allowed = {1}; }},
  };
  for (const Fault& f : faults) {
    auto plan = good();
    f.make(plan);
    auto status = check(plan);
    ASSERT_FALSE(status.ok()) << f.says;
    EXPECT_EQ(status.error().code, Errc::kCorruptData) << f.says;
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr(fmt::format("step {}", plan.step.get())), HasSubstr(f.says)));
  }
}

// Plans put together at random around the limits: what passes can be run without a write outside the pool,
// over another row, or past the tokens given.
TEST(Validate, WhatPassesIsSafeToRun) {
  std::mt19937_64 rng(20);
  const auto around = [&](int64_t low, int64_t high) {
    return static_cast<int32_t>(low + static_cast<int64_t>(rng() % static_cast<uint64_t>(high - low + 1)));
  };
  const PlanLimits l = limits();
  int passed = 0;
  for (int i = 0; i < 200000; ++i) {
    StepPlan plan;
    plan.epoch = Epoch(3);
    plan.step = StepId(1);
    plan.rows.resize(rng() % 3);
    for (PlanRow& row : plan.rows) {
      row.id = RowId(rng() % 4);
      row.pos0 = around(-1, 20);
      row.n = rng() % 2 ? 1 : around(0, 8);
      row.use_prev = rng() % 8 == 0;
      for (int32_t t = around(0, 9) == 0 ? around(0, 8) : row.use_prev ? 0 : row.n; t > 0; --t)
        row.tokens.push_back(rng() % 50 == 0 ? around(-1, 100) : 7);
      row.pages.resize(rng() % 20 == 0 ? rng() % 3 : 1);
      for (auto& table : row.pages)
        for (int32_t t = around(0, 6); t > 0; --t) table.emplace_back(around(rng() % 20 ? 0 : -1, 8));
    }
    if (!check(plan).ok()) continue;
    ++passed;
    std::map<int32_t, int> holders;
    std::set<RowId> ids;
    for (const PlanRow& row : plan.rows) {
      ASSERT_TRUE(ids.insert(row.id).second);
      ASSERT_EQ(row.pages.size(), 1u);
      for (const PageId page : row.pages[0]) ++holders[page.get()];
    }
    for (const PlanRow& row : plan.rows) {
      ASSERT_GE(row.n, 1);
      for (int32_t pos = row.pos0; pos < row.pos0 + row.n; ++pos) {
        ASSERT_TRUE(pos >= 0 && pos < l.context);
        const int32_t page = row.pages[0].at(static_cast<size_t>(pos / l.page_tokens)).get();
        ASSERT_TRUE(page >= 0 && page < l.pages_total);
        ASSERT_EQ(holders[page], 1) << "written and shared";
        if (row.use_prev) continue;
        const int32_t token = row.tokens.at(static_cast<size_t>(pos - row.pos0));
        ASSERT_TRUE(token >= 0 && token < l.vocab);
      }
    }
  }
  EXPECT_GT(passed, 1000);
}

}  // namespace
}  // namespace lariat
