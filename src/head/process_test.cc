// Ranks as real processes: killed, stopped, stalled, failing to load, orphaned. Streams go on, nothing is
// left over.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "head/child_process.h"
#include "head/testing/test_engine.h"
#include "head/testing/test_processes.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;

const std::string kRankProgram = LARIAT_TEST_BIN_DIR "/head_test_rank";
const std::string kHeadProgram = LARIAT_TEST_BIN_DIR "/head_test_head";
constexpr int32_t kVocab = 256;

// Whether the process, child or not, has ended within the time.
bool gone_within(pid_t pid, milliseconds timeout) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd p{fd, POLLIN, 0};
  const bool gone = poll(&p, 1, static_cast<int>(timeout.count())) == 1;
  close(fd);
  return gone;
}

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the packaged gRPC is not instrumented for TSan";
#endif
#endif
    options_.program = kRankProgram;
    options_.engine.sched.context = 4096;
    options_.engine.retry_min = milliseconds(100);
    options_.args = [](Epoch) { return std::vector<std::string>{"token_us=2000"}; };
  }
  void TearDown() override {
    engine_.reset();
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left, running or unreaped";
    EXPECT_EQ(errno, ECHILD);
  }

  void start() {
    auto engine = make_process_engine(options_);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
    engine_->start();
  }
  void start_ready() {
    start();
    const Status ready = engine_->wait_ready(kTestDeadline);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
  }
  pid_t rank_pid(size_t rank = 0) { return static_cast<pid_t>(engine_->state().ranks.at(rank).pid); }
  bool eventually(const std::function<bool(const EngineState&)>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + kTestDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      if (holds(engine_->state())) return true;
      poll(nullptr, 0, 5);
    }
    return false;
  }
  // Sends the signal to the rank in the middle of a stream, which must come out as if nothing had happened.
  void disturb(int signal) {
    const GenerateRequest r = request_of("a", prompt_of(30, 1), 60);
    Collected got;
    ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
    ASSERT_TRUE(got.wait_tokens(10));
    const pid_t before = rank_pid();
    ASSERT_EQ(kill(before, signal), 0);
    ASSERT_TRUE(got.wait_done());
    EXPECT_EQ(got.choice().tokens, expected(r, kVocab)) << got.choice().error.message;
    EXPECT_NE(rank_pid(), before);
    const EngineState s = engine_->state();
    EXPECT_EQ(s.epoch, 2u);
    EXPECT_EQ(s.worker_restarts_total, 1);
    EXPECT_TRUE(gone_within(before, milliseconds(0)));
  }

  ProcessEngineOptions options_;
  std::unique_ptr<EngineImpl> engine_;
};

TEST_F(ProcessTest, AnswersAndLeavesNothingBehind) {
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(30, 1), 20);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, kVocab));
  ASSERT_TRUE(eventually([](const EngineState& s) { return s.ranks[0].rss_bytes > 1 << 20; }));
  EXPECT_EQ(engine_->state().ranks[0].device, "toy");
  const pid_t pid = rank_pid();
  engine_->stop(kTestDeadline);
  EXPECT_TRUE(gone_within(pid, milliseconds(0)));
}

TEST_F(ProcessTest, SeveralRanksAnswerAsOneAndOneLossIsTheGroups) {
  options_.group.world = 3;
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(30, 1), 60);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_tokens(10));
  ASSERT_EQ(kill(rank_pid(1), SIGKILL), 0);
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, kVocab));
  EXPECT_EQ(engine_->state().epoch, 2u);
}

TEST_F(ProcessTest, AKilledRankIsReplacedAndTheStreamGoesOn) {
  start_ready();
  disturb(SIGKILL);
}

TEST_F(ProcessTest, AStoppedRankIsKilledAfterTheHeartbeatTimeoutAndTheStreamGoesOn) {
  options_.group.heartbeat_timeout = milliseconds(1500);
  start_ready();
  disturb(SIGSTOP);
}

TEST_F(ProcessTest, ARankKilledWhileIdleIsNoticedWithoutARequest) {
  start_ready();
  ASSERT_EQ(kill(rank_pid(), SIGKILL), 0);
  EXPECT_TRUE(eventually([](const EngineState& s) { return s.ready && s.epoch == 2; }));
}

TEST_F(ProcessTest, AKillInTheMiddleOfAPrefillLosesNothing) {
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(200, 1), 5);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(eventually([](const EngineState& s) { return s.kv_pages_used > 0; }));
  ASSERT_EQ(kill(rank_pid(), SIGKILL), 0);
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, kVocab));
}

TEST_F(ProcessTest, WithRestartsSpentRequestsEndNamingRankAndCauseAndTheNextGroupServes) {
  options_.engine.max_restarts = 0;
  start_ready();
  Collected got;
  ASSERT_TRUE(engine_->submit(request_of("a", prompt_of(30, 1), 2000), got.sink()).ok());
  ASSERT_TRUE(got.wait_tokens(5));
  ASSERT_EQ(kill(rank_pid(), SIGKILL), 0);
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().finish, FinishReason::kError);
  EXPECT_NE(got.choice().error.message.find("rank 0"), std::string::npos) << got.choice().error.message;
  EXPECT_NE(got.choice().error.message.find("signal 9 (Killed)"), std::string::npos)
      << got.choice().error.message;
  Collected refused;
  const Status s = engine_->submit(request_of("b", prompt_of(3, 1), 3), refused.sink());
  if (!s.ok()) {
    EXPECT_EQ(s.error().code, Errc::kUnavailable);
  }
  ASSERT_TRUE(eventually([](const EngineState& state) { return state.ready; }));
  const GenerateRequest r = request_of("c", prompt_of(7, 1), 7);
  Collected next;
  ASSERT_TRUE(engine_->submit(r, next.sink()).ok());
  ASSERT_TRUE(next.wait_done());
  EXPECT_EQ(next.choice().tokens, expected(r, kVocab));
}

TEST_F(ProcessTest, AStallLeavesEveryThreadsStackAndExitCode70AndTheStreamGoesOn) {
  options_.args = [](Epoch epoch) {
    std::vector<std::string> args{"stall_ms=1000"};
    if (epoch == Epoch(1)) args.emplace_back("spin_at_pos=12");
    return args;
  };
  testing::internal::CaptureStderr();
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(5, 1), 20);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  const bool done = got.wait_done();
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(done) << log;
  EXPECT_EQ(got.choice().tokens, expected(r, kVocab));
  EXPECT_NE(log.find("spin_forever_in_a_named_function"), std::string::npos) << log;
  EXPECT_NE(log.find("test_rank_main.cc:"), std::string::npos) << log;
  EXPECT_NE(log.find("exit code 70"), std::string::npos) << log;
}

TEST_F(ProcessTest, ARankThatThrowsSaysWhatAndTheStreamGoesOn) {
  options_.args = [](Epoch epoch) {
    return epoch == Epoch(1) ? std::vector<std::string>{"throw_at_pos=12"} : std::vector<std::string>{};
  };
  start_ready();
  const GenerateRequest r = request_of("a", prompt_of(5, 1), 20);
  Collected got;
  ASSERT_TRUE(engine_->submit(r, got.sink()).ok());
  ASSERT_TRUE(got.wait_done());
  EXPECT_EQ(got.choice().tokens, expected(r, kVocab)) << got.choice().error.message;
  const EngineState s = engine_->state();
  EXPECT_EQ(s.epoch, 2u);
  ASSERT_TRUE(s.last_recovery);
  EXPECT_NE(s.last_recovery->cause.find("a kernel that gave up"), std::string::npos)
      << s.last_recovery->cause;
  EXPECT_NE(s.last_recovery->cause.find("exit code 1"), std::string::npos) << s.last_recovery->cause;
}

TEST_F(ProcessTest, AModelThatCannotBeLoadedFailsTheEngineWithTheReasonAtOnce) {
  options_.args = [](Epoch) {
    return std::vector<std::string>{"load_error=model.safetensors: header of 2^63 bytes"};
  };
  start();
  const Status ready = engine_->wait_ready(kTestDeadline);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, Errc::kCorruptData);
  EXPECT_NE(ready.error().message.find("model.safetensors: header of 2^63 bytes"), std::string::npos)
      << ready.error().message;
  EXPECT_EQ(engine_->state().epoch, 1u) << "tried again";
  EXPECT_FALSE(engine_->state().ready);
}

TEST_F(ProcessTest, ARankThatEndsBeforeItListensIsNamedWithItsExitCode) {
  options_.args = [](Epoch) { return std::vector<std::string>{"exit_early=7"}; };
  options_.engine.max_restarts = 2;
  start();
  const Status ready = engine_->wait_ready(kTestDeadline);
  ASSERT_FALSE(ready.ok());
  EXPECT_NE(ready.error().message.find("rank 0"), std::string::npos) << ready.error().message;
  EXPECT_NE(ready.error().message.find("exit code 7"), std::string::npos) << ready.error().message;
  EXPECT_EQ(engine_->state().epoch, 3u);
}

TEST_F(ProcessTest, ARankThatRefusesItsCommandLineIsNotTriedAgain) {
  for (const char* args : {"exit_early=2", "exit_early=3"}) {
    options_.args = [args](Epoch) { return std::vector<std::string>{args}; };
    options_.engine.max_restarts = 5;
    start();
    const Status ready = engine_->wait_ready(kTestDeadline);
    ASSERT_FALSE(ready.ok());
    EXPECT_NE(ready.error().message.find(std::string("exit code ") + args[11]), std::string::npos)
        << ready.error().message;
    EXPECT_EQ(engine_->state().epoch, 1u) << args << " was tried again";
    engine_.reset();
  }
}

TEST_F(ProcessTest, AProgramThatDoesNotExistIsAnError) {
  options_.program = "/no/such/program";
  options_.engine.max_restarts = 0;
  start();
  const Status ready = engine_->wait_ready(kTestDeadline);
  ASSERT_FALSE(ready.ok());
  EXPECT_NE(ready.error().message.find("/no/such/program"), std::string::npos) << ready.error().message;
}

TEST_F(ProcessTest, LoadingIsSeenAndRequestsMeanwhileAreRefusedWithIt) {
  options_.args = [](Epoch) { return std::vector<std::string>{"load_ms=1500"}; };
  start();
  ASSERT_TRUE(
      eventually([](const EngineState& s) { return s.reason.find("reading the toy") != std::string::npos; }));
  Collected none;
  const Status s = engine_->submit(request_of("a", prompt_of(3, 1), 3), none.sink());
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().code, Errc::kUnavailable);
  EXPECT_NE(s.error().message.find("rank 0"), std::string::npos) << s.error().message;
  ASSERT_TRUE(engine_->wait_ready(kTestDeadline).ok());
}

TEST_F(ProcessTest, StoppingWhileRanksLoadIsQuick) {
  options_.args = [](Epoch) { return std::vector<std::string>{"load_ms=60000"}; };
  start();
  ASSERT_TRUE(
      eventually([](const EngineState& s) { return s.reason.find("reading the toy") != std::string::npos; }));
  const auto begin = std::chrono::steady_clock::now();
  engine_->stop(milliseconds(0));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

// A head process of its own, killed: its rank must be gone within three seconds.
class OrphanTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the packaged gRPC is not instrumented for TSan";
#endif
#endif
  }
  void kill_head(const std::string& rank_args, bool stop_rank) {
    std::FILE* head =
        popen(fmt::format("exec {} {} {} 2>/dev/null", kHeadProgram, kRankProgram, rank_args).c_str(), "r");
    ASSERT_NE(head, nullptr);
    int head_pid = 0, rank_pid = 0;
    const bool started = std::fscanf(head, "%d %d", &head_pid, &rank_pid) == 2;
    if (started) {
      if (stop_rank) kill(rank_pid, SIGSTOP);
      kill(head_pid, SIGKILL);
    }
    pclose(head);
    ASSERT_TRUE(started);
    EXPECT_TRUE(gone_within(rank_pid, milliseconds(3000)));
  }
};

TEST_F(OrphanTest, ARankGoesWithItsHead) {
  kill_head("", false);
}

TEST_F(OrphanTest, ALoadingRankGoesWithItsHead) {
  kill_head("load_ms=60000", false);
}

TEST_F(OrphanTest, AStoppedRankGoesWithItsHead) {
  kill_head("", true);
}

TEST(ChildProcessTest, SaysHowItEnded) {
  auto exits = ChildProcess::spawn("/bin/sh", {"sh", "-c", "exit 5"});
  ASSERT_TRUE(exits.ok());
  EXPECT_EQ((*exits)->wait(kTestDeadline)->text(), "exit code 5");
  auto sleeps = ChildProcess::spawn("/bin/sh", {"sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(sleeps.ok());
  EXPECT_FALSE((*sleeps)->wait(milliseconds(20)));
  EXPECT_EQ((*sleeps)->kill().text(), "signal 9 (Killed)");
  EXPECT_FALSE(ChildProcess::spawn("/no/such/program", {"x"}).ok());
}

TEST(ChildProcessTest, InheritsNoDescriptorAndNoBlockedSignal) {
  const int open_here = dup(0);  // without O_CLOEXEC
  auto child =
      ChildProcess::spawn("/bin/sh", {"sh", "-c", fmt::format("test ! -e /proc/self/fd/{}", open_here)});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ((*child)->wait(kTestDeadline)->text(), "exit code 0");
  close(open_here);
}

}  // namespace
}  // namespace lariat
