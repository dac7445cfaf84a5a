// The engine: one thread that drives scheduler and ranks, and gives what comes back to the askers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "head/engine.h"
#include "head/generation.h"
#include "head/worker_group.h"
#include "plan/row_strategy.h"
#include "sched/scheduler.h"

namespace lariat {

struct EngineOptions {
  std::string model;         // the id that state() shows
  SchedConfig sched;         // pages_total, page_tokens and vocab are the ranks' to say
  int32_t max_restarts = 3;  // losses in a row, without a completed step, that requests survive
  int32_t top_logprobs_max = 20;
  // Of several ranks: how prompts are attended, and what a plan's schedule hash is derived from.
  Strategy prefill = Strategy::kAuto;
  std::shared_ptr<const ScheduleConstants> schedule;
  std::chrono::milliseconds request_timeout{0};  // from submit to done; 0: none
  // Between attempts to form a group once max_restarts is spent, doubling.
  std::chrono::milliseconds retry_min{1'000};
  std::chrono::milliseconds retry_max{30'000};
};

// What a loss means:
// - Streams go on. The rows stay in the scheduler with every token drawn so far (the journal); under the new
// epoch
//   their K and V are recomputed and drawing goes on at the next output index. Nothing is drawn twice.
// - After max_restarts losses in a row without a completed step, or when the model cannot be loaded again,
// every
//   request ends in an error that names rank and cause, and forming is tried again at growing intervals.
// - A group that cannot be formed at first, for a reason that will not pass, fails the engine: see
// wait_ready(). While there is no group submit() refuses with kUnavailable and the reason.
class EngineImpl final : public Engine {
 public:
  // tokenizer: null for a model without one (no text, no stop strings); must outlive the engine.
  EngineImpl(EngineOptions options, std::unique_ptr<WorkerGroup> group, const Tokenizer* tokenizer);
  ~EngineImpl() override;  // stop(0)

  // Begins to form the group. Once.
  void start();
  // kDeadlineExceeded, and no other error, after `timeout`: it may still become ready. Otherwise why the
  // first group cannot be formed.
  Status wait_ready(std::chrono::milliseconds timeout);
  // Refuses new requests, lets those under way end for at most `drain`, ends the others with an error, and
  // the ranks. Returns when all that is done. Not from a sink.
  void stop(std::chrono::milliseconds drain);

  // sink runs on the engine's thread without any lock of the engine, and may call submit, cancel and state. A
  // cancel() that finds an event of its request being delivered by another thread waits for that to return:
  // hold no lock then that the sink takes.
  Status submit(GenerateRequest request, GenerationSink sink) override;
  bool cancel(const std::string& id) override;
  EngineState state() const override;

 private:
  struct Asked {
    std::string id;
    Generation generation;
    GenerationSink sink;
    Time submitted;
    bool dirty = false;      // in dirty_
    bool cancelled = false;  // or delivered to its end: nothing more goes to the sink
  };
  using Lock = std::unique_lock<std::mutex>;

  void poke();
  // Engine's thread, all of these with mutex_ held.
  void run();
  void wait_for_work(std::optional<Time> until);
  std::optional<Time> next_deadline() const;
  void handle(GroupEvent event, Time now);
  void on_formed(const GroupFormed& formed, Time now);
  void on_outcome(const StepOutcome& outcome, Time now);
  void on_lost(const GroupLost& lost, Time now);
  void form();
  void give_up(const Error& error);
  void expire(Time now);
  void schedule(Time now);
  void deliver(Lock& lock);

  // Any thread, with mutex_ held.
  Status admissible(const GenerateRequest& request) const;
  void cancel_row(RowId row);
  void end_rows(const Generation& generation);
  void fail(Asked& asked, const Error& error);
  void mark(Asked& asked);
  std::string reason() const;
  RequestState state_of(const Asked& asked, Time now) const;

  const EngineOptions options_;
  const std::unique_ptr<WorkerGroup> group_;
  const Tokenizer* const tokenizer_;

  // Where other threads leave word; a leaf lock.
  std::mutex inbox_mutex_;
  std::condition_variable inbox_changed_;
  std::deque<GroupEvent> inbox_;
  bool poked_ = false;

  mutable std::mutex mutex_;
  std::condition_variable state_changed_;  // for wait_ready
  std::condition_variable delivered_;      // for cancel
  std::optional<Scheduler> scheduler_;     // from the first hello on
  Hello hello_;
  std::map<std::string, std::shared_ptr<Asked>> asked_;
  std::map<RowId, std::shared_ptr<Asked>> by_row_;
  std::vector<std::shared_ptr<Asked>> dirty_;
  const Asked* delivering_ = nullptr;
  StepId step_;                // in flight
  std::set<RowId> step_rows_;  // of it, those somebody still waits for
  Epoch epoch_;
  bool ready_ = false;
  bool was_ready_ = false;
  std::optional<Error> failed_;  // never formed, and never will
  int32_t losses_ = 0;
  std::string last_loss_;
  std::optional<RecoveryState> recovery_;
  Time noticed_;              // of the last loss
  bool recomputing_ = false;  // requests wait for the first step since
  std::chrono::milliseconds retry_delay_{0};
  std::optional<Time> retry_at_;
  std::optional<Time> drain_until_;
  bool draining_ = false;
  uint64_t rows_made_ = 0;
  EngineState totals_;  // counters only
  std::thread thread_;
};

}  // namespace lariat
