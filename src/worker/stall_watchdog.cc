#include "worker/stall_watchdog.h"

namespace lariat {

StallWatchdog::StallWatchdog(std::chrono::milliseconds timeout,
                             std::function<void(const std::string&, std::chrono::milliseconds)> on_stall)
    : timeout_(timeout), on_stall_(std::move(on_stall)), thread_([this] { watch(); }) {}

StallWatchdog::~StallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StallWatchdog::arm(std::string what) {
  kick();
  const std::lock_guard lock(mutex_);
  armed_ = true;
  what_ = std::move(what);
  changed_.notify_all();
}

void StallWatchdog::kick() {
  last_kick_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void StallWatchdog::disarm() {
  const std::lock_guard lock(mutex_);
  armed_ = false;
}

void StallWatchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!armed_) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point last{Clock::duration(last_kick_.load(std::memory_order_relaxed))};
    const auto now = Clock::now();
    if (now < last + timeout_) {
      changed_.wait_until(lock, last + timeout_);
      continue;
    }
    armed_ = false;
    const std::string what = what_;
    lock.unlock();
    on_stall_(what, std::chrono::duration_cast<std::chrono::milliseconds>(now - last));
    lock.lock();
  }
}

}  // namespace lariat
