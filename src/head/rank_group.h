// A WorkerGroup over rank links: the hello's agreement, one outcome of many, heartbeats, and losing as a
// whole.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/control/messages.h"
#include "head/rank_link.h"
#include "head/worker_group.h"

namespace lariat {

struct RankGroupOptions {
  int32_t world = 1;
  std::string build_id;  // told to the ranks; another build refuses
  std::string host = "localhost";
  std::chrono::milliseconds start_timeout{30'000};     // from start to the first sign of life
  std::chrono::milliseconds heartbeat_timeout{3'000};  // silent for longer: lost
  std::chrono::milliseconds load_timeout{120'000};     // loading without progress for longer: lost
  // A step without progress for longer: lost. Past the rank's own stall timeout, which leaves a stack dump.
  std::chrono::milliseconds step_timeout{310'000};
  // A rank that is leaving on its own may take this long until it is killed, so that its exit code tells why:
  // reading debug information for the stacks of one that is stuck takes a second or two.
  std::chrono::milliseconds exit_grace{3'000};
};

class RankGroup final : public WorkerGroup {
 public:
  RankGroup(RankGroupOptions options, RankLinkFactory factory);
  ~RankGroup() override;

  void set_on_event(std::function<void(GroupEvent)> on_event) override;
  void form(Epoch epoch) override;
  void send(const StepPlan& plan) override;
  void abort(Epoch epoch, StepId step) override;
  void condemn(Error cause, bool permanent) override;
  void stop(std::chrono::milliseconds grace) override;
  std::vector<RankState> ranks() const override;
  std::string forming() const override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kIdle, kFormRequested, kForming, kFormed };
  struct RankInfo {
    std::unique_ptr<RankLink> link;  // supervisor's to make and end; others send under the lock
    int64_t pid = 0;
    std::optional<Hello> hello;
    double load_fraction = 0;
    std::string load_what = "starting";
    uint64_t kicks = 0;
    int64_t rss_bytes = 0;
    int64_t comm_wait_us = 0;
    bool heard = false;
    bool lost = false;
    Clock::time_point last_heard;     // or started
    Clock::time_point last_progress;  // loading or computing
    std::optional<StepOutcome> outcome;
  };
  struct Loss {
    int32_t rank = 0;
    Error cause;
    bool permanent = false;
    bool leaving = false;  // the rank is on its way out by itself
    Clock::time_point noticed{};
  };

  // Supervisor's thread.
  void supervise();
  void start_ranks(std::unique_lock<std::mutex>& lock);
  void report_loss(std::unique_lock<std::mutex>& lock);
  std::vector<RankEnding> end_ranks(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds grace,
                                    int32_t only);
  void check_deadlines(Clock::time_point now);

  // Links' threads.
  void on_message(int32_t rank, Epoch epoch, FromRank message);
  void on_down(int32_t rank, Epoch epoch, Error why);
  // With the lock held.
  void take(int32_t rank, const RankHello& message);
  void take(int32_t rank, const LoadProgress& progress);
  void take(int32_t rank, const Heartbeat& beat);
  void take(int32_t rank, StepOutcome& outcome);
  void take(int32_t rank, const RankFailure& failure);
  void agree_if_complete();  // forms the group when every rank has started and said hello
  void lose(Loss loss);
  // The rank that a failure is about: the one that its error names as lost, if that is another.
  int32_t culprit(int32_t witness, const Error& error) const;
  bool alive() const { return phase_ == Phase::kForming || phase_ == Phase::kFormed; }
  RankInfo& info(int32_t rank) { return ranks_[static_cast<size_t>(rank)]; }

  const RankGroupOptions options_;
  const RankLinkFactory factory_;
  std::function<void(GroupEvent)> on_event_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kIdle;
  Epoch epoch_;
  std::vector<RankInfo> ranks_;
  std::optional<Loss> loss_;
  StepId in_flight_;  // 0: none
  bool stop_ = false;
  std::chrono::milliseconds stop_grace_{0};
  Clock::time_point last_tick_;
  int32_t restarts_ = 0;
  std::vector<int64_t> comm_wait_total_us_;  // by rank, over all epochs
  std::thread supervisor_;
};

}  // namespace lariat
