// A rank's compute threads: fork-join over an index range. The caller's thread works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lariat {

// parallel_for hands out indexes dynamically, one at a time; which thread runs which index is not defined, so
// a task's result must depend on its index alone (design.md §9: bits never depend on the thread count).
// One caller at a time. Tasks must not throw. threads == 1 spawns nothing.
class ThreadPool {
 public:
  using Task = std::function<void(int64_t index, int thread)>;  // thread in [0, threads())

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs task(i, thread) for every i in [0, count) and returns when all are done. count <= 0 does nothing.
  void parallel_for(int64_t count, const Task& task);

 private:
  void worker(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
  int64_t count_ = 0;
  const Task* task_ = nullptr;
  std::atomic<bool> stop_{false};
};

}  // namespace lariat
