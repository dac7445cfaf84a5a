// The group's rules against scripted ranks: agreement, merging, silence, foreign epochs.
#include "head/rank_group.h"

#include <gtest/gtest.h>

#include "head/hello_agreement.h"
#include "head/outcome_merge.h"
#include "head/testing/test_engine.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{20'000};

// A rank that does what the test says.
class ScriptedLink final : public RankLink {
 public:
  explicit ScriptedLink(RankLinkEvents e) : events(std::move(e)) {}
  Status send(const ToRank& message) override {
    const std::lock_guard lock(mutex);
    sent.push_back(message);
    return Ok{};
  }
  RankEnding end(milliseconds) override { return {"the end of its script", exit_code}; }
  int64_t pid() const override { return 0; }

  RankLinkEvents events;
  std::optional<int> exit_code;
  std::mutex mutex;
  std::vector<ToRank> sent;
};

class RankGroupTest : public testing::Test {
 protected:
  void begin(int32_t world) {
    options_.world = world;
    links_.resize(static_cast<size_t>(world));
    group_ = std::make_unique<RankGroup>(options_, [this](int32_t rank, Epoch, RankLinkEvents events) {
      auto link = std::make_unique<ScriptedLink>(std::move(events));
      const std::lock_guard lock(mutex_);
      links_[static_cast<size_t>(rank)] = link.get();
      ++made_;
      changed_.notify_all();
      return Result<std::unique_ptr<RankLink>>(std::move(link));
    });
    group_->set_on_event([this](GroupEvent e) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(e));
      changed_.notify_all();
    });
    group_->form(Epoch(1));
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kDeadline, [&] { return made_ == world; }));
  }
  void hello(int32_t rank, const std::function<void(Hello&)>& change = {}) {
    RankHello m;
    m.epoch = Epoch(1);
    m.hello.rank = rank;
    m.hello.world = options_.world;
    m.hello.kv_type = "f32";
    m.hello.page_tokens = 16;
    m.hello.pages_total = 10;
    m.hello.vocab = 100;
    if (change) change(m.hello);
    say(rank, m);
  }
  void say(int32_t rank, FromRank m) { links_[static_cast<size_t>(rank)]->events.on_message(std::move(m)); }
  template <class E>
  std::optional<E> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kDeadline, [&] { return at_ < events_.size(); })) return std::nullopt;
    const auto* e = std::get_if<E>(&events_[at_++]);
    return e != nullptr ? std::optional<E>(*e) : std::nullopt;
  }
  std::string lost_because() {
    const auto lost = next<GroupLost>();
    return lost ? lost->cause.message : "(no loss)";
  }
  static StepOutcome outcome(uint64_t step, int32_t token) {
    StepOutcome o;
    o.epoch = Epoch(1);
    o.step = StepId(step);
    RowOutcome& row = o.rows.emplace_back();
    row.id = RowId(1);
    row.token = token;
    return o;
  }
  static StepPlan plan(uint64_t step) {
    StepPlan p;
    p.epoch = Epoch(1);
    p.step = StepId(step);
    return p;
  }

  RankGroupOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ScriptedLink*> links_;
  int made_ = 0;
  std::vector<GroupEvent> events_;
  size_t at_ = 0;
  std::unique_ptr<RankGroup> group_;
};

TEST_F(RankGroupTest, FormsWhenAllHaveSaidHelloWithTheLeastOfThePages) {
  begin(2);
  hello(0);
  EXPECT_NE(group_->forming().find("rank 1"), std::string::npos) << group_->forming();
  hello(1, [](Hello& h) { h.pages_total = 7; });
  const auto formed = next<GroupFormed>();
  ASSERT_TRUE(formed);
  EXPECT_EQ(formed->hello.pages_total, 7);
  EXPECT_EQ(group_->forming(), "");
}

TEST_F(RankGroupTest, RanksThatDifferAreRefusedByName) {
  begin(2);
  hello(0);
  hello(1, [](Hello& h) { h.kv_type = "bf16"; });
  const auto lost = next<GroupLost>();
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->permanent);
  EXPECT_NE(lost->cause.message.find("kv type differs: rank 0 has f32, rank 1 has bf16"), std::string::npos)
      << lost->cause.message;
}

TEST_F(RankGroupTest, OutcomesOfAllRanksMakeOne) {
  begin(2);
  hello(0);
  hello(1);
  ASSERT_TRUE(next<GroupFormed>());
  group_->send(plan(1));
  say(1, outcome(1, 42));
  say(0, outcome(1, -1));
  const auto merged = next<GroupOutcome>();
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->outcome.rows[0].token, 42);
}

TEST_F(RankGroupTest, ASilentRankIsLost) {
  options_.heartbeat_timeout = milliseconds(200);
  begin(2);
  hello(0);
  hello(1);
  ASSERT_TRUE(next<GroupFormed>());
  std::atomic<bool> stop{false};
  std::thread rank0([&] {
    while (!stop) {
      say(0, Heartbeat{Epoch(1), StepId(), 0, 0});
      be_slow(milliseconds(10));
    }
  });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kDeadline, [&] { return at_ < events_.size(); });
  lock.unlock();
  stop = true;
  rank0.join();
  const auto lost = next<GroupLost>();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 1);
  EXPECT_NE(lost->cause.message.find("no heartbeat for"), std::string::npos) << lost->cause.message;
  EXPECT_NE(lost->cause.message.find("it ended with the end of its script"), std::string::npos);
}

TEST_F(RankGroupTest, ARankThatNeverSpeaksIsLost) {
  options_.start_timeout = milliseconds(100);
  begin(1);
  EXPECT_NE(lost_because().find("no sign of life after its start"), std::string::npos);
}

TEST_F(RankGroupTest, LoadingWithoutProgressIsLostAndWithProgressIsNot) {
  options_.load_timeout = milliseconds(300);
  begin(1);
  const auto begin_time = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) {
    say(0, LoadProgress{Epoch(1), i / 10.0, "weights"});
    be_slow(milliseconds(50));
  }
  EXPECT_NE(lost_because().find("loading (weights) made no progress for"), std::string::npos);
  EXPECT_GT(std::chrono::steady_clock::now() - begin_time, milliseconds(500));
}

TEST_F(RankGroupTest, AStepWithoutProgressIsLost) {
  options_.step_timeout = milliseconds(100);
  begin(1);
  hello(0);
  ASSERT_TRUE(next<GroupFormed>());
  group_->send(plan(3));
  EXPECT_NE(lost_because().find("step 3 made no progress for"), std::string::npos);
}

TEST_F(RankGroupTest, AMessageOfAnotherEpochIsRefusedByName) {
  begin(1);
  hello(0);
  ASSERT_TRUE(next<GroupFormed>());
  StepOutcome stale = outcome(1, 1);
  stale.epoch = Epoch(9);
  say(0, stale);
  EXPECT_NE(lost_because().find("sent a message of epoch 9 in epoch 1"), std::string::npos);
}

TEST_F(RankGroupTest, AnAnswerToAnotherStepIsALoss) {
  begin(1);
  hello(0);
  ASSERT_TRUE(next<GroupFormed>());
  group_->send(plan(3));
  say(0, outcome(2, 1));
  EXPECT_NE(lost_because().find("answered step 2, in flight is 3"), std::string::npos);
}

TEST_F(RankGroupTest, ARefusalOfTheStartWillComeAgain) {
  begin(1);
  say(0, RankFailure{Epoch(1), StepId(), FailureKind::kRefused,
                     make_error(Errc::kInvalidArgument, "the head is build 'a', this rank is build 'b'")});
  const auto lost = next<GroupLost>();
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->permanent);
}

TEST_F(RankGroupTest, WhatASurvivorReportsIsTheLossOfTheRankItNames) {
  begin(3);
  for (int32_t r = 0; r < 3; ++r) hello(r);
  ASSERT_TRUE(next<GroupFormed>());
  const auto before = std::chrono::steady_clock::now();
  say(0, RankFailure{Epoch(1), StepId(4), FailureKind::kFatal,
                     make_error(Errc::kUnavailable, "rank 2 is gone: connection closed", "rank 2")});
  const auto lost = next<GroupLost>();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_EQ(lost->cause.message,
            "rank 2: rank 0 reports: rank 2 is gone: connection closed; it ended with the end of its script");
  EXPECT_GE(lost->noticed, before);
  EXPECT_LE(lost->noticed, std::chrono::steady_clock::now());
}

TEST_F(RankGroupTest, WhatIsNotALossOfAnotherRankIsTheReporters) {
  for (const Error& error :
       {make_error(Errc::kInternal, "threw", "rank 1"), make_error(Errc::kUnavailable, "gone", "rank 7"),
        make_error(Errc::kUnavailable, "gone")}) {
    at_ = 0;
    events_.clear();
    made_ = 0;
    group_.reset();
    begin(2);
    say(0, RankFailure{Epoch(1), StepId(), FailureKind::kFatal, error});
    const auto lost = next<GroupLost>();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->rank, 0) << error.message;
  }
}

TEST_F(RankGroupTest, WaitsAreSummedOverStepsByRank) {
  begin(2);
  hello(0);
  hello(1);
  ASSERT_TRUE(next<GroupFormed>());
  for (uint64_t step = 1; step <= 3; ++step) {
    group_->send(plan(step));
    for (int32_t r = 0; r < 2; ++r) {
      StepOutcome o = outcome(step, -1);
      o.comm_wait_us = static_cast<int64_t>(step) * (r + 1);
      say(r, o);
    }
    ASSERT_TRUE(next<GroupOutcome>());
  }
  const auto ranks = group_->ranks();
  EXPECT_EQ(ranks[0].comm_wait_us, 3);
  EXPECT_EQ(ranks[0].comm_wait_total_us, 6);
  EXPECT_EQ(ranks[1].comm_wait_us, 6);
  EXPECT_EQ(ranks[1].comm_wait_total_us, 12);
}

TEST_F(RankGroupTest, ALossIsToldOnceAndThenTheGroupFormsAgain) {
  begin(2);
  links_[0]->events.on_down(make_error(Errc::kUnavailable, "first"));
  links_[1]->events.on_down(make_error(Errc::kUnavailable, "second"));
  const auto lost = next<GroupLost>();
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 0);
  EXPECT_FALSE(lost->permanent);
  group_->form(Epoch(2));
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, kDeadline, [&] { return made_ == 4; }));
  EXPECT_EQ(events_.size(), 1u);
}

// A command line or memory that does not suffice heals by no restart; a crash while loading may, and so may
// anything that ends a rank which was ready.
TEST_F(RankGroupTest, ExitCodesOfBadUsageAndResourcesBeforeTheHelloArePermanent) {
  for (const auto& [code, ready, permanent] : {std::tuple{2, false, true},
                                               {3, false, true},
                                               {1, false, false},
                                               {70, false, false},
                                               {2, true, false}}) {
    SCOPED_TRACE(fmt::format("exit code {}, {}", code, ready ? "ready" : "loading"));
    events_.clear();
    at_ = 0;
    made_ = 0;
    begin(2);
    if (ready) hello(1);
    links_[1]->exit_code = code;
    links_[1]->events.on_down(make_error(Errc::kUnavailable, "went away"));
    const auto lost = next<GroupLost>();
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->rank, 1);
    EXPECT_EQ(lost->permanent, permanent);
    group_.reset();
  }
}

TEST(MergeOutcomes, AFailureOnOneRankIsTheRows) {
  StepOutcome a, b;
  a.rows.resize(2);
  b.rows.resize(2);
  a.rows[0].id = b.rows[0].id = RowId(1);
  a.rows[1].id = b.rows[1].id = RowId(2);
  a.rows[0].token = 5;
  b.rows[0].failed = true;
  b.rows[0].error = Errc::kResourceExhausted;
  b.rows[0].message = "no memory";
  b.rows[1].token = 6;
  b.rows[1].token_logprobs.logprob = -1;
  b.comm_wait_us = 7;
  const std::vector<StepOutcome> both{a, b};
  const auto merged = merge_outcomes(both);
  ASSERT_TRUE(merged.ok());
  EXPECT_TRUE(merged->rows[0].failed);
  EXPECT_EQ(merged->rows[0].message, "no memory");
  EXPECT_EQ(merged->rows[1].token, 6);
  EXPECT_EQ(merged->rows[1].token_logprobs.logprob, -1);
  EXPECT_EQ(merged->comm_wait_us, 7);
}

TEST(MergeOutcomes, DisagreementIsCorrupt) {
  StepOutcome a, b;
  a.rows.resize(1);
  b.rows.resize(1);
  a.rows[0].token = 5;
  b.rows[0].token = 6;
  std::vector<StepOutcome> both{a, b};
  EXPECT_EQ(merge_outcomes(both).error().code, Errc::kCorruptData);
  both[1].rows[0].token = 5;
  EXPECT_TRUE(merge_outcomes(both).ok());
  both[1].rows[0].id = RowId(3);
  EXPECT_EQ(merge_outcomes(both).error().code, Errc::kCorruptData);
  both[1].rows.clear();
  EXPECT_EQ(merge_outcomes(both).error().code, Errc::kCorruptData);
}

// Positions are judged by the ranks that computed them; together they are in order, and none is there twice.
TEST(MergeOutcomes, LogitsOfAllRanksInOrder) {
  std::vector<StepOutcome> ranks(3);
  for (StepOutcome& o : ranks) o.rows.resize(1);
  ranks[0].rows[0].logits = {{0, {0.5f}}, {3, {3.5f}}};
  ranks[2].rows[0].logits = {{1, {1.5f}}, {4, {4.5f}}};
  const auto merged = merge_outcomes(ranks);
  ASSERT_TRUE(merged.ok());
  const std::vector<PositionLogits> want{{0, {0.5f}}, {1, {1.5f}}, {3, {3.5f}}, {4, {4.5f}}};
  EXPECT_EQ(merged->rows[0].logits, want);
  ranks[1].rows[0].logits = {{3, {3.5f}}};
  EXPECT_EQ(merge_outcomes(ranks).error().code, Errc::kCorruptData);
}

TEST(HelloAgreement, EachFieldIsNamed) {
  Hello base;
  base.world = 2;
  const auto differs = [&](const std::function<void(Hello&)>& change) {
    std::vector<Hello> hellos{base, base};
    hellos[1].rank = 1;
    change(hellos[1]);
    const auto agreed = agree_on_hello(hellos);
    return agreed.ok() ? std::string("agreed") : agreed.error().message;
  };
  EXPECT_EQ(differs([](Hello&) {}), "agreed");
  EXPECT_EQ(differs([](Hello& h) { h.pages_total = 5; }), "agreed");
  EXPECT_EQ(differs([](Hello& h) { h.device = "gpu"; }), "agreed");
  const auto names = [&](const std::string& field, const std::function<void(Hello&)>& change) {
    EXPECT_EQ(differs(change).rfind(field + " differs", 0), 0u) << differs(change);
  };
  names("protocol", [](Hello& h) { h.protocol_major = 9; });
  names("build", [](Hello& h) { h.build_id = "x"; });
  names("weights hash", [](Hello& h) { h.weights_hash[1] = 1; });
  names("kv type", [](Hello& h) { h.kv_type = "f16"; });
  names("store pattern", [](Hello& h) { h.store_pattern = {0, 1}; });
  names("compute pattern", [](Hello& h) { h.compute_pattern = {1}; });
  names("interleave", [](Hello& h) { h.interleave = 4; });
  names("ring block", [](Hello& h) { h.ring_block = 4; });
  names("page tokens", [](Hello& h) { h.page_tokens = 4; });
  names("cache groups", [](Hello& h) { h.cache_groups = 4; });
  names("vocabulary", [](Hello& h) { h.vocab = 4; });
  names("world", [](Hello& h) { h.world = 4; });
  names("rank", [](Hello& h) { h.rank = 0; });
}

}  // namespace
}  // namespace lariat
