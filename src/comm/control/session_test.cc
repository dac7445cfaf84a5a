// Head and rank over a real unix socket: order, flow, one session at a time, and every way it can end.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "comm/control/control_client.h"
#include "comm/control/control_server.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kDeadline{20'000};

StartRank start(Epoch epoch) {
  StartRank message;
  message.epoch = epoch;
  return message;
}

// What the handlers of one end saw.
template <class Message>
class Inbox {
 public:
  void add(Message m) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(m));
    changed_.notify_all();
  }
  void close(Error e) {
    const std::lock_guard lock(mutex_);
    closed_.push_back(std::move(e));
    changed_.notify_all();
  }
  bool wait_messages(size_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [&] { return messages_.size() >= n; });
  }
  bool wait_closed() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [&] { return !closed_.empty(); });
  }
  std::vector<Message> messages() {
    const std::lock_guard lock(mutex_);
    return messages_;
  }
  std::vector<Error> closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::vector<Error> closed_;
};

class ControlSession : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "the packaged gRPC is not instrumented for TSan";
#endif
#endif
    char name[] = "/tmp/lariat-control-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    address_ = "unix:" + dir_ + "/rank";
  }
  void TearDown() override {
    client_.reset();
    server_.reset();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  void listen() {
    auto server = ControlServer::listen(address_, {[this](ToRank m) { at_rank_.add(std::move(m)); },
                                                   [this](Error e) { at_rank_.close(std::move(e)); }});
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
  }
  Result<std::unique_ptr<ControlClient>> connect(Inbox<FromRank>& inbox, milliseconds timeout = kDeadline) {
    return ControlClient::connect({address_, timeout, {}},
                                  {[&inbox](FromRank m) { inbox.add(std::move(m)); },
                                   [&inbox](Error e) { inbox.close(std::move(e)); }});
  }
  void join() {
    listen();
    auto client = connect(at_head_);
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = std::move(client).value();
    ASSERT_TRUE(client_->send(start(Epoch(1))).ok());
    ASSERT_TRUE(at_rank_.wait_messages(1));
  }

  std::string dir_, address_;
  Inbox<ToRank> at_rank_;
  Inbox<FromRank> at_head_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlClient> client_;
};

TEST_F(ControlSession, MessagesArriveInOrderBothWays) {
  join();
  constexpr uint64_t kMessages = 500;
  for (uint64_t i = 1; i <= kMessages; ++i) {
    StepPlan plan;
    plan.step = StepId(i);
    plan.rows.resize(i % 7);
    ASSERT_TRUE(client_->send(plan).ok());
    ASSERT_TRUE(server_->send(Heartbeat{Epoch(1), StepId(i)}).ok());
  }
  ASSERT_TRUE(at_rank_.wait_messages(kMessages + 1));
  ASSERT_TRUE(at_head_.wait_messages(kMessages));
  const auto plans = at_rank_.messages();
  const auto beats = at_head_.messages();
  for (uint64_t i = 1; i <= kMessages; ++i) {
    EXPECT_EQ(std::get<StepPlan>(plans[i]).step, StepId(i));
    EXPECT_EQ(std::get<StepPlan>(plans[i]).rows.size(), i % 7);
    EXPECT_EQ(std::get<Heartbeat>(beats[i - 1]).step, StepId(i));
  }
}

TEST_F(ControlSession, LargeMessagesPass) {
  join();
  StepPlan plan;
  plan.rows.emplace_back().tokens.assign(4'000'000, 151'000);  // 12 MB, three times gRPC's own default limit
  ASSERT_TRUE(client_->send(plan).ok());
  ASSERT_TRUE(at_rank_.wait_messages(2));
  EXPECT_EQ(std::get<StepPlan>(at_rank_.messages()[1]), plan);
}

TEST_F(ControlSession, ASecondHeadIsRefusedWhileTheFirstIsServed) {
  join();
  Inbox<FromRank> second_inbox;
  auto second = connect(second_inbox);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second_inbox.wait_closed());
  EXPECT_NE(second_inbox.closed()[0].message.find("already has a head"), std::string::npos)
      << second_inbox.closed()[0].message;
  ASSERT_TRUE(server_->send(Heartbeat{}).ok());
  EXPECT_TRUE(at_head_.wait_messages(1));
}

TEST_F(ControlSession, TheRankSeesItsHeadGoAndServesTheNext) {
  join();
  client_->close();
  EXPECT_EQ(client_->send(AbortStep{}).error().code, Errc::kUnavailable);
  ASSERT_TRUE(at_rank_.wait_closed());
  EXPECT_TRUE(at_head_.closed().empty()) << "close() is not an event";
  Inbox<FromRank> next;
  auto client = connect(next);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->send(start(Epoch(2))).ok());
  ASSERT_TRUE(at_rank_.wait_messages(2));
  EXPECT_EQ(std::get<StartRank>(at_rank_.messages()[1]).epoch, Epoch(2));
}

TEST_F(ControlSession, TheHeadSeesItsRankGo) {
  join();
  ASSERT_TRUE(
      server_->send(RankFailure{Epoch(1), StepId(0), FailureKind::kFatal, make_error(Errc::kInternal, "x")})
          .ok());
  ASSERT_TRUE(server_->flush(kDeadline));
  server_->stop();
  ASSERT_TRUE(at_head_.wait_closed());
  EXPECT_EQ(at_head_.closed()[0].code, Errc::kUnavailable);
  EXPECT_TRUE(at_rank_.closed().empty()) << "stop() is not an event";
  ASSERT_EQ(at_head_.messages().size(), 1u) << "last words that were flushed arrive before the end";
}

TEST_F(ControlSession, AFinishedHeadIsHeardToTheEndAndLetsTheRankStopAtOnce) {
  join();
  for (uint64_t i = 1; i <= 50; ++i) {
    StepPlan plan;
    plan.step = StepId(i);
    ASSERT_TRUE(client_->send(plan).ok());
  }
  client_->finish();
  EXPECT_EQ(client_->send(AbortStep{}).error().code, Errc::kUnavailable);
  ASSERT_TRUE(at_rank_.wait_closed());
  EXPECT_EQ(at_rank_.messages().size(), 51u);
  const auto begin = std::chrono::steady_clock::now();
  server_->stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(400));
}

TEST_F(ControlSession, NobodyThereEndsAtTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const auto client = connect(at_head_, milliseconds(300));
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, Errc::kDeadlineExceeded);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ControlSession, ConnectingGivesUpWhenAsked) {
  int asked = 0;
  const auto client = ControlClient::connect({address_, kDeadline, [&] { return ++asked == 3; }}, {});
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, Errc::kCancelled);
  EXPECT_EQ(asked, 3);
}

TEST_F(ControlSession, AnAddressThatCannotBeBoundIsAnError) {
  const auto server = ControlServer::listen("unix:" + dir_ + "/no/such/folder/rank", {});
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code, Errc::kUnavailable);
}

TEST_F(ControlSession, WithoutASessionNothingIsSent) {
  listen();
  EXPECT_EQ(server_->send(Heartbeat{}).error().code, Errc::kUnavailable);
  EXPECT_FALSE(server_->flush(milliseconds(10)));
}

}  // namespace
}  // namespace lariat
