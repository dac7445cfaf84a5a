// The engine's events of one answer on their way from its thread to the connection's.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "head/engine.h"
#include "http/metrics.h"

namespace lariat {

class Feed : public std::enable_shared_from_this<Feed> {
 public:
  using Clock = std::chrono::steady_clock;
  struct Item {
    size_t generation = 0;
    GenerationEvents events;
  };
  struct Limits {
    size_t pending_bytes_max = 0;
    size_t choices = 0;  // over all generations, for the token times
    int32_t n = 1;
  };

  Feed(boost::asio::io_context& io, HttpMetrics& metrics, Limits limits);

  // Any thread. What would exceed the pending bytes is dropped, and overflowed() says so: the answer is lost.
  void push(size_t generation, GenerationEvents events);

  // The rest on the IO thread only.
  boost::asio::awaitable<void> wait(Clock::time_point until);  // for events, poke() or the time
  void poke();
  // To be called before the last owner on the IO thread lets go: the engine may hold the feed for moments
  // longer, and the timer must not outlive its IO context.
  void close() { timer_.reset(); }
  std::vector<Item> take();
  bool overflowed() const;
  Clock::time_point started() const { return started_; }

 private:
  void note_times(size_t generation, const GenerationEvents& events);

  boost::asio::io_context& io_;
  HttpMetrics& metrics_;
  const Limits limits_;
  const Clock::time_point started_ = Clock::now();
  std::optional<boost::asio::steady_timer> timer_;  // until close()
  bool poked_ = false;

  mutable std::mutex mutex_;
  std::vector<Item> items_;
  size_t pending_bytes_ = 0;
  bool overflowed_ = false;
  bool wake_posted_ = false;
  std::vector<Clock::time_point> last_token_;  // by choice; the epoch: none yet
};

}  // namespace lariat
