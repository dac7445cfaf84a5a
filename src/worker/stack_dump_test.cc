#include "worker/stack_dump.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lariat {

// Not static and not inlined: the names the dump must find.
__attribute__((noinline)) void spin_in_a_function_with_a_name(std::atomic<int>& state) {
  state.fetch_add(1);
  while (state.load(std::memory_order_relaxed) < 100) {
  }
  state.fetch_add(1);
}

__attribute__((noinline)) void wait_in_a_function_with_a_name(std::mutex& mutex,
                                                              std::condition_variable& changed,
                                                              std::atomic<int>& state) {
  std::unique_lock lock(mutex);
  state.fetch_add(1);
  changed.wait(lock, [&] { return state.load() >= 100; });
  state.fetch_add(1);
}

namespace {

TEST(StackDump, NamesSpinningAndWaitingThreadsWithTheirLines) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "TSan holds signals back from a spinning thread";
#endif
#endif
  std::atomic<int> state{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::thread spinner([&] {
    pthread_setname_np(pthread_self(), "test-spinner");
    spin_in_a_function_with_a_name(state);
  });
  std::thread waiter([&] { wait_in_a_function_with_a_name(mutex, changed, state); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (state.load() < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  std::string dump = dump_all_stacks();
  const std::string again = dump_all_stacks();
  {
    const std::lock_guard lock(mutex);
    state = 100;
  }
  changed.notify_all();
  spinner.join();
  waiter.join();
  for (const std::string& text : {dump, again}) {
    EXPECT_NE(text.find("spin_in_a_function_with_a_name"), std::string::npos) << text;
    EXPECT_NE(text.find("wait_in_a_function_with_a_name"), std::string::npos) << text;
    EXPECT_NE(text.find("(test-spinner)"), std::string::npos) << text;
    EXPECT_NE(text.find("stack_dump_test.cc:"), std::string::npos) << text;
    EXPECT_EQ(text.find("no answer"), std::string::npos) << text;
  }
}

TEST(StackDump, ExceptionsStillUnwindAfterADump) {
  (void)dump_all_stacks();
  EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error);
}

}  // namespace
}  // namespace lariat
