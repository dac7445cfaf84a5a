// A scheduler with a TestWorker behind it, stepped by hand: what the unit tests share.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "sched/scheduler.h"
#include "sched/test_worker.h"

namespace lariat::sched_test {

inline SchedConfig small() {
  SchedConfig c;
  c.pages_total = 16;
  c.page_tokens = 16;
  c.max_batch = 8;
  c.context = 1024;
  c.vocab = 1000;
  c.queue_max = 100;
  return c;
}

inline std::shared_ptr<GenerateRequest> request(int prompt, int max_tokens) {
  auto r = std::make_shared<GenerateRequest>();
  for (int i = 0; i < prompt; ++i) r->prompt.push_back(i % 50);
  r->max_tokens = max_tokens;
  r->ignore_eos = true;
  return r;
}

// A scheduler with its worker; time goes one millisecond a step.
class Bench {
 public:
  explicit Bench(const SchedConfig& config)
      : config_(config), sched_(Scheduler::create(config).value()), worker_(config, Epoch(1)) {
    sched_.group_formed(Epoch(1));
  }

  Status add(uint64_t id, std::shared_ptr<GenerateRequest> r, uint64_t seed = 7,
             bool prompt_logprobs = false) {
    const SequenceSpec spec{RowId(id), std::move(r), 0, seed, prompt_logprobs};
    auto status = sched_.add({&spec, 1}, now_);
    if (status.ok()) {
      worker_.add(spec);
      specs_[spec.id] = spec;
    }
    return status;
  }

  // One step; its plan is kept in `plan`. False if there was nothing to do.
  bool step() {
    now_ += std::chrono::milliseconds(1);
    auto p = sched_.next(now_);
    if (!p) return false;
    plan = *p;
    finish_step();
    return true;
  }

  void finish_step() {
    auto events = sched_.complete(worker_.run(plan), now_);
    ASSERT_TRUE(events.ok()) << events.error().message;
    for (const SequenceEvent& e : *events) take(e);
  }

  void run(int steps_max = 100000) {
    int steps = 0;
    while (step()) ASSERT_LT(++steps, steps_max) << "does not end";
    EXPECT_TRUE(sched_.idle());
    EXPECT_EQ(sched_.counts().pages_used, 0);
  }

  // The row's tokens are those it makes alone.
  void expect_alone(uint64_t id) {
    const auto want = sched_test::alone(specs_.at(RowId(id)), sched_.tokens_max(), config_.vocab);
    EXPECT_EQ(tokens[id], want.tokens);
    EXPECT_EQ(finish[id], want.finish);
    EXPECT_EQ(prompt[id], want.prompt);
  }

  void lose_group(uint64_t epoch) {
    sched_.group_lost();
    worker_ = TestWorker(config_, Epoch(epoch));
    for (const auto& [id, spec] : specs_) worker_.add(spec);
    sched_.group_formed(Epoch(epoch));
  }

  const PlanRow* planned(uint64_t id) const {
    for (const PlanRow& row : plan.rows)
      if (row.id == RowId(id)) return &row;
    return nullptr;
  }

  Scheduler& sched() { return sched_; }
  TestWorker& worker() { return worker_; }
  Time now() const { return now_; }

  StepPlan plan;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, std::vector<float>> prompt;
  std::map<uint64_t, FinishReason> finish;
  std::map<uint64_t, Error> error;

 private:
  void take(const SequenceEvent& e) {
    const uint64_t id = e.id.get();
    EXPECT_FALSE(finish.contains(id)) << "event after the last one of row " << id;
    for (const PositionLogprobs& p : e.prompt) prompt[id].push_back(p.logprob);
    if (e.token) {
      EXPECT_EQ(e.output_index, tokens[id].size());
      tokens[id].push_back(*e.token);
    }
    if (e.finish == FinishReason::kNone) return;
    finish[id] = e.finish;
    error[id] = e.error;
    tokens[id];
    prompt[id];
  }

  SchedConfig config_;
  Scheduler sched_;
  TestWorker worker_;
  Time now_{};
  std::map<RowId, SequenceSpec> specs_;
};

}  // namespace lariat::sched_test
