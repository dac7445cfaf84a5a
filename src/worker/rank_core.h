// A rank's behaviour without its sockets: takes the head's messages, loads, runs steps in order, answers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "comm/control/messages.h"
#include "plan/validate.h"
#include "worker/stall_watchdog.h"
#include "worker/step_executor.h"

namespace lariat {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadConfig = 2;
inline constexpr int kExitResources = 3;
inline constexpr int kExitStalled = 70;

struct RankOptions {
  int32_t rank = 0;
  int32_t world = 1;
  std::string build_id;  // a head of another build is refused by name
  std::chrono::milliseconds stall_timeout{300'000};
};

// Thread-safe, but run() is called once, by the thread that computes.
class RankCore {
 public:
  struct Hooks {
    std::function<void(const FromRank&)> send;  // must not block
    // On the watchdog's thread, when loading or a step has made no progress for stall_timeout.
    std::function<void(const std::string& what, std::chrono::milliseconds silent)> on_stall;
  };
  RankCore(RankOptions options, ExecutorFactory factory, Hooks hooks);

  // From the session's thread. A message from another epoch, out of order, or a plan that breaks the rules is
  // answered with a RankFailure of kind kRefused that names what is wrong, and changes nothing.
  void handle(ToRank message);

  // Waits for StartRank, loads, runs steps until the head says shutdown, stop() is called or a failure ends
  // it. Returns the process's exit code.
  int run();

  // Makes run() return `code` before its next step, and the running step end at its next progress call.
  void stop(int code);

  Heartbeat heartbeat() const;  // rss_bytes is the caller's to fill in

 private:
  void take_start(const StartRank& start);
  void take_plan(StepPlan plan);
  void take_abort(const AbortStep& abort);
  void refuse(Epoch epoch, StepId step, Errc code, std::string message);
  // The next plan; none when run() has to return.
  std::optional<StepPlan> next_plan();
  // Until there is one; false when run() has to return. Looks after the executor's health meanwhile.
  bool wait_for_plan(std::unique_lock<std::mutex>& lock);
  int load();
  // False when the rank has to end.
  bool execute(const StepPlan& plan);
  Result<StepOutcome> run_guarded(const StepPlan& plan);
  void report_load(double fraction, std::string_view what);

  const RankOptions options_;
  const ExecutorFactory factory_;
  const Hooks hooks_;
  std::unique_ptr<StepExecutor> executor_;  // compute thread's, as the next
  std::optional<PlanValidator> validator_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<StartRank> start_;
  bool taking_plans_ = false;  // loaded, and not ending
  std::deque<StepPlan> queue_;
  StepId last_queued_;
  StepId running_;  // 0: none
  std::optional<int> exit_code_;

  std::set<StepId> aborted_;  // of the queue

  std::atomic<bool> aborting_{false};  // the running step
  std::atomic<uint64_t> kicks_{0};
  std::atomic<bool> stopping_{false};
  double reported_fraction_ = -1;  // compute thread's
  std::chrono::steady_clock::time_point reported_at_;
  StallWatchdog watchdog_;
};

}  // namespace lariat
