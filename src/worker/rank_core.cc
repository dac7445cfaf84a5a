#include "worker/rank_core.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace lariat {
namespace {

constexpr size_t kPlansWaitingMax = 16;
constexpr std::chrono::milliseconds kReportInterval{100};
constexpr std::chrono::milliseconds kHealthInterval{200};  // between looks at an idle executor

int exit_code_of(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
    case Errc::kNotFound:
    case Errc::kUnsupported:
    case Errc::kCorruptData:
      return kExitBadConfig;
    case Errc::kResourceExhausted:
      return kExitResources;
    default:
      return kExitFailed;
  }
}

// What a step came to when nothing of it can be used.
StepOutcome all_failed(const StepPlan& plan, const Error& error) {
  StepOutcome outcome;
  outcome.epoch = plan.epoch;
  outcome.step = plan.step;
  for (const PlanRow& row : plan.rows) {
    RowOutcome& out = outcome.rows.emplace_back();
    out.id = row.id;
    out.failed = true;
    out.error = error.code;
    out.message = error.message;
  }
  return outcome;
}

}  // namespace

RankCore::RankCore(RankOptions options, ExecutorFactory factory, Hooks hooks)
    : options_(std::move(options)),
      factory_(std::move(factory)),
      hooks_(std::move(hooks)),
      watchdog_(options_.stall_timeout, hooks_.on_stall) {}

void RankCore::refuse(Epoch epoch, StepId step, Errc code, std::string message) {
  log_warn("refused: {}", message);
  hooks_.send(RankFailure{epoch, step, FailureKind::kRefused, make_error(code, std::move(message))});
}

void RankCore::handle(ToRank message) {
  if (const auto* start = std::get_if<StartRank>(&message)) return take_start(*start);
  const auto [epoch, step, name] = std::visit(
      [](const auto& m) -> std::tuple<Epoch, StepId, const char*> {
        using M = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<M, StepPlan>) return {m.epoch, m.step, "a plan"};
        if constexpr (std::is_same_v<M, AbortStep>) return {m.epoch, m.step, "an abort"};
        return {m.epoch, StepId(), "a shutdown"};
      },
      message);
  std::optional<Epoch> mine;
  {
    const std::lock_guard lock(mutex_);
    if (start_) mine = start_->epoch;
  }
  if (!mine)
    return refuse(epoch, step, Errc::kInvalidArgument, fmt::format("{} before the session's start", name));
  if (epoch != *mine)
    return refuse(epoch, step, Errc::kInvalidArgument,
                  fmt::format("{} of epoch {} (step {}) reached a rank of epoch {}", name, epoch.get(),
                              step.get(), mine->get()));
  if (auto* plan = std::get_if<StepPlan>(&message)) return take_plan(std::move(*plan));
  if (const auto* abort = std::get_if<AbortStep>(&message)) return take_abort(*abort);
  stop(0);
}

void RankCore::take_start(const StartRank& start) {
  std::string fault;
  {
    const std::lock_guard lock(mutex_);
    if (start_) {
      fault = fmt::format("a second start, of epoch {}, in the session of epoch {}", start.epoch.get(),
                          start_->epoch.get());
    } else if (start.protocol_major != kControlProtocolMajor) {
      fault = fmt::format("the head speaks control protocol {}.{}, this rank {}.{}", start.protocol_major,
                          start.protocol_minor, kControlProtocolMajor, kControlProtocolMinor);
    } else if (start.build_id != options_.build_id) {
      fault =
          fmt::format("the head is build '{}', this rank is build '{}'", start.build_id, options_.build_id);
    } else if (start.rank != options_.rank || start.world != options_.world) {
      fault = fmt::format("the head takes this for rank {} of {}; it was started as rank {} of {}",
                          start.rank, start.world, options_.rank, options_.world);
    } else {
      start_ = start;
      changed_.notify_all();
      return;
    }
  }
  refuse(start.epoch, StepId(), Errc::kInvalidArgument, std::move(fault));
}

void RankCore::take_plan(StepPlan plan) {
  std::string fault;
  {
    const std::lock_guard lock(mutex_);
    if (!taking_plans_) {
      fault = fmt::format("step {} reached a rank that is {}", plan.step.get(),
                          exit_code_ ? "ending" : "loading");
    } else if (plan.step <= last_queued_) {
      fault = fmt::format("step {} after step {}", plan.step.get(), last_queued_.get());
    } else if (queue_.size() >= kPlansWaitingMax) {
      fault = fmt::format("step {} while {} others wait", plan.step.get(), queue_.size());
    } else {
      last_queued_ = plan.step;
      queue_.push_back(std::move(plan));
      changed_.notify_all();
      return;
    }
  }
  refuse(plan.epoch, plan.step, Errc::kInvalidArgument, std::move(fault));
}

void RankCore::take_abort(const AbortStep& abort) {
  const std::lock_guard lock(mutex_);
  if (running_ == abort.step) {
    aborting_ = true;
  } else if (std::any_of(queue_.begin(), queue_.end(),
                         [&](const StepPlan& p) { return p.step == abort.step; })) {
    aborted_.insert(abort.step);
  }
  // Otherwise the step is over and its outcome on the way: nothing to do.
}

void RankCore::stop(int code) {
  const std::lock_guard lock(mutex_);
  if (!exit_code_) exit_code_ = code;
  taking_plans_ = false;
  stopping_ = true;
  changed_.notify_all();
}

Heartbeat RankCore::heartbeat() const {
  Heartbeat beat;
  const std::lock_guard lock(mutex_);
  if (start_) beat.epoch = start_->epoch;
  beat.step = running_;
  beat.kicks = kicks_.load(std::memory_order_relaxed);
  return beat;
}

int RankCore::run() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return start_ || exit_code_; });
    if (exit_code_) return *exit_code_;
  }
  if (const int code = load(); code != 0) return code;
  while (const auto plan = next_plan()) {
    if (!execute(*plan)) return kExitFailed;
  }
  const std::lock_guard lock(mutex_);
  return exit_code_.value_or(0);
}

int RankCore::load() {
  watchdog_.arm("loading");
  Error error;
  try {
    auto executor = factory_([this](double fraction, std::string_view what) { report_load(fraction, what); });
    if (executor.ok()) {
      executor_ = std::move(executor).value();
    } else {
      error = std::move(executor).error();
    }
  } catch (const std::exception& e) {
    error = make_error(Errc::kInternal, fmt::format("loading threw {}", e.what()));
  }
  watchdog_.disarm();
  const Epoch epoch = start_->epoch;  // set once, before this thread came here
  if (executor_ == nullptr) {
    hooks_.send(RankFailure{epoch, StepId(), FailureKind::kLoad, error});
    return exit_code_of(error.code);
  }
  validator_.emplace(executor_->limits());
  RankHello message{epoch, executor_->hello()};
  message.hello.protocol_major = kControlProtocolMajor;
  message.hello.protocol_minor = kControlProtocolMinor;
  message.hello.build_id = options_.build_id;
  message.hello.rank = options_.rank;
  message.hello.world = options_.world;
  message.hello.pid = getpid();
  {
    const std::lock_guard lock(mutex_);
    taking_plans_ = !exit_code_;
  }
  hooks_.send(message);
  return 0;
}

void RankCore::report_load(double fraction, std::string_view what) {
  kicks_.fetch_add(1, std::memory_order_relaxed);
  watchdog_.kick();
  const auto now = std::chrono::steady_clock::now();
  const double shown = std::clamp(fraction, std::max(reported_fraction_, 0.0), 1.0);
  if (reported_fraction_ >= 0 && now < reported_at_ + kReportInterval && shown < 1) return;
  reported_fraction_ = shown;
  reported_at_ = now;
  hooks_.send(LoadProgress{start_->epoch, shown, std::string(what)});
}

bool RankCore::wait_for_plan(std::unique_lock<std::mutex>& lock) {
  while (!changed_.wait_for(lock, kHealthInterval, [&] { return exit_code_ || !queue_.empty(); })) {
    lock.unlock();
    if (const Status health = executor_->health(); !health.ok() && !stopping_) {
      log_error("broken between steps: {}", health.error().message);
      hooks_.send(RankFailure{start_->epoch, StepId(), FailureKind::kFatal, health.error()});
      stop(kExitFailed);
    }
    lock.lock();
  }
  return !exit_code_;
}

std::optional<StepPlan> RankCore::next_plan() {
  std::unique_lock lock(mutex_);
  if (!wait_for_plan(lock)) return std::nullopt;
  StepPlan plan = std::move(queue_.front());
  queue_.pop_front();
  running_ = plan.step;
  aborting_ = aborted_.erase(plan.step) > 0;
  return plan;
}

bool RankCore::execute(const StepPlan& plan) {
  if (const Status valid = validator_->check(plan, plan.epoch); !valid.ok()) {
    {
      const std::lock_guard lock(mutex_);
      running_ = StepId();
    }
    refuse(plan.epoch, plan.step, valid.error().code, valid.error().message);
    return true;
  }
  watchdog_.arm(fmt::format("step {} with {} rows", plan.step.get(), plan.rows.size()));
  auto outcome = run_guarded(plan);
  watchdog_.disarm();
  {
    const std::lock_guard lock(mutex_);
    running_ = StepId();
    if (exit_code_) return true;  // nobody reads outcomes any more
  }
  if (!outcome.ok() && fails_rows_only(outcome.error().code)) outcome = all_failed(plan, outcome.error());
  if (!outcome.ok()) {
    log_error("step {} failed: {}", plan.step.get(), outcome.error().message);
    hooks_.send(RankFailure{plan.epoch, plan.step, FailureKind::kFatal, outcome.error()});
    return false;
  }
  hooks_.send(std::move(outcome).value());
  return true;
}

Result<StepOutcome> RankCore::run_guarded(const StepPlan& plan) {
  const auto progress = [this] {
    kicks_.fetch_add(1, std::memory_order_relaxed);
    watchdog_.kick();
    return !aborting_.load(std::memory_order_relaxed) && !stopping_.load(std::memory_order_relaxed);
  };
  // Also a step that is aborted already goes to the executor: an abort does not reach all ranks at one
  // moment, and those that began it wait for this rank to say that it will not.
  try {
    auto outcome = executor_->run(plan, progress);
    if (outcome.ok())
      LARIAT_CHECK(outcome->rows.size() == plan.rows.size() && outcome->step == plan.step &&
                       outcome->epoch == plan.epoch,
                   "the executor answered another plan");
    return outcome;
  } catch (const std::exception& e) {
    return make_error(Errc::kInternal, fmt::format("the step threw {}", e.what()));
  }
}

}  // namespace lariat
