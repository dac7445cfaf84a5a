// Messages waiting for the one thread that writes them: senders never block on the peer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include "base/result.h"

namespace lariat {

// Bounded: a peer that does not read costs at most `messages_max` messages, then push refuses.
template <class Message>
class Outbox {
 public:
  explicit Outbox(size_t messages_max) : messages_max_(messages_max) {}

  // kUnavailable once closed or finished, kResourceExhausted when full.
  Status push(Message message) {
    const std::lock_guard lock(mutex_);
    if (closed_ || finished_) return make_error(Errc::kUnavailable, "the control session is closed");
    if (queue_.size() >= messages_max_)
      return make_error(Errc::kResourceExhausted,
                        fmt::format("the peer has left {} control messages unread", queue_.size()));
    queue_.push_back(std::move(message));
    changed_.notify_all();
    return Ok{};
  }

  // The oldest message; waits for one. Empty once closed, or once finished and all are taken. The message
  // counts as unwritten until the next call.
  std::optional<Message> pop() {
    std::unique_lock lock(mutex_);
    writing_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return closed_ || finished_ || !queue_.empty(); });
    if (closed_ || queue_.empty()) return std::nullopt;
    Message message = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    return message;
  }

  // Nothing more will be pushed; what waits is still to be written.
  void finish() {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }

  // Drops what is waiting and wakes everybody.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    queue_.clear();
    changed_.notify_all();
  }

  // True when everything pushed so far has been handed to the transport.
  bool wait_written(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return closed_ || (queue_.empty() && !writing_); });
    return !closed_ && queue_.empty() && !writing_;
  }

 private:
  const size_t messages_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> queue_;
  bool writing_ = false;
  bool finished_ = false;
  bool closed_ = false;
};

}  // namespace lariat
