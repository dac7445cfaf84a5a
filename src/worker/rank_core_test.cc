#include "worker/rank_core.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "worker/testing/toy_executor.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{20'000};
constexpr Epoch kEpoch{5};

StartRank start_message() {
  StartRank start;
  start.epoch = kEpoch;
  return start;
}

StepPlan plan_of(uint64_t step, std::vector<int32_t> tokens) {
  StepPlan plan;
  plan.epoch = kEpoch;
  plan.step = StepId(step);
  PlanRow& row = plan.rows.emplace_back();
  row.id = RowId(1);
  row.pages = {{PageId(0), PageId(1)}};
  row.n = static_cast<int32_t>(tokens.size());
  row.tokens = std::move(tokens);
  row.sample = true;
  row.wanted = LogitsWanted::kLast;
  row.sampling.temperature = 0;
  return plan;
}

// Blocks a toy step until the test lets it go.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    ASSERT_TRUE(changed_.wait_for(lock, kDeadline, [&] { return open_; }));
  }
  void wait_arrived(int n) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kDeadline, [&] { return arrived_ >= n; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

class RankCoreTest : public testing::Test {
 protected:
  ~RankCoreTest() override {
    gate_.open();
    if (core_) core_->stop(0);
    if (thread_.joinable()) thread_.join();
  }

  void begin(ExecutorFactory factory, milliseconds stall = kDeadline) {
    RankCore::Hooks hooks;
    hooks.send = [this](const FromRank& m) {
      const std::lock_guard lock(mutex_);
      sent_.push_back(m);
      changed_.notify_all();
    };
    hooks.on_stall = [this](const std::string& what, milliseconds) {
      const std::lock_guard lock(mutex_);
      stalls_.push_back(what);
      changed_.notify_all();
    };
    RankOptions options;
    options.stall_timeout = stall;
    core_ = std::make_unique<RankCore>(options, std::move(factory), hooks);
    thread_ = std::thread([this] {
      const int code = core_->run();
      const std::lock_guard lock(mutex_);
      exit_ = code;
      changed_.notify_all();
    });
  }
  void begin_loaded(const ToyOptions& options = {}, milliseconds stall = kDeadline) {
    begin(toy_factory(options), stall);
    core_->handle(start_message());
    ASSERT_TRUE(next<RankHello>());
  }
  // The next message of this kind; others are passed over.
  template <class M>
  std::optional<M> next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (at_ < sent_.size()) {
        if (auto* m = std::get_if<M>(&sent_[at_++])) return *m;
      }
      if (changed_.wait_for(lock, kDeadline) == std::cv_status::timeout) return std::nullopt;
    }
  }
  std::optional<int> exit_code() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return exit_.has_value(); });
    return exit_;
  }
  std::string stall() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return !stalls_.empty(); });
    return stalls_.empty() ? "" : stalls_[0];
  }

  Gate gate_;
  std::unique_ptr<RankCore> core_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FromRank> sent_;
  std::vector<std::string> stalls_;
  std::optional<int> exit_;
  size_t at_ = 0;
};

TEST_F(RankCoreTest, LoadsThenRunsStepsInOrderThenShutsDown) {
  begin([](const LoadProgressFn& progress) -> Result<std::unique_ptr<StepExecutor>> {
    for (int i = 0; i <= 10; ++i) progress(i / 10.0, "reading weights");
    return toy_factory({})(progress);
  });
  core_->handle(start_message());
  const auto progress = next<LoadProgress>();
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->what, "reading weights");
  const auto hello = next<RankHello>();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->epoch, kEpoch);
  EXPECT_EQ(hello->hello.page_tokens, 4);
  EXPECT_EQ(hello->hello.pid, getpid());
  core_->handle(plan_of(1, {3, 1, 4}));
  core_->handle(plan_of(2, {2, 7}));
  for (uint64_t step : {1, 2}) {
    const auto outcome = next<StepOutcome>();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->step, StepId(step));
    ASSERT_EQ(outcome->rows.size(), 1u);
    const auto want =
        ToyExecutor::generate(plan_of(0, step == 1 ? std::vector{3, 1, 4} : std::vector{2, 7}).rows[0].tokens,
                              256, 1, plan_of(0, {1}).rows[0].sampling, {});
    EXPECT_EQ(outcome->rows[0].token, want[0]);
  }
  core_->handle(ShutdownRank{kEpoch});
  EXPECT_EQ(exit_code(), 0);
}

TEST_F(RankCoreTest, ProgressNeverFallsAndEndsAtOne) {
  begin([](const LoadProgressFn& progress) -> Result<std::unique_ptr<StepExecutor>> {
    for (const double f : {-1.0, 0.5, 0.2, 0.7, 1.5}) progress(f, "x");
    return toy_factory({})(progress);
  });
  core_->handle(start_message());
  ASSERT_TRUE(next<RankHello>());
  double last = 0;
  const std::lock_guard lock(mutex_);
  for (const FromRank& m : sent_) {
    if (const auto* p = std::get_if<LoadProgress>(&m)) {
      EXPECT_GE(p->fraction, last);
      last = p->fraction;
    }
  }
  EXPECT_EQ(last, 1.0);
}

TEST_F(RankCoreTest, ALoadThatFailsSaysWhyAndEndsWithTheCodeOfItsKind) {
  begin([](const LoadProgressFn&) -> Result<std::unique_ptr<StepExecutor>> {
    return make_error(Errc::kResourceExhausted, "the K/V memory needs 4 GiB, 2 GiB are free", "--kv-memory");
  });
  core_->handle(start_message());
  const auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kLoad);
  EXPECT_EQ(failure->error.code, Errc::kResourceExhausted);
  EXPECT_EQ(failure->error.param, "--kv-memory");
  EXPECT_EQ(exit_code(), kExitResources);
}

TEST_F(RankCoreTest, ALoadThatThrowsIsAFailureNotACrash) {
  begin([](const LoadProgressFn&) -> Result<std::unique_ptr<StepExecutor>> { throw std::bad_alloc(); });
  core_->handle(start_message());
  const auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kLoad);
  EXPECT_EQ(exit_code(), kExitFailed);
}

TEST_F(RankCoreTest, MessagesOfAnotherEpochAreRefusedByName) {
  begin_loaded();
  StepPlan stale = plan_of(1, {1});
  stale.epoch = Epoch(4);
  core_->handle(stale);
  auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kRefused);
  EXPECT_EQ(failure->error.message, "a plan of epoch 4 (step 1) reached a rank of epoch 5");
  core_->handle(AbortStep{Epoch(6), StepId(9)});
  failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->error.message, "an abort of epoch 6 (step 9) reached a rank of epoch 5");
  core_->handle(ShutdownRank{Epoch(4)});
  ASSERT_TRUE(next<RankFailure>());
  core_->handle(plan_of(1, {1}));
  EXPECT_TRUE(next<StepOutcome>()) << "the rank lives on";
}

TEST_F(RankCoreTest, StartIsCheckedByName) {
  begin(toy_factory({}));
  core_->handle(plan_of(1, {1}));
  EXPECT_EQ(next<RankFailure>()->error.message, "a plan before the session's start");
  StartRank start = start_message();
  start.protocol_major = 2;
  core_->handle(start);
  EXPECT_EQ(next<RankFailure>()->error.message, "the head speaks control protocol 2.1, this rank 1.1");
  start = start_message();
  start.build_id = "0.2";
  core_->handle(start);
  EXPECT_EQ(next<RankFailure>()->error.message, "the head is build '0.2', this rank is build ''");
  start = start_message();
  start.world = 3;
  core_->handle(start);
  EXPECT_EQ(next<RankFailure>()->error.message,
            "the head takes this for rank 0 of 3; it was started as rank 0 of 1");
  core_->handle(start_message());
  EXPECT_TRUE(next<RankHello>());
  core_->handle(start_message());
  EXPECT_EQ(next<RankFailure>()->error.message, "a second start, of epoch 5, in the session of epoch 5");
}

TEST_F(RankCoreTest, StepsOutOfOrderAreRefused) {
  begin_loaded();
  core_->handle(plan_of(7, {1}));
  ASSERT_TRUE(next<StepOutcome>());
  core_->handle(plan_of(7, {1}));
  EXPECT_EQ(next<RankFailure>()->error.message, "step 7 after step 7");
}

TEST_F(RankCoreTest, APlanThatBreaksTheRulesIsRefusedAndTheNextOneRuns) {
  begin_loaded();
  StepPlan plan = plan_of(1, {1, 2, 3});
  plan.rows[0].pages[0][0] = PageId(64);  // of 0..63
  core_->handle(plan);
  const auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kRefused);
  EXPECT_EQ(failure->step, StepId(1));
  EXPECT_NE(failure->error.message.find("page 64"), std::string::npos) << failure->error.message;
  core_->handle(plan_of(2, {1, 2, 3}));
  EXPECT_TRUE(next<StepOutcome>());
}

TEST_F(RankCoreTest, AnAbortEndsTheRunningStepAtItsNextUnitAndTheRankGoesOn) {
  ToyOptions options;
  options.before_step = [this](const StepPlan& plan) {
    if (plan.step == StepId(1)) gate_.pass();
  };
  begin_loaded(options);
  core_->handle(plan_of(1, {1, 2, 3}));
  gate_.wait_arrived(1);
  core_->handle(AbortStep{kEpoch, StepId(1)});
  gate_.open();
  auto outcome = next<StepOutcome>();
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->rows.size(), 1u);
  EXPECT_TRUE(outcome->rows[0].failed);
  EXPECT_EQ(outcome->rows[0].error, Errc::kCancelled);
  core_->handle(plan_of(2, {1, 2, 3}));
  outcome = next<StepOutcome>();
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->rows[0].failed);
}

TEST_F(RankCoreTest, AnAbortReachesAStepThatStillWaitsAndNoOther) {
  ToyOptions options;
  std::atomic<int> entered{0};
  options.before_step = [&](const StepPlan& plan) {
    ++entered;
    if (plan.step == StepId(1)) gate_.pass();
  };
  begin_loaded(options);
  core_->handle(plan_of(1, {1}));
  core_->handle(plan_of(2, {1}));
  core_->handle(plan_of(3, {1}));
  gate_.wait_arrived(1);
  core_->handle(AbortStep{kEpoch, StepId(2)});
  core_->handle(AbortStep{kEpoch, StepId(99)});
  gate_.open();
  EXPECT_FALSE(next<StepOutcome>()->rows[0].failed);
  EXPECT_TRUE(next<StepOutcome>()->rows[0].failed);
  EXPECT_FALSE(next<StepOutcome>()->rows[0].failed);
  EXPECT_EQ(entered, 3) << "other ranks may wait for the executor's word on the aborted step";
}

TEST_F(RankCoreTest, AStepThatThrowsEndsTheRankWithItsReason) {
  ToyOptions options;
  options.before_step = [](const StepPlan&) { throw std::runtime_error("a broken kernel"); };
  begin_loaded(options);
  core_->handle(plan_of(1, {1}));
  const auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kFatal);
  EXPECT_EQ(failure->step, StepId(1));
  EXPECT_EQ(failure->error.message, "the step threw a broken kernel");
  EXPECT_EQ(exit_code(), kExitFailed);
}

TEST_F(RankCoreTest, AStepWithoutProgressIsAStallAndOneThatIsSlowIsNot) {
  ToyOptions options;
  options.per_token = milliseconds(200);
  options.before_step = [this](const StepPlan& plan) {
    if (plan.step == StepId(2)) gate_.pass();
  };
  begin_loaded(options, milliseconds(1000));
  core_->handle(plan_of(1, {1, 2, 3, 4, 5, 6}));  // 1200 ms, kicked every 200
  ASSERT_TRUE(next<StepOutcome>());
  {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(stalls_.empty());
  }
  core_->handle(plan_of(2, {1}));
  EXPECT_EQ(stall(), "step 2 with 1 rows");
  gate_.open();
}

TEST_F(RankCoreTest, AnIdleRankThatBreaksSaysSoAndEnds) {
  std::atomic<bool> broken{false};
  ToyOptions options;
  options.health = [&]() -> Status {
    if (!broken) return Ok{};
    return make_error(Errc::kUnavailable, "rank 2 is gone", "rank 2");
  };
  begin_loaded(options);
  core_->handle(plan_of(1, {1}));
  ASSERT_TRUE(next<StepOutcome>());
  broken = true;
  const auto failure = next<RankFailure>();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->kind, FailureKind::kFatal);
  EXPECT_EQ(failure->epoch, kEpoch);
  EXPECT_EQ(failure->step, StepId(0));
  EXPECT_EQ(failure->error.param, "rank 2");
  EXPECT_EQ(exit_code(), kExitFailed);
}

TEST_F(RankCoreTest, HeartbeatsNameTheRunningStep) {
  ToyOptions options;
  options.before_step = [this](const StepPlan&) { gate_.pass(); };
  begin_loaded(options);
  EXPECT_EQ(core_->heartbeat().step, StepId(0));
  core_->handle(plan_of(3, {1}));
  gate_.wait_arrived(1);
  EXPECT_EQ(core_->heartbeat().step, StepId(3));
  EXPECT_EQ(core_->heartbeat().epoch, kEpoch);
  const uint64_t kicks = core_->heartbeat().kicks;
  gate_.open();
  ASSERT_TRUE(next<StepOutcome>());
  EXPECT_GT(core_->heartbeat().kicks, kicks);
}

TEST_F(RankCoreTest, StopEndsAnIdleRankAndOneThatNeverStarted) {
  begin_loaded();
  core_->stop(9);
  EXPECT_EQ(exit_code(), 9);
}

}  // namespace
}  // namespace lariat
