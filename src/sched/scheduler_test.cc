// Rows come and go: admission checks, ends, cancelling, failures, a lost group.
#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/test_bench.h"

namespace lariat::sched_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Scheduler, OneRowFromPromptToLength) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(20, 3)).ok());
  ASSERT_TRUE(b.step());
  ASSERT_EQ(b.plan.rows.size(), 1u);
  EXPECT_EQ(b.plan.rows[0].n, 20);
  EXPECT_EQ(b.plan.rows[0].wanted, LogitsWanted::kLast);
  EXPECT_TRUE(b.plan.rows[0].sample);
  EXPECT_EQ(b.tokens[1].size(), 1u);
  ASSERT_TRUE(b.step());
  EXPECT_EQ(b.plan.rows[0].n, 1);
  EXPECT_EQ(b.plan.rows[0].pos0, 20);
  EXPECT_EQ(b.plan.rows[0].tokens, std::vector<int32_t>{b.tokens[1][0]});
  EXPECT_EQ(b.plan.rows[0].sampling.output_index, 1u);
  b.run();
  b.expect_alone(1);
  EXPECT_EQ(b.finish[1], FinishReason::kLength);
  // The row is forgotten with the next step that there is.
  ASSERT_TRUE(b.add(2, request(1, 1)).ok());
  ASSERT_TRUE(b.step());
  EXPECT_EQ(b.plan.forget, std::vector<RowId>{RowId(1)});
}

TEST(Scheduler, NothingRunsBeforeTheGroupIsFormed) {
  auto s = Scheduler::create(small()).value();
  const SequenceSpec spec{RowId(1), request(3, 1), 0, 0, false};
  ASSERT_TRUE(s.add({&spec, 1}, Time{}).ok());
  EXPECT_FALSE(s.next(Time{}).has_value());
  s.group_formed(Epoch(1));
  EXPECT_TRUE(s.next(Time{}).has_value());
  EXPECT_FALSE(s.next(Time{}).has_value()) << "a step is in flight";
}

// Public reports C28: pool of 16 pages of 16, context 1024.
TEST(Scheduler, PromptLargerThanThePoolIsRefusedAtOnce) {
  Bench b(small());
  auto status = b.add(1, request(300, 10));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(status.error().message, HasSubstr("300"));
  EXPECT_THAT(status.error().message, HasSubstr("256"));
  EXPECT_TRUE(b.sched().idle());
  for (uint64_t id = 2; id <= 6; ++id) ASSERT_TRUE(b.add(id, request(10, 4)).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.step());
  EXPECT_EQ(b.finish.size(), 5u) << "four steps for four tokens, as without the refused one";
}

// Public reports C36: context 64.
TEST(Scheduler, PromptAgainstContext) {
  SchedConfig c = small();
  c.context = 64;
  for (const int prompt : {62, 63, 64}) {
    Bench b(c);
    ASSERT_TRUE(b.add(1, request(prompt, 1)).ok()) << prompt;
    b.run();
    EXPECT_EQ(b.tokens[1].size(), 1u) << prompt;
  }
  Bench b(c);
  for (const int prompt : {65, 200}) {
    auto status = b.add(1, request(prompt, 1));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
    EXPECT_EQ(status.error().param, "prompt");
    EXPECT_THAT(status.error().message, HasSubstr(std::to_string(prompt)));
    EXPECT_THAT(status.error().message, HasSubstr("64"));
  }
  ASSERT_TRUE(b.add(2, request(60, 100)).ok());
  b.run();
  EXPECT_EQ(b.tokens[2].size(), 5u) << "64 - 60 stored, and one that need not be";
  EXPECT_EQ(b.finish[2], FinishReason::kLength);
}

TEST(Scheduler, NoTokensAskedFor) {
  Bench b(small());
  auto r = request(40, 0);
  r->prompt_logprobs = 1;
  ASSERT_TRUE(b.add(1, r, 7, true).ok());
  b.run();
  EXPECT_EQ(b.finish[1], FinishReason::kLength);
  EXPECT_TRUE(b.tokens[1].empty());
  EXPECT_EQ(b.prompt[1].size(), 39u);
  b.expect_alone(1);
}

TEST(Scheduler, EndIdAtTheLimitIsStop) {
  SchedConfig c = small();
  Bench probe(c);
  ASSERT_TRUE(probe.add(1, request(20, 5)).ok());
  probe.run();
  auto r = request(20, 5);
  r->ignore_eos = false;
  r->end_ids = {999, probe.tokens[1][4], 998};
  ASSERT_EQ(std::count(probe.tokens[1].begin(), probe.tokens[1].end() - 1, r->end_ids[1]), 0);
  Bench b(c);
  ASSERT_TRUE(b.add(1, r).ok());
  b.run();
  EXPECT_EQ(b.tokens[1], probe.tokens[1]);
  EXPECT_EQ(b.finish[1], FinishReason::kStop);
}

TEST(Scheduler, MinTokensBansEndIdsUntilReached) {
  Bench b(small());
  auto r = request(5, 6);
  r->ignore_eos = false;
  r->end_ids = {3, 5000};
  r->min_tokens = 2;
  ASSERT_TRUE(b.add(1, r).ok());
  ASSERT_TRUE(b.step());
  EXPECT_EQ(b.plan.rows[0].sampling.banned, std::vector<int32_t>{3}) << "5000 is outside the vocabulary";
  ASSERT_TRUE(b.step());
  EXPECT_EQ(b.plan.rows[0].sampling.banned, std::vector<int32_t>{3});
  ASSERT_TRUE(b.step());
  EXPECT_TRUE(b.plan.rows[0].sampling.banned.empty());
}

TEST(Scheduler, PromptLogprobsComeOnceInChunks) {
  SchedConfig c = small();
  c.chunk_tokens = 7;
  for (const int prompt : {1, 2, 7, 8, 40}) {
    Bench b(c);
    auto r = request(prompt, 3);
    r->prompt_logprobs = 2;
    ASSERT_TRUE(b.add(1, r, 7, true).ok());
    b.run();
    EXPECT_EQ(b.prompt[1].size(), static_cast<size_t>(prompt - 1));
    b.expect_alone(1);
  }
}

TEST(Scheduler, CancelFreesAtOnceOrAfterTheStepInFlight) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(40, 50), 1).ok());
  EXPECT_TRUE(b.sched().cancel(RowId(1))) << "waiting: gone at once";
  EXPECT_TRUE(b.sched().idle());
  EXPECT_FALSE(b.sched().cancel(RowId(1)));

  ASSERT_TRUE(b.add(2, request(40, 50), 2).ok());
  b.plan = b.sched().next(b.now()).value();
  EXPECT_TRUE(b.sched().cancel(RowId(2)));
  EXPECT_FALSE(b.sched().cancel(RowId(2)));
  EXPECT_EQ(b.sched().counts().pages_used, 3) << "the step still writes them";
  b.finish_step();
  EXPECT_EQ(b.sched().counts().pages_used, 0);
  EXPECT_TRUE(b.tokens[2].empty()) << "no event after cancel";
  EXPECT_FALSE(b.finish.contains(2));
  EXPECT_TRUE(b.sched().idle());

  ASSERT_TRUE(b.add(3, request(40, 50), 3).ok());
  ASSERT_TRUE(b.step());
  EXPECT_TRUE(b.sched().cancel(RowId(3)));
  EXPECT_EQ(b.sched().counts().pages_used, 0) << "between steps";
}

TEST(Scheduler, CancelDeepInALongPromptFreesAfterThatStep) {
  SchedConfig c = small();
  c.pages_total = 10000;
  c.context = 150000;
  c.chunk_tokens = 256;
  c.max_batch = 1;
  Bench b(c);
  ASSERT_TRUE(b.add(1, request(131072, 5)).ok());
  ASSERT_TRUE(b.add(2, request(10, 1)).ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(b.step());
  b.plan = b.sched().next(b.now()).value();
  b.sched().cancel(RowId(1));
  b.finish_step();
  EXPECT_EQ(b.sched().counts().pages_used, 0);
  ASSERT_TRUE(b.step());
  EXPECT_NE(b.planned(2), nullptr) << "the waiting row has the slot";
}

TEST(Scheduler, LostGroupRecomputesAndDrawsNothingTwice) {
  SchedConfig c = small();
  c.chunk_tokens = 32;
  Bench b(c);
  for (uint64_t id = 1; id <= 3; ++id) {
    auto r = request(40, 20);
    r->prompt_logprobs = 1;
    ASSERT_TRUE(b.add(id, r, id, true).ok());
  }
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(b.step());
  const auto before = b.tokens;
  ASSERT_FALSE(before.at(1).empty());
  b.plan = b.sched().next(b.now()).value();
  const StepPlan lost = b.plan;
  b.lose_group(2);
  // The answer of the dead epoch comes late and changes nothing.
  StepOutcome late;
  late.epoch = lost.epoch;
  late.step = lost.step;
  EXPECT_TRUE(b.sched().complete(late, b.now())->empty());
  ASSERT_TRUE(b.step());
  EXPECT_EQ(b.plan.epoch, Epoch(2));
  EXPECT_EQ(b.plan.rows[0].pos0, 0);
  EXPECT_TRUE(b.sched().complete(late, b.now())->empty());
  b.run();
  for (uint64_t id = 1; id <= 3; ++id) b.expect_alone(id);
}

TEST(Scheduler, CancelledInALostStepIsGone) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(40, 20)).ok());
  ASSERT_TRUE(b.sched().next(b.now()).has_value());
  b.sched().cancel(RowId(1));
  b.sched().group_lost();
  EXPECT_TRUE(b.sched().idle());
  EXPECT_EQ(b.sched().counts().pages_used, 0);
  b.sched().group_lost();  // losing it again while it forms is no event
  b.sched().group_formed(Epoch(2));
  EXPECT_FALSE(b.sched().next(b.now()).has_value());
}

TEST(Scheduler, FailedRowEndsAlone) {
  Bench b(small());
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(b.add(id, request(20, 10), id).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(b.step());
  b.worker().poison(RowId(2));
  b.run();
  EXPECT_EQ(b.finish[2], FinishReason::kError);
  EXPECT_EQ(b.tokens[2].size(), 4u);
  EXPECT_EQ(b.error[2].code, Errc::kInternal);
  EXPECT_THAT(b.error[2].message, HasSubstr("NaN"));
  b.expect_alone(1);
  b.expect_alone(3);
}

TEST(Scheduler, OutcomeThatDoesNotAnswerThePlanChangesNothing) {
  Bench b(small());
  ASSERT_TRUE(b.add(1, request(20, 10), 1).ok());
  ASSERT_TRUE(b.add(2, request(20, 10), 2).ok());
  b.plan = b.sched().next(b.now()).value();
  const StepOutcome right = b.worker().run(b.plan);
  const auto refused = [&](auto change) {
    StepOutcome wrong = right;
    change(wrong);
    auto events = b.sched().complete(wrong, b.now());
    ASSERT_FALSE(events.ok());
    EXPECT_EQ(events.error().code, Errc::kCorruptData);
    EXPECT_TRUE(b.sched().step_in_flight());
  };
  refused([](StepOutcome& o) { o.rows.pop_back(); });
  refused([](StepOutcome& o) { std::swap(o.rows[0], o.rows[1]); });
  refused([](StepOutcome& o) { o.rows[0].token = -1; });
  refused([](StepOutcome& o) { o.rows[1].token = 1000; });
  refused([](StepOutcome& o) { o.step = StepId(17); });
  refused([](StepOutcome& o) { o.epoch = Epoch(2); });
  auto events = b.sched().complete(right, b.now());
  ASSERT_TRUE(events.ok());
  EXPECT_EQ(events->size(), 2u);
}

TEST(Scheduler, FullQueueRefusesAWholeRequest) {
  SchedConfig c = small();
  c.max_batch = 2;
  c.queue_max = 2;
  Bench b(c);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(b.add(id, request(4, 4), id).ok());
  const auto r = request(4, 4);
  const std::vector<SequenceSpec> two{{RowId(4), r, 0, 0, false}, {RowId(5), r, 1, 0, false}};
  auto status = b.sched().add(two, b.now());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::kResourceExhausted);
  EXPECT_EQ(b.sched().counts().rows_waiting, 3) << "all choices or none";
  EXPECT_TRUE(b.add(4, request(4, 4)).ok());
  EXPECT_FALSE(b.add(5, request(4, 4)).ok());
  b.run();
  EXPECT_TRUE(b.add(6, request(4, 4)).ok());
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Bench b(small());
  const auto refused = [&](auto change, const char* param) {
    auto r = request(4, 4);
    change(*r);
    auto status = b.add(1, r);
    ASSERT_FALSE(status.ok()) << param;
    EXPECT_EQ(status.error().code, Errc::kInvalidArgument);
    EXPECT_EQ(status.error().param, param);
    EXPECT_EQ(status.error().message.find(std::string(param) + ": "), 0u) << status.error().message;
  };
  refused([](GenerateRequest& r) { r.prompt.clear(); }, "prompt");
  refused([](GenerateRequest& r) { r.prompt[2] = -1; }, "prompt");
  refused([](GenerateRequest& r) { r.prompt[2] = 1000; }, "prompt");
  refused([](GenerateRequest& r) { r.max_tokens = -1; }, "max_tokens");
  refused([](GenerateRequest& r) { r.sampling.logit_bias = {{1000, 1.0f}}; }, "logit_bias");
  refused([](GenerateRequest& r) { r.sampling.logit_bias = {{-1, 1.0f}}; }, "logit_bias");
  EXPECT_TRUE(b.sched().idle());
}

TEST(Scheduler, RefusesAConfigThatMakesNoSense) {
  const auto refused = [](auto change) {
    SchedConfig c = small();
    change(c);
    auto s = Scheduler::create(c);
    return !s.ok() && s.error().code == Errc::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](SchedConfig& c) { c.pages_total = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.page_tokens = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.max_batch = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.chunk_tokens = -1; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.chunk_floor = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.context = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.vocab = 0; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.queue_max = -1; }));
  EXPECT_TRUE(refused([](SchedConfig& c) { c.work.token = 0; }));
  EXPECT_FALSE(refused([](SchedConfig&) {}));
}

TEST(Scheduler, ProgressTellsWhereARowIs) {
  SchedConfig c = small();
  c.chunk_tokens = 16;
  Bench b(c);
  ASSERT_TRUE(b.add(1, request(40, 4)).ok());
  EXPECT_EQ(b.sched().progress(RowId(1))->state, RowState::kWaiting);
  ASSERT_TRUE(b.step());
  auto p = b.sched().progress(RowId(1)).value();
  EXPECT_EQ(p.state, RowState::kPrefill);
  EXPECT_EQ(p.resident_tokens, 16);
  EXPECT_EQ(p.prompt_tokens, 40);
  EXPECT_EQ(p.pages, 3);
  EXPECT_EQ(p.started, Time(1ms));
  EXPECT_FALSE(p.first_token.has_value());
  ASSERT_TRUE(b.step());
  ASSERT_TRUE(b.step());
  p = b.sched().rows().at(0);
  EXPECT_EQ(p.state, RowState::kDecode);
  EXPECT_EQ(p.output_tokens, 1);
  EXPECT_EQ(p.first_token, Time(3ms));
  EXPECT_EQ(b.sched().counts().rows_running, 1);
  b.run();
  EXPECT_FALSE(b.sched().progress(RowId(1)).has_value());
}

}  // namespace
}  // namespace lariat::sched_test
