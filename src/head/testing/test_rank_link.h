// Ranks as threads of the test: a RankCore around the toy model, reached without a socket or a process.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "head/rank_link.h"
#include "worker/rank_core.h"
#include "worker/testing/toy_executor.h"

namespace lariat {

struct TestRankOptions {
  ExecutorFactory factory;
  int32_t world = 1;
  bool beats = true;
  std::chrono::milliseconds stall_timeout{60'000};
};

class TestRankLink final : public RankLink {
 public:
  TestRankLink(int32_t rank, TestRankOptions options, RankLinkEvents events)
      : options_(std::move(options)), events_(std::move(events)) {
    RankOptions rank_options;
    rank_options.rank = rank;
    rank_options.world = options_.world;
    rank_options.stall_timeout = options_.stall_timeout;
    core_ = std::make_unique<RankCore>(
        rank_options, options_.factory,
        RankCore::Hooks{[this](const FromRank& m) { post(m); },
                        [this](const std::string& what, auto) {
                          post(make_error(Errc::kUnavailable, "stalled in " + what));
                        }});
    mail_ = std::thread([this] { carry(); });
    compute_ = std::thread([this] {
      const int code = core_->run();
      post(make_error(Errc::kUnavailable, fmt::format("the rank ended with code {}", code)));
    });
  }
  ~TestRankLink() override { end(std::chrono::milliseconds(0)); }

  // As if the process had died: no more messages, and the head hears of it.
  void vanish() {
    post(make_error(Errc::kUnavailable, "the rank vanished"));
    core_->stop(kExitFailed);
  }

  Status send(const ToRank& message) override {
    const std::lock_guard lock(mutex_);
    inbound_.push_back(message);
    changed_.notify_all();
    return Ok{};
  }
  RankEnding end(std::chrono::milliseconds) override {
    core_->stop(0);
    if (compute_.joinable()) compute_.join();
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (mail_.joinable()) mail_.join();
    return {};
  }
  int64_t pid() const override { return 0; }

 private:
  void post(FromRank message) {
    const std::lock_guard lock(mutex_);
    if (down_) return;
    outbound_.push_back(std::move(message));
    changed_.notify_all();
  }
  void post(Error down) {
    const std::lock_guard lock(mutex_);
    if (!down_) down_ = std::move(down);
    changed_.notify_all();
  }

  void carry() {
    std::unique_lock lock(mutex_);
    auto next_beat = std::chrono::steady_clock::now();
    bool told = false;
    while (!stop_) {
      changed_.wait_for(lock, std::chrono::milliseconds(20),
                        [&] { return stop_ || !inbound_.empty() || !outbound_.empty() || (down_ && !told); });
      auto in = std::exchange(inbound_, {});
      auto out = std::exchange(outbound_, {});
      const bool tell = down_ && !std::exchange(told, down_.has_value());
      lock.unlock();
      for (ToRank& m : in) core_->handle(std::move(m));
      for (FromRank& m : out) events_.on_message(std::move(m));
      const auto now = std::chrono::steady_clock::now();
      if (options_.beats && !told && now >= next_beat) {
        next_beat = now + std::chrono::milliseconds(20);
        if (const Heartbeat beat = core_->heartbeat(); beat.epoch != Epoch()) events_.on_message(beat);
      }
      if (tell) events_.on_down(*down_);
      lock.lock();
    }
  }

  const TestRankOptions options_;
  const RankLinkEvents events_;
  std::unique_ptr<RankCore> core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ToRank> inbound_;
  std::deque<FromRank> outbound_;
  std::optional<Error> down_;
  bool stop_ = false;
  std::thread mail_;
  std::thread compute_;
};

}  // namespace lariat
