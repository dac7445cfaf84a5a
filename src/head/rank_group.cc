#include "head/rank_group.h"

#include <algorithm>

#include "base/log.h"
#include "head/hello_agreement.h"
#include "head/outcome_merge.h"

namespace lariat {
namespace {

constexpr std::chrono::milliseconds kTickMax{250};

Epoch epoch_of(const FromRank& message) {
  return std::visit([](const auto& m) { return m.epoch; }, message);
}

// docs/design.md §7: bad usage or configuration, and a refusal for resources.
bool is_refusal(int exit_code) {
  return exit_code == 2 || exit_code == 3;
}

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

RankGroup::RankGroup(RankGroupOptions options, RankLinkFactory factory)
    : options_(std::move(options)),
      factory_(std::move(factory)),
      comm_wait_total_us_(static_cast<size_t>(options_.world), 0) {
  supervisor_ = std::thread([this] { supervise(); });
}

RankGroup::~RankGroup() {
  stop(std::chrono::milliseconds(0));
}

void RankGroup::set_on_event(std::function<void(GroupEvent)> on_event) {
  const std::lock_guard lock(mutex_);
  on_event_ = std::move(on_event);
}

void RankGroup::form(Epoch epoch) {
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  LARIAT_CHECK(phase_ == Phase::kIdle, "formed while there is a group");
  LARIAT_CHECK(epoch > epoch_, "epoch {} after {}", epoch.get(), epoch_.get());
  if (epoch_.get() != 0) ++restarts_;
  epoch_ = epoch;
  phase_ = Phase::kFormRequested;
  changed_.notify_all();
}

void RankGroup::send(const StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kFormed || loss_ || plan.epoch != epoch_) return;  // GroupLost is on its way
  LARIAT_CHECK(in_flight_ == StepId(), "step {} while step {} is in flight", plan.step.get(),
               in_flight_.get());
  in_flight_ = plan.step;
  const auto now = Clock::now();
  for (int32_t rank = 0; rank < options_.world; ++rank) {
    RankInfo& r = info(rank);
    r.outcome.reset();
    r.last_progress = now;
    // The session has broken: the rank may be on its way out, and its exit code says why.
    if (const Status sent = r.link->send(plan); !sent.ok()) return lose({rank, sent.error(), false, true});
  }
}

void RankGroup::abort(Epoch epoch, StepId step) {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kFormed || loss_ || epoch != epoch_ || step != in_flight_) return;
  for (RankInfo& r : ranks_) {
    // If it cannot be sent the session is broken, which shows by itself.
    if (const Status sent = r.link->send(AbortStep{epoch, step}); !sent.ok())
      log_warn("abort of step {} not sent: {}", step.get(), sent.error().message);
  }
}

void RankGroup::condemn(Error cause, bool permanent) {
  const std::lock_guard lock(mutex_);
  lose({0, std::move(cause), permanent, false});
}

void RankGroup::stop(std::chrono::milliseconds grace) {
  {
    const std::lock_guard lock(mutex_);
    // A rank that still loads would not hear of it.
    if (!stop_ && phase_ == Phase::kFormed && grace.count() > 0) {
      for (RankInfo& r : ranks_) {
        if (r.link && r.link->send(ShutdownRank{epoch_}).ok()) stop_grace_ = grace;
      }
    }
    stop_ = true;
    changed_.notify_all();
  }
  if (supervisor_.joinable()) supervisor_.join();
}

// --- supervisor's thread ---

void RankGroup::supervise() {
  std::unique_lock lock(mutex_);
  const auto tick =
      std::max(std::chrono::milliseconds(10), std::min(kTickMax, options_.heartbeat_timeout / 4));
  const auto called = [&] { return stop_ || loss_ || phase_ == Phase::kFormRequested; };
  while (!stop_) {
    if (phase_ == Phase::kIdle) {
      changed_.wait(lock, called);
    } else {
      changed_.wait_for(lock, tick, called);
    }
    if (stop_) break;
    if (phase_ == Phase::kFormRequested) start_ranks(lock);
    if (!loss_ && alive()) check_deadlines(Clock::now());
    if (loss_ && !stop_) report_loss(lock);
  }
  end_ranks(lock, stop_grace_, -1);
  phase_ = Phase::kIdle;
}

void RankGroup::start_ranks(std::unique_lock<std::mutex>& lock) {
  phase_ = Phase::kForming;
  in_flight_ = StepId();
  ranks_.clear();
  ranks_.resize(static_cast<size_t>(options_.world));
  const Epoch epoch = epoch_;
  last_tick_ = Clock::now();
  for (RankInfo& r : ranks_) r.last_heard = r.last_progress = last_tick_;
  for (int32_t rank = 0; rank < options_.world && !loss_ && !stop_; ++rank) {
    lock.unlock();
    auto link = factory_(rank, epoch,
                         {[this, rank, epoch](FromRank m) { on_message(rank, epoch, std::move(m)); },
                          [this, rank, epoch](Error why) { on_down(rank, epoch, std::move(why)); }});
    lock.lock();
    if (!link.ok()) return lose({rank, link.error(), false, false});
    RankInfo& r = info(rank);
    r.link = std::move(link).value();
    r.pid = r.link->pid();
    StartRank start;
    start.epoch = epoch;
    start.rank = rank;
    start.world = options_.world;
    start.build_id = options_.build_id;
    if (const Status sent = r.link->send(start); !sent.ok()) return lose({rank, sent.error(), false, false});
  }
  agree_if_complete();
}

// Ends every link outside the lock; `only` (or every rank, -1) is given the grace. How each ended, by rank.
std::vector<RankEnding> RankGroup::end_ranks(std::unique_lock<std::mutex>& lock,
                                             std::chrono::milliseconds grace, int32_t only) {
  std::vector<std::unique_ptr<RankLink>> links;
  links.reserve(ranks_.size());
  for (RankInfo& r : ranks_) {
    links.push_back(std::move(r.link));
    r.lost = true;
  }
  lock.unlock();
  const auto deadline = Clock::now() + grace;
  std::vector<RankEnding> endings(links.size());
  for (size_t rank = 0; rank < links.size(); ++rank) {
    if (links[rank] == nullptr) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const bool patient = only < 0 || static_cast<size_t>(only) == rank;
    endings[rank] = links[rank]->end(patient ? std::max(left, std::chrono::milliseconds(0))
                                             : std::chrono::milliseconds(0));
  }
  links.clear();
  lock.lock();
  return endings;
}

void RankGroup::report_loss(std::unique_lock<std::mutex>& lock) {
  const int64_t pid = info(loss_->rank).pid;
  const auto grace = loss_->leaving ? options_.exit_grace : std::chrono::milliseconds(0);
  const auto endings = end_ranks(lock, grace, loss_->rank);
  if (stop_) return;
  GroupLost lost{epoch_, loss_->rank, loss_->cause, loss_->permanent, loss_->noticed};
  const RankEnding& ending = endings[static_cast<size_t>(loss_->rank)];
  // It said with its exit code what it could not say over the wire: another try would meet the same.
  if (loss_->leaving && !info(loss_->rank).hello && ending.exit_code && is_refusal(*ending.exit_code))
    lost.permanent = true;
  lost.cause = lost.cause.in(pid != 0 ? fmt::format("rank {} (pid {})", loss_->rank, pid)
                                      : fmt::format("rank {}", loss_->rank));
  if (!ending.text.empty()) lost.cause.message += fmt::format("; it ended with {}", ending.text);
  log_error("epoch {} lost: {}", epoch_.get(), lost.cause.message);
  loss_.reset();
  phase_ = Phase::kIdle;
  if (on_event_) on_event_(std::move(lost));
}

void RankGroup::check_deadlines(Clock::time_point now) {
  // This thread was stopped or starved itself: what the ranks said meanwhile may still wait to be read.
  const bool late = now - last_tick_ > options_.heartbeat_timeout / 2;
  last_tick_ = now;
  for (int32_t rank = 0; rank < options_.world; ++rank) {
    RankInfo& r = info(rank);
    if (late) r.last_heard = now;
    const auto silent = now - r.last_heard;
    if (silent > (r.heard ? options_.heartbeat_timeout : options_.start_timeout))
      return lose(
          {rank,
           make_error(Errc::kDeadlineExceeded,
                      fmt::format("no {} for {:.1f} s",
                                  r.heard ? "heartbeat" : "sign of life after its start", seconds(silent))),
           false, false});
    const auto still = now - r.last_progress;
    if (!r.hello && still > options_.load_timeout)
      return lose(
          {rank,
           make_error(Errc::kDeadlineExceeded,
                      fmt::format("loading ({}) made no progress for {:.1f} s", r.load_what, seconds(still))),
           false, false});
    if (in_flight_ != StepId() && !r.outcome && still > options_.step_timeout)
      return lose({rank,
                   make_error(Errc::kDeadlineExceeded, fmt::format("step {} made no progress for {:.1f} s",
                                                                   in_flight_.get(), seconds(still))),
                   false, false});
  }
}

// --- links' threads ---

void RankGroup::on_message(int32_t rank, Epoch epoch, FromRank message) {
  const std::lock_guard lock(mutex_);
  if (epoch != epoch_ || !alive() || loss_) return;
  if (epoch_of(message) != epoch_) {
    return lose({rank,
                 make_error(Errc::kCorruptData, fmt::format("sent a message of epoch {} in epoch {}",
                                                            epoch_of(message).get(), epoch_.get())),
                 false, false});
  }
  RankInfo& r = info(rank);
  r.heard = true;
  r.last_heard = Clock::now();
  std::visit([&](auto& m) { take(rank, m); }, message);
}

void RankGroup::on_down(int32_t rank, Epoch epoch, Error why) {
  const std::lock_guard lock(mutex_);
  if (epoch == epoch_ && alive()) lose({rank, std::move(why), false, true});
}

void RankGroup::take(int32_t rank, const RankHello& message) {
  RankInfo& r = info(rank);
  if (r.hello) return lose({rank, make_error(Errc::kCorruptData, "said hello twice"), false, false});
  r.hello = message.hello;
  r.load_fraction = 1;
  agree_if_complete();
}

void RankGroup::agree_if_complete() {
  if (phase_ != Phase::kForming || loss_) return;
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const RankInfo& r) { return r.link && r.hello; })) return;
  std::vector<Hello> hellos;
  hellos.reserve(ranks_.size());
  for (const RankInfo& r : ranks_) hellos.push_back(*r.hello);
  auto agreed = agree_on_hello(hellos);
  if (!agreed.ok()) return lose({0, agreed.error(), true, false});
  phase_ = Phase::kFormed;
  if (on_event_) on_event_(GroupFormed{epoch_, std::move(agreed).value()});
}

void RankGroup::take(int32_t rank, const LoadProgress& progress) {
  RankInfo& r = info(rank);
  if (progress.fraction != r.load_fraction || progress.what != r.load_what) r.last_progress = Clock::now();
  r.load_fraction = progress.fraction;
  r.load_what = progress.what;
}

void RankGroup::take(int32_t rank, const Heartbeat& beat) {
  RankInfo& r = info(rank);
  if (beat.kicks != r.kicks) r.last_progress = Clock::now();
  r.kicks = beat.kicks;
  r.rss_bytes = beat.rss_bytes;
}

void RankGroup::take(int32_t rank, StepOutcome& outcome) {
  if (in_flight_ == StepId() || outcome.step != in_flight_)
    return lose({rank,
                 make_error(Errc::kCorruptData, fmt::format("answered step {}, in flight is {}",
                                                            outcome.step.get(), in_flight_.get())),
                 false, false});
  info(rank).comm_wait_us = outcome.comm_wait_us;
  comm_wait_total_us_[static_cast<size_t>(rank)] += outcome.comm_wait_us;
  info(rank).outcome = std::move(outcome);
  if (!std::all_of(ranks_.begin(), ranks_.end(), [](const RankInfo& i) { return i.outcome.has_value(); }))
    return;
  std::vector<StepOutcome> outcomes;
  outcomes.reserve(ranks_.size());
  for (RankInfo& r : ranks_) outcomes.push_back(*std::exchange(r.outcome, std::nullopt));
  in_flight_ = StepId();
  auto merged = merge_outcomes(outcomes);
  if (!merged.ok()) return lose({rank, merged.error(), false, false});
  if (on_event_) on_event_(GroupOutcome{std::move(merged).value()});
}

void RankGroup::take(int32_t rank, const RankFailure& failure) {
  Loss loss{rank, failure.error, false, true};
  if (failure.kind == FailureKind::kLoad) {
    const Errc code = failure.error.code;
    loss.permanent = code == Errc::kInvalidArgument || code == Errc::kNotFound ||
                     code == Errc::kUnsupported || code == Errc::kCorruptData ||
                     code == Errc::kResourceExhausted;
  } else if (failure.kind == FailureKind::kRefused) {
    loss.leaving = false;
    loss.permanent = phase_ == Phase::kForming;
    loss.cause = failure.error.in("refused");
  }
  const int32_t lost = culprit(rank, failure.error);
  if (lost != rank) loss = {lost, failure.error.in(fmt::format("rank {} reports", rank)), false, true};
  lose(std::move(loss));
}

// Survivors tell of a dead peer, and often before the peer's own session is seen to break.
int32_t RankGroup::culprit(int32_t witness, const Error& error) const {
  const bool tells = error.code == Errc::kUnavailable || error.code == Errc::kDeadlineExceeded ||
                     error.code == Errc::kResourceExhausted;
  if (!tells) return witness;
  for (int32_t rank = 0; rank < options_.world; ++rank)
    if (error.param == fmt::format("rank {}", rank)) return rank;
  return witness;
}

void RankGroup::lose(Loss loss) {
  if (loss_ || !alive()) return;
  loss_ = std::move(loss);
  loss_->noticed = Clock::now();
  changed_.notify_all();
}

// --- anyone's ---

std::vector<RankState> RankGroup::ranks() const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<RankState> states;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankInfo& r = ranks_[i];
    RankState& s = states.emplace_back();
    s.rank = static_cast<int32_t>(i);
    s.pid = r.pid;
    s.host = options_.host;
    s.device = r.hello ? r.hello->device : "";
    s.state = r.lost || loss_ ? "lost" : r.hello ? "ready" : "starting";
    s.rss_bytes = r.rss_bytes;
    s.heartbeat_age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - r.last_heard).count();
    s.comm_wait_us = r.comm_wait_us;
    s.comm_wait_total_us = comm_wait_total_us_[i];
    s.restarts = restarts_;
  }
  return states;
}

std::string RankGroup::forming() const {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::kFormed && !loss_) return "";
  if (phase_ == Phase::kForming && !loss_) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const RankInfo& r = ranks_[i];
      if (!r.hello) return fmt::format("rank {}: {}, {:.0f} %", i, r.load_what, r.load_fraction * 100);
    }
  }
  return "the ranks are being started";
}

}  // namespace lariat
