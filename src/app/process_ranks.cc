#include "app/process_ranks.h"

#include <chrono>

#include "app/rank_launch.h"
#include "plan/schedule_hash.h"

namespace lariat {
namespace {

using std::chrono::milliseconds;

constexpr Epoch kEpoch{1};
constexpr milliseconds kLook{100};  // how often a wait looks at progress
constexpr milliseconds kEndGrace{2'000};
// Nobody waits at the other end, and what is measured may keep every core busy: more patience than serve's.
constexpr milliseconds kHeartbeatTimeout{10'000};

}  // namespace

Result<std::unique_ptr<RankSet>> ProcessRanks::start(const OpenModel& model, const LayoutOptions& layout,
                                                     const RankSetOptions& options) {
  LARIAT_ASSIGN(ScheduleConstants constants, schedule_constants(model.files.config, layout));
  auto self = std::unique_ptr<ProcessRanks>(new ProcessRanks(std::move(constants)));
  self->prefill_ = layout.strategy;
  const auto world = static_cast<size_t>(layout.layout().world());
  self->comm_wait_us_.assign(world, 0);
  LARIAT_ASSIGN(self->group_dir_, PrivateDir::create());
  LARIAT_ASSIGN(self->group_, launch_ranks({.model = options.model,
                                            .layout = layout,
                                            .heartbeat_timeout = kHeartbeatTimeout,
                                            .group_dir = self->group_dir_.path(),
                                            .poison = options.poison}));
  LARIAT_RETURN_IF_ERROR(self->form(options.progress));
  return std::unique_ptr<RankSet>(std::move(self));
}

ProcessRanks::~ProcessRanks() {
  if (group_) group_->stop(kEndGrace);
}

// Every wait below ends: the group has deadlines for starting, loading, heartbeats and steps, and tells of a
// loss.
Status ProcessRanks::form(ProgressBar* progress) {
  group_->set_on_event([this](GroupEvent event) { on_event(std::move(event)); });
  group_->form(kEpoch);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return formed_ || lost_; })) {
    lock.unlock();
    if (progress) progress->note(group_->forming());
    lock.lock();
  }
  if (lost_) return *lost_;
  hello_ = *formed_;
  // Ranks that have met need no place for it any more, and an interrupt leaves none behind.
  group_dir_ = PrivateDir();
  return Ok{};
}

void ProcessRanks::on_event(GroupEvent event) {
  const std::lock_guard lock(mutex_);
  if (auto* formed = std::get_if<GroupFormed>(&event)) formed_ = std::move(formed->hello);
  if (auto* done = std::get_if<GroupOutcome>(&event)) outcome_ = std::move(done->outcome);
  if (auto* lost = std::get_if<GroupLost>(&event)) lost_ = std::move(lost->cause);
  changed_.notify_all();
}

Result<StepOutcome> ProcessRanks::run(const StepPlan& plan, const ProgressFn& progress) {
  StepPlan sealed = plan;
  sealed.epoch = kEpoch;
  seal(sealed, constants_, prefill_);
  std::unique_lock lock(mutex_);
  if (lost_) return *lost_;
  outcome_.reset();
  lock.unlock();
  group_->send(sealed);
  bool aborted = false;
  lock.lock();
  while (!changed_.wait_for(lock, kLook, [&] { return outcome_ || lost_; })) {
    lock.unlock();
    if (!progress() && !aborted) {
      aborted = true;
      group_->abort(kEpoch, sealed.step);
    }
    lock.lock();
  }
  if (!outcome_) return *lost_;
  StepOutcome outcome = *std::exchange(outcome_, std::nullopt);
  lock.unlock();
  const std::vector<RankState> states = group_->ranks();
  for (size_t r = 0; r < states.size(); ++r) comm_wait_us_[r] += states[r].comm_wait_us;
  return outcome;
}

std::vector<pid_t> ProcessRanks::pids() const {
  std::vector<pid_t> pids;
  for (const RankState& rank : group_->ranks()) pids.push_back(static_cast<pid_t>(rank.pid));
  return pids;
}

}  // namespace lariat
