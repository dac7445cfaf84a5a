// Notices that compute has made no progress for too long.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lariat {

// One thread of its own, asleep while nothing is armed or all is well. arm and disarm come from one thread;
// kick from any.
class StallWatchdog {
 public:
  // on_stall runs on the watchdog's thread, at most once an arm().
  StallWatchdog(std::chrono::milliseconds timeout,
                std::function<void(const std::string& what, std::chrono::milliseconds silent)> on_stall);
  ~StallWatchdog();

  void arm(std::string what);
  void kick();  // a clock read and a relaxed store
  void disarm();

 private:
  using Clock = std::chrono::steady_clock;
  void watch();

  const std::chrono::milliseconds timeout_;
  const std::function<void(const std::string&, std::chrono::milliseconds)> on_stall_;
  std::atomic<Clock::rep> last_kick_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool armed_ = false;
  bool stop_ = false;
  std::string what_;
  std::thread thread_;
};

}  // namespace lariat
