// The engine's thread; what other threads call is in engine_requests.cc.
#include "head/engine_impl.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "head/hello_agreement.h"
#include "plan/schedule_hash.h"

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kRanksGrace{2'000};

Time now_time() {
  return std::chrono::steady_clock::now();
}

int64_t ms_since(Time then) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(now_time() - then).count();
}

}  // namespace

EngineImpl::EngineImpl(EngineOptions options, std::unique_ptr<WorkerGroup> group, const Tokenizer* tokenizer)
    : options_(std::move(options)),
      group_(std::move(group)),
      tokenizer_(tokenizer),
      retry_delay_(options_.retry_min) {
  group_->set_on_event([this](GroupEvent event) {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(std::move(event));
    inbox_changed_.notify_one();
  });
}

EngineImpl::~EngineImpl() {
  stop(std::chrono::milliseconds(0));
}

void EngineImpl::start() {
  LARIAT_CHECK(!thread_.joinable(), "started twice");
  thread_ = std::thread([this] { run(); });
}

void EngineImpl::stop(std::chrono::milliseconds drain) {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    drain_until_ = now_time() + drain;
  }
  poke();
  if (thread_.joinable()) thread_.join();
  group_->stop(kRanksGrace);
}

void EngineImpl::poke() {
  const std::lock_guard lock(inbox_mutex_);
  poked_ = true;
  inbox_changed_.notify_one();
}

void EngineImpl::run() {
  Lock lock(mutex_);
  form();
  while (!draining_ || !asked_.empty()) {
    const auto until = next_deadline();
    lock.unlock();
    wait_for_work(until);
    std::deque<GroupEvent> events;
    {
      const std::lock_guard inbox_lock(inbox_mutex_);
      events.swap(inbox_);
      poked_ = false;
    }
    lock.lock();
    const Time now = now_time();
    for (GroupEvent& event : events) handle(std::move(event), now);
    if (retry_at_ && now >= *retry_at_) form();
    expire(now);
    schedule(now);
    deliver(lock);
  }
  ready_ = false;
}

void EngineImpl::wait_for_work(std::optional<Time> until) {
  Lock lock(inbox_mutex_);
  const auto word = [&] { return poked_ || !inbox_.empty(); };
  if (until) {
    inbox_changed_.wait_until(lock, *until, word);
  } else {
    inbox_changed_.wait(lock, word);
  }
}

std::optional<Time> EngineImpl::next_deadline() const {
  std::optional<Time> next = retry_at_;
  const auto sooner = [&](Time t) { next = next ? std::min(*next, t) : t; };
  if (draining_) sooner(*drain_until_);
  if (options_.request_timeout.count() > 0) {
    for (const auto& [id, asked] : asked_) sooner(asked->submitted + options_.request_timeout);
  }
  return next;
}

void EngineImpl::handle(GroupEvent event, Time now) {
  if (const auto* formed = std::get_if<GroupFormed>(&event)) return on_formed(*formed, now);
  if (const auto* outcome = std::get_if<GroupOutcome>(&event)) return on_outcome(outcome->outcome, now);
  on_lost(std::get<GroupLost>(event), now);
}

void EngineImpl::on_formed(const GroupFormed& formed, Time) {
  if (!scheduler_) {
    SchedConfig config = options_.sched;
    config.pages_total = formed.hello.pages_total;
    config.page_tokens = formed.hello.page_tokens;
    config.vocab = formed.hello.vocab;
    auto scheduler = Scheduler::create(config);
    if (!scheduler.ok()) return group_->condemn(scheduler.error(), /*permanent=*/true);
    scheduler_.emplace(std::move(scheduler).value());
    hello_ = formed.hello;
  } else if (const Status same = same_group(hello_, formed.hello); !same.ok()) {
    return group_->condemn(same.error(), /*permanent=*/true);
  }
  scheduler_->group_formed(formed.epoch);
  ready_ = was_ready_ = true;
  if (recovery_) recovery_->formed_ms = ms_since(noticed_);
  recomputing_ = recomputing_ && !asked_.empty();
  log_info("epoch {}: ready, {} pages of {} tokens", formed.epoch.get(), hello_.pages_total,
           hello_.page_tokens);
  state_changed_.notify_all();
}

void EngineImpl::on_outcome(const StepOutcome& outcome, Time now) {
  if (!scheduler_ || !ready_ || !scheduler_->step_in_flight()) return;
  auto events = scheduler_->complete(outcome, now);
  if (!events.ok()) return group_->condemn(events.error(), /*permanent=*/false);
  step_rows_.clear();
  if (std::exchange(recomputing_, false)) {
    recovery_->recomputed_ms = ms_since(noticed_);
    log_info(
        "epoch {}: recomputing; since the loss was noticed: {} ms to the end of the old ranks, "
        "{} ms to the new group, {} ms to the end of the first chunk",
        epoch_.get(), recovery_->ended_ms, *recovery_->formed_ms, *recovery_->recomputed_ms);
  }
  losses_ = 0;
  retry_delay_ = options_.retry_min;
  for (SequenceEvent& event : *events) {
    const auto it = by_row_.find(event.id);
    LARIAT_CHECK(it != by_row_.end(), "news of row {}, which nobody asked for", event.id.get());
    const std::shared_ptr<Asked> asked = it->second;
    const RowId row = event.id;
    if (event.token) ++totals_.generation_tokens_total;
    const bool finished = event.finish != FinishReason::kNone;
    const bool stopped = asked->generation.take(std::move(event));
    if (stopped) scheduler_->cancel(row);
    if (stopped || finished) by_row_.erase(row);
    mark(*asked);
  }
}

void EngineImpl::on_lost(const GroupLost& lost, Time now) {
  ready_ = false;
  ++losses_;
  last_loss_ = lost.cause.message;
  noticed_ = lost.noticed;
  recovery_ = RecoveryState{.epoch = lost.epoch.get(),
                            .rank = lost.rank,
                            .cause = lost.cause.message,
                            .ended_ms = ms_since(noticed_),
                            .formed_ms = {},
                            .recomputed_ms = {}};
  recomputing_ = !asked_.empty();
  step_rows_.clear();
  if (scheduler_) scheduler_->group_lost();
  const bool spent = lost.permanent || losses_ > options_.max_restarts;
  if (!spent) {
    if (!draining_ || !asked_.empty()) form();
  } else if (!was_ready_) {
    failed_ = lost.cause;
    // wait_ready() keeps this code for its own patience.
    if (failed_->code == Errc::kDeadlineExceeded) failed_->code = Errc::kUnavailable;
  } else {
    Error error = make_error(Errc::kInternal, lost.cause.message);
    if (losses_ > 1) error.message = fmt::format("lost {} times in a row, last: {}", losses_, error.message);
    give_up(error);
    losses_ = 0;
    retry_at_ = now + retry_delay_;
    retry_delay_ = std::min(retry_delay_ * 2, options_.retry_max);
  }
  state_changed_.notify_all();
}

void EngineImpl::form() {
  retry_at_.reset();
  if (epoch_ != Epoch()) ++totals_.worker_restarts_total;
  epoch_ = Epoch(epoch_.get() + 1);
  group_->form(epoch_);
}

void EngineImpl::give_up(const Error& error) {
  const auto all = asked_;
  for (const auto& [id, asked] : all) fail(*asked, error);
}

void EngineImpl::expire(Time now) {
  if (draining_ && now >= *drain_until_)
    give_up(make_error(Errc::kUnavailable, "the server is shutting down"));
  if (options_.request_timeout.count() == 0) return;
  const auto all = asked_;
  for (const auto& [id, asked] : all) {
    if (now >= asked->submitted + options_.request_timeout)
      fail(*asked, make_error(Errc::kDeadlineExceeded, fmt::format("the request took longer than {} ms",
                                                                   options_.request_timeout.count())));
  }
}

void EngineImpl::schedule(Time now) {
  if (!ready_ || scheduler_->step_in_flight()) return;
  auto plan = scheduler_->next(now);
  if (!plan) return;
  if (options_.schedule) seal(*plan, *options_.schedule, options_.prefill);
  step_ = plan->step;
  step_rows_.clear();
  for (const PlanRow& row : plan->rows) step_rows_.insert(row.id);
  group_->send(*plan);
}

void EngineImpl::deliver(Lock& lock) {
  while (!dirty_.empty()) {
    auto batch = std::exchange(dirty_, {});
    for (const std::shared_ptr<Asked>& asked : batch) {
      asked->dirty = false;
      if (asked->cancelled) continue;
      auto events = asked->generation.take_events();
      if (!events) continue;
      const bool done = events->done;
      if (done && asked->generation.failed()) ++totals_.requests_failed_total;
      delivering_ = asked.get();
      lock.unlock();
      asked->sink(std::move(*events));
      lock.lock();
      delivering_ = nullptr;
      // The id stays known until its last event has been delivered, so that cancel() can wait for that.
      if (done && !asked->cancelled) {
        asked->cancelled = true;
        asked_.erase(asked->id);
      }
      delivered_.notify_all();
    }
    // What a sink holds goes with its last reference, and may ask the engine for something on its way.
    lock.unlock();
    batch.clear();
    lock.lock();
  }
}

}  // namespace lariat
