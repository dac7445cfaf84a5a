// Requests through the whole head, ranks being threads: answers, refusals, cancelling, draining.
#include <gtest/gtest.h>

#include "head/testing/test_engine.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;

TEST_F(EngineTest, AnswersEqualTheModelsOwn) {
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(11, 1), 20);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, toy_.vocab));
  EXPECT_EQ(got.choice().finish, FinishReason::kLength);
  EXPECT_EQ(got.usage().prompt_tokens, 11);
  EXPECT_EQ(got.usage().completion_tokens, 20);
  EXPECT_EQ(got.events(), 20) << "each token on its own, as it comes";
  EXPECT_TRUE(all_pages_free());
  const EngineState s = engine_->state();
  EXPECT_TRUE(s.ready);
  EXPECT_EQ(s.model, "toy");
  EXPECT_EQ(s.epoch, 1u);
  EXPECT_EQ(s.requests_total, 1);
  EXPECT_EQ(s.prompt_tokens_total, 11);
  EXPECT_EQ(s.generation_tokens_total, 20);
  EXPECT_EQ(s.steps_total, 20);
  ASSERT_EQ(s.ranks.size(), 1u);
  EXPECT_EQ(s.ranks[0].state, "ready");
  EXPECT_EQ(s.ranks[0].kv_pages_total, toy_.pages_total);
}

TEST_F(EngineTest, ManyAtOnceEachGetItsOwn) {
  toy_.pages_total = 40;
  options_.sched.chunk_tokens = 7;
  start_ready();
  std::vector<GenerateRequest> requests;
  std::vector<std::unique_ptr<Collected>> got;
  for (int i = 0; i < 16; ++i) {
    GenerateRequest& r =
        requests.emplace_back(request_of(fmt::format("r{}", i), prompt_of(3 + 5 * i, i), 5 + i));
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    r.seed = 77;
    got.push_back(std::make_unique<Collected>());
    const Status s = engine_->submit(r, got.back()->sink());
    ASSERT_TRUE(s.ok()) << s.error().message;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i]->wait_done());
    EXPECT_EQ(got[i]->choice().tokens, expected(requests[i], toy_.vocab)) << i;
  }
  EXPECT_TRUE(all_pages_free());
}

TEST_F(EngineTest, ChoicesDrawWithTheirOwnKeyAndCountThePromptOnce) {
  start_ready();
  GenerateRequest r = request_of("n", prompt_of(9, 2), 12);
  r.n = 3;
  r.seed = 5;
  r.sampling.temperature = 1;
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  ASSERT_EQ(got.choices(), 3u);
  for (int32_t c = 0; c < 3; ++c) EXPECT_EQ(got.choice(c).tokens, expected(r, toy_.vocab, c)) << c;
  EXPECT_NE(got.choice(0).tokens, got.choice(1).tokens);
  EXPECT_EQ(got.usage().prompt_tokens, 9);
  EXPECT_EQ(got.usage().completion_tokens, 36);
}

TEST_F(EngineTest, WithoutASeedTwoAnswersDiffer) {
  start_ready();
  GenerateRequest r = request_of("x", prompt_of(9, 2), 24);
  r.sampling.temperature = 1;
  Collected first, second;
  ASSERT_TRUE(engine_->submit(r, first.sink()).ok());
  r.id = "y";
  ASSERT_TRUE(engine_->submit(r, second.sink()).ok());
  ASSERT_TRUE(first.wait_done() && second.wait_done());
  EXPECT_NE(first.choice().tokens, second.choice().tokens);
}

TEST_F(EngineTest, EndTokensEndWithStopAndCountInUsageOnly) {
  start_ready();
  GenerateRequest r = request_of("e", prompt_of(9, 3), 50);
  const auto free_run = expected(r, toy_.vocab);
  r.end_ids = {free_run[6]};
  const auto want = expected(r, toy_.vocab);
  r.top_logprobs = 0;
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().finish, FinishReason::kStop);
  EXPECT_EQ(got.choice().tokens, std::vector<int32_t>(want.begin(), want.end() - 1));
  EXPECT_EQ(got.choice().logprobs.size(), want.size() - 1);
  EXPECT_EQ(got.usage().completion_tokens, static_cast<int64_t>(want.size()));
}

TEST_F(EngineTest, PromptLogprobsComeOnceAndFirst) {
  options_.sched.chunk_tokens = 4;
  start_ready();
  GenerateRequest r = request_of("p", prompt_of(13, 4), 3);
  r.prompt_logprobs = 2;
  r.top_logprobs = 2;
  r.n = 2;
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  ASSERT_TRUE(got.prompt());
  ASSERT_EQ(got.prompt()->tokens.size(), 13u);
  for (size_t i = 0; i < 13; ++i) {
    EXPECT_EQ(got.prompt()->tokens[i].id, r.prompt[i]);
    EXPECT_EQ(got.prompt()->tokens[i].top.size(), i == 0 ? 0u : 2u);
  }
  EXPECT_EQ(got.choice(1).tokens, expected(r, toy_.vocab, 1));
  ASSERT_EQ(got.choice(1).logprobs.size(), 3u);
  EXPECT_EQ(got.choice(1).logprobs[0].top.size(), 2u);
}

TEST_F(EngineTest, WhatCannotRunIsRefusedAtOnceWithTheNumbers) {
  toy_.pages_total = 16;  // 64 tokens
  options_.sched.context = 1024;
  options_.sched.max_batch = 1;
  options_.sched.queue_max = 1;
  start_ready();
  Collected none;
  Status s = engine_->submit(request_of("a", prompt_of(65, 1), 5), none.sink());
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Errc::kInvalidArgument);
  EXPECT_NE(s.error().message.find("65"), std::string::npos);
  EXPECT_NE(s.error().message.find("64"), std::string::npos);
  s = engine_->submit(request_of("a", {3, 256}, 5), none.sink());
  EXPECT_EQ(s.error().code, Errc::kInvalidArgument);
  GenerateRequest bad = request_of("a", {3}, 5);
  bad.sampling.temperature = -1;
  EXPECT_EQ(engine_->submit(bad, none.sink()).error().code, Errc::kInvalidArgument);
  bad = request_of("a", {3}, 5);
  bad.stop = {"x", ""};
  EXPECT_EQ(engine_->submit(bad, none.sink()).error().param, "stop");
  bad = request_of("a", {3}, 5);
  bad.n = 0;
  EXPECT_EQ(engine_->submit(bad, none.sink()).error().param, "n");
  EXPECT_EQ(engine_->state().requests_total, 0);

  // Longer than the pool in the end: it ends with kLength, not in silence.
  Collected grows;
  ASSERT_TRUE(engine_->submit(request_of("g", prompt_of(60, 1), 500), grows.sink()).ok());
  ASSERT_TRUE(grows.wait_done());
  EXPECT_EQ(grows.choice().finish, FinishReason::kLength);
  EXPECT_EQ(grows.choice().tokens.size(), 5u);
  EXPECT_EQ(none.events(), 0);
}

TEST_F(EngineTest, AFullQueueIsResourceExhausted) {
  toy_.per_token = milliseconds(2);
  options_.sched.max_batch = 1;
  options_.sched.queue_max = 1;
  start_ready();
  Collected a, b, c;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(5, 1), 1000), a.sink()).ok());
  ASSERT_TRUE(engine_->submit(request_of("b", prompt_of(5, 2), 3), b.sink()).ok());
  const Status s = engine_->submit(request_of("c", prompt_of(5, 3), 3), c.sink());
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Errc::kResourceExhausted);
  ASSERT_TRUE(a.wait_tokens(1));
  const EngineState state = engine_->state();
  EXPECT_EQ(state.requests_running, 1);
  EXPECT_EQ(state.requests_waiting, 1);
  EXPECT_TRUE(engine_->cancel("a"));
  ASSERT_TRUE(b.wait_done()) << "the one that waited runs when the slot is free";
}

TEST_F(EngineTest, AnIdIsUsedByOneRequestAtATime) {
  toy_.per_token = milliseconds(1);
  start_ready();
  Collected a, again;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(5, 1), 2000), a.sink()).ok());
  EXPECT_EQ(engine_->submit(request_of("a", prompt_of(5, 1), 3), again.sink()).error().code,
            Errc::kInvalidArgument);
  EXPECT_TRUE(engine_->cancel("a"));
  EXPECT_FALSE(engine_->cancel("a"));
  EXPECT_FALSE(engine_->cancel("b"));
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(5, 1), 3), again.sink()).ok());
  ASSERT_TRUE(again.wait_done());
}

TEST_F(EngineTest, ACancelWhileDecodingFreesAllAndNothingFollows) {
  toy_.per_token = milliseconds(1);
  start_ready();
  Collected got, other;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(20, 1), 2000), got.sink()).ok());
  const GenerateRequest r = request_of("b", prompt_of(20, 2), 60);
  ASSERT_TRUE(engine_->submit(r, other.sink()).ok());
  ASSERT_TRUE(got.wait_tokens(5));
  EXPECT_TRUE(engine_->cancel("a"));
  got.close();
  ASSERT_TRUE(other.wait_done());
  EXPECT_EQ(other.choice().tokens, expected(r, toy_.vocab));
  EXPECT_TRUE(all_pages_free());
  EXPECT_EQ(engine_->state().requests_cancelled_total, 1);
}

TEST_F(EngineTest, ACancelDeepInALongPrefillAbortsTheStep) {
  toy_.pages_total = 4096;
  toy_.per_token = milliseconds(10);
  options_.sched.context = 1 << 14;
  start_ready();  // the whole prompt is one step of 100 s
  Collected got;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(10'000, 1), 5), got.sink()).ok());
  ASSERT_TRUE(eventually([](const EngineState& s) { return s.kv_pages_used > 0; }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(engine_->cancel("a"));
  got.close();
  EXPECT_TRUE(all_pages_free());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  const GenerateRequest r = request_of("b", prompt_of(3, 2), 3);
  Collected next;
  ASSERT_TRUE(engine_->submit(r, next.sink()).ok());
  ASSERT_TRUE(next.wait_done());
  EXPECT_EQ(next.choice().tokens, expected(r, toy_.vocab));
}

TEST_F(EngineTest, ASinkMayCancelItsOwnRequestAndSubmitAnother) {
  start_ready();
  Collected got, next;
  got.on_event = [&] {
    if (got.events() != 3) return;
    EXPECT_TRUE(engine_->cancel("a"));
    got.close();
    EXPECT_TRUE(engine_->submit(request_of("b", prompt_of(4, 1), 4), next.sink()).ok());
  };
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(4, 1), 2000), got.sink()).ok());
  ASSERT_TRUE(next.wait_done());
  EXPECT_EQ(got.events(), 3);
  EXPECT_TRUE(all_pages_free());
}

TEST_F(EngineTest, CancelsFromOtherThreadsNeverSeeALaterEvent) {
  start_ready();
  for (int round = 0; round < 200; ++round) {
    auto got = std::make_unique<Collected>();
    ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(4, round), 1 + round % 8), got->sink()).ok());
    if (round % 3 != 0) {
      ASSERT_TRUE(got->wait_tokens(static_cast<size_t>(round % 3)) || got->wait_done());
    }
    engine_->cancel("a");
    got->close();
    got.reset();  // a later event would touch freed memory
  }
  EXPECT_TRUE(all_pages_free());
}

TEST_F(EngineTest, RequestsThatTakeTooLongEndInAnError) {
  toy_.per_token = milliseconds(5);
  options_.request_timeout = milliseconds(200);
  start_ready();
  Collected got;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(4, 1), 4000), got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().finish, FinishReason::kError);
  EXPECT_EQ(got.choice().error.code, Errc::kDeadlineExceeded);
  EXPECT_TRUE(all_pages_free());
  EXPECT_EQ(engine_->state().requests_failed_total, 1);
}

TEST_F(EngineTest, ADrainLetsWhatRunsEnd) {
  toy_.per_token = milliseconds(2);
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(4, 1), 100);
  Collected got, late;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_tokens(1));
  engine_->stop(kTestDeadline);
  EXPECT_EQ(got.choice().tokens, expected(r, toy_.vocab));
  const Status s = engine_->submit(request_of("b", prompt_of(4, 1), 4), late.sink());
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Errc::kUnavailable);
  EXPECT_FALSE(engine_->state().ready);
}

TEST_F(EngineTest, ADrainThatRunsOutEndsTheRestWithAnError) {
  toy_.per_token = milliseconds(5);
  start_ready();
  Collected got;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(4, 1), 4000), got.sink()).ok());
  ASSERT_TRUE(got.wait_tokens(1));
  engine_->stop(milliseconds(100));
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().finish, FinishReason::kError);
  EXPECT_EQ(got.choice().error.code, Errc::kUnavailable);
}

TEST_F(EngineTest, SeveralRanksAnswerAsOne) {
  ranks_.world = 3;
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(30, 1), 10);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, toy_.vocab));
  EXPECT_EQ(engine_->state().ranks.size(), 3u);
}

}  // namespace
}  // namespace lariat
