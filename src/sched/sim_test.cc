// The scheduler under thousands of random workloads: requests come, are cancelled, fail; groups are lost;
// steps stay in flight while other things happen. Whatever happens, each row's answer is the one it gives
// alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "sched/scheduler.h"
#include "sched/test_worker.h"

namespace lariat {
namespace {

using sched_test::alone;
using sched_test::TestWorker;

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : rng_(seed),
        config_(random_config()),
        sched_(Scheduler::create(config_).value()),
        worker_(config_, Epoch(1)) {
    sched_.group_formed(epoch_);
  }

  void run() {
    const int64_t calls = uniform(50, 400);
    for (int64_t i = 0; i < calls && !testing::Test::HasFailure(); ++i) anything();
    drain();
    check_answers();
  }

  const std::vector<StepPlan>& plans() const { return plans_; }
  int64_t losses() const { return static_cast<int64_t>(epoch_.get()) - 1; }
  SchedCounts counts() const { return sched_.counts(); }
  int64_t finished() const { return static_cast<int64_t>(heard_.size()); }

 private:
  struct Heard {
    SequenceSpec spec;
    std::vector<int32_t> tokens;
    std::vector<float> prompt;
    FinishReason finish = FinishReason::kNone;
    bool cancelled = false;
  };

  int64_t uniform(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return uniform(1, n) == 1; }
  template <typename T>
  T any_of(std::vector<T> values) {
    return values[static_cast<size_t>(uniform(0, static_cast<int64_t>(values.size()) - 1))];
  }

  SchedConfig random_config() {
    SchedConfig c;
    c.pages_total = static_cast<int32_t>(uniform(1, 24));
    c.page_tokens = any_of<int32_t>({1, 2, 3, 4, 16});
    c.max_batch = static_cast<int32_t>(uniform(1, 8));
    c.chunk_tokens = any_of<int32_t>({0, 1, 3, 7, 32});
    c.chunk_floor = any_of<int32_t>({1, 4, 64});
    c.context = static_cast<int32_t>(uniform(1, 500));
    c.queue_max = static_cast<int32_t>(uniform(0, 30));
    c.vocab = static_cast<int32_t>(uniform(20, 200));
    c.work = {.token = 10, .depth = any_of<double>({0, 0.1, 3}), .window = any_of<int64_t>({0, 8})};
    return c;
  }

  std::shared_ptr<GenerateRequest> random_request() {
    auto r = std::make_shared<GenerateRequest>();
    const int64_t limit = sched_.tokens_max();
    const int64_t prompt = one_in(10) ? limit + uniform(0, 2) : uniform(1, std::max<int64_t>(1, limit / 2));
    for (int64_t i = 0; i < prompt; ++i)
      r->prompt.push_back(static_cast<int32_t>(uniform(0, config_.vocab - 1)));
    r->max_tokens = static_cast<int32_t>(one_in(10) ? 0 : uniform(1, one_in(3) ? 400 : 20));
    r->min_tokens = static_cast<int32_t>(one_in(3) ? uniform(0, 10) : 0);
    r->ignore_eos = one_in(4);
    for (int64_t i = uniform(0, 3); i > 0; --i)
      r->end_ids.push_back(static_cast<int32_t>(uniform(0, config_.vocab - 1)));
    if (one_in(3)) r->sampling.repetition_penalty = 1.1f;
    if (one_in(3)) r->sampling.frequency_penalty = 0.5f;
    r->n = static_cast<int32_t>(one_in(4) ? uniform(2, 4) : 1);
    if (one_in(3)) r->prompt_logprobs = static_cast<int32_t>(uniform(0, 2));
    return r;
  }

  void add() {
    const auto r = random_request();
    std::vector<SequenceSpec> specs;
    for (int32_t choice = 0; choice < r->n; ++choice)
      specs.push_back({RowId(++last_id_), r, static_cast<uint32_t>(choice), rng_() % 1000,
                       choice == 0 && r->prompt_logprobs >= 0});
    const auto known = static_cast<int64_t>(sched_.rows().size());
    const bool fits = static_cast<int64_t>(r->prompt.size()) <= sched_.tokens_max();
    const bool room = known == 0 || known + r->n <= config_.max_batch + config_.queue_max;
    const Status status = sched_.add(specs, now_);
    ASSERT_EQ(status.ok(), fits && room);
    if (!status.ok()) {
      ASSERT_EQ(status.error().code, fits ? Errc::kResourceExhausted : Errc::kInvalidArgument);
      return;
    }
    for (const SequenceSpec& spec : specs) {
      worker_.add(spec);
      heard_[spec.id].spec = spec;
    }
  }

  RowId any_row() { return RowId(static_cast<uint64_t>(uniform(1, static_cast<int64_t>(last_id_) + 1))); }

  void cancel() {
    const RowId id = any_row();
    const auto it = heard_.find(id);
    const bool live = it != heard_.end() && it->second.finish == FinishReason::kNone && !it->second.cancelled;
    ASSERT_EQ(sched_.cancel(id), live) << "row " << id.get();
    if (live) it->second.cancelled = true;
  }

  void plan() {
    const bool expected = formed_ && !sched_.step_in_flight() && !sched_.idle();
    auto p = sched_.next(now_);
    ASSERT_EQ(p.has_value(), expected);
    if (!p) return;
    check_plan(*p);
    plans_.push_back(std::move(*p));
  }

  // Every decoding row is in the step, the step is bounded, and no prompt waits longer than promised.
  void check_plan(const StepPlan& p) {
    std::map<RowId, const PlanRow*> in_plan;
    int64_t tokens = 0;
    for (const PlanRow& row : p.rows) {
      in_plan[row.id] = &row;
      tokens += row.n;
    }
    ASSERT_TRUE(config_.chunk_tokens == 0 || tokens <= sched_.step_tokens_max());
    std::map<RowId, int> unserved;
    for (const RowProgress& row : sched_.rows()) {
      ASSERT_TRUE(row.state != RowState::kDecode || in_plan.contains(row.id)) << "row " << row.id.get();
      if (row.state != RowState::kPrefill || in_plan.contains(row.id)) continue;
      unserved[row.id] = unserved_[row.id] + 1;
      ASSERT_LE(unserved[row.id], static_cast<int>(Scheduler::kPatience) + config_.max_batch);
    }
    unserved_ = std::move(unserved);
  }

  void complete() {
    if (!sched_.step_in_flight()) return;
    const StepOutcome outcome = worker_.run(plans_.back());
    auto events = sched_.complete(outcome, now_);
    ASSERT_TRUE(events.ok()) << events.error().message;
    size_t place = 0;
    for (const SequenceEvent& e : *events) {
      while (place < outcome.rows.size() && outcome.rows[place].id != e.id) ++place;
      ASSERT_LT(place, outcome.rows.size()) << "events are not in the plan's order";
      hear(e);
    }
  }

  void hear(const SequenceEvent& e) {
    Heard& h = heard_.at(e.id);
    ASSERT_FALSE(h.cancelled) << "event of row " << e.id.get() << " after its cancel";
    ASSERT_EQ(h.finish, FinishReason::kNone) << "event of row " << e.id.get() << " after its last";
    ASSERT_TRUE(e.prompt.empty() || h.tokens.empty());
    for (const PositionLogprobs& p : e.prompt) h.prompt.push_back(p.logprob);
    if (e.token) {
      ASSERT_EQ(e.output_index, h.tokens.size());
      h.tokens.push_back(*e.token);
    }
    h.finish = e.finish;
  }

  void lose_group() {
    sched_.group_lost();
    formed_ = false;
    unserved_.clear();
  }

  void form_group() {
    if (formed_) return;
    epoch_ = Epoch(epoch_.get() + 1);
    worker_ = TestWorker(config_, epoch_);
    for (const auto& [id, h] : heard_) worker_.add(h.spec);
    sched_.group_formed(epoch_);
    formed_ = true;
  }

  void anything() {
    now_ += std::chrono::milliseconds(1);
    const int64_t what = uniform(1, 100);
    if (what <= 15)
      add();
    else if (what <= 20)
      cancel();
    else if (what <= 22)
      lose_group();
    else if (what <= 30)
      form_group();
    else if (what <= 31)
      worker_.poison(any_row());
    else if (what <= 65)
      plan();
    else
      complete();
    check_books();
  }

  void check_books() const {
    const SchedCounts c = sched_.counts();
    int64_t pages = 0, running = 0, waiting = 0;
    for (const RowProgress& row : sched_.rows()) {
      pages += row.pages;
      (row.state == RowState::kWaiting ? waiting : running) += 1;
      ASSERT_TRUE(row.state != RowState::kWaiting || row.pages == 0);
      ASSERT_LE(row.resident_tokens, int64_t{row.pages} * config_.page_tokens);
    }
    ASSERT_EQ(c.pages_used, pages);
    ASSERT_LE(c.pages_used, c.pages_total);
    ASSERT_EQ(c.rows_running, running);
    ASSERT_EQ(c.rows_waiting, waiting);
    ASSERT_LE(c.rows_running, config_.max_batch);
  }

  void drain() {
    form_group();
    complete();
    for (int64_t step = 0; !sched_.idle() && !testing::Test::HasFailure(); ++step) {
      ASSERT_LT(step, 200000) << "does not end";
      now_ += std::chrono::milliseconds(1);
      plan();
      complete();
      check_books();
    }
    EXPECT_EQ(sched_.counts().pages_used, 0);
  }

  void check_answers() const {
    for (const auto& [id, h] : heard_) {
      SCOPED_TRACE(testing::Message() << "row " << id.get());
      const auto want = alone(h.spec, sched_.tokens_max(), config_.vocab);
      if (!h.cancelled && h.finish != FinishReason::kError) {
        ASSERT_EQ(h.tokens, want.tokens);
        ASSERT_EQ(h.prompt, want.prompt);
        ASSERT_EQ(h.finish, want.finish);
        continue;
      }
      ASSERT_LE(h.tokens.size(), want.tokens.size());
      ASSERT_TRUE(std::equal(h.tokens.begin(), h.tokens.end(), want.tokens.begin()));
      ASSERT_LE(h.prompt.size(), want.prompt.size());
      ASSERT_TRUE(std::equal(h.prompt.begin(), h.prompt.end(), want.prompt.begin()));
    }
  }

  std::mt19937_64 rng_;
  SchedConfig config_;
  Scheduler sched_;
  Epoch epoch_{1};
  TestWorker worker_;
  bool formed_ = true;
  Time now_{};
  uint64_t last_id_ = 0;
  std::map<RowId, Heard> heard_;
  std::map<RowId, int> unserved_;  // steps since a prompt in the batch last got tokens
  std::vector<StepPlan> plans_;
};

// LARIAT_SIM_SEED=n replays one; LARIAT_SIM_COUNT=n runs the first n.
std::vector<uint64_t> seeds(uint64_t count) {
  if (const char* one = std::getenv("LARIAT_SIM_SEED")) return {std::strtoull(one, nullptr, 10)};
  if (const char* n = std::getenv("LARIAT_SIM_COUNT")) count = std::strtoull(n, nullptr, 10);
  std::vector<uint64_t> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = i + 1;
  return all;
}

TEST(Simulation, EveryRowEndsWithTheAnswerItGivesAlone) {
  int64_t preemptions = 0, losses = 0, rows = 0;
  for (const uint64_t seed : seeds(500)) {
    SCOPED_TRACE(testing::Message() << "LARIAT_SIM_SEED=" << seed);
    Simulation sim(seed);
    sim.run();
    if (HasFailure()) return;
    preemptions += sim.counts().preemptions_total;
    losses += sim.losses();
    rows += sim.finished();
  }
  RecordProperty("rows", std::to_string(rows));
  RecordProperty("preemptions", std::to_string(preemptions));
  RecordProperty("losses", std::to_string(losses));
  if (std::getenv("LARIAT_SIM_SEED") || std::getenv("LARIAT_SIM_COUNT")) return;
  // The workloads reach what they are for.
  EXPECT_GT(rows, 5000);
  EXPECT_GT(preemptions, 1000);
  EXPECT_GT(losses, 1000);
}

TEST(Simulation, SameEventsGiveTheSamePlans) {
  for (const uint64_t seed : seeds(100)) {
    SCOPED_TRACE(testing::Message() << "LARIAT_SIM_SEED=" << seed);
    Simulation a(seed), b(seed);
    a.run();
    b.run();
    ASSERT_EQ(a.plans().size(), b.plans().size());
    ASSERT_TRUE(a.plans() == b.plans());
  }
}

}  // namespace
}  // namespace lariat
