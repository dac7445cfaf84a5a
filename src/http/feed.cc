#include "http/feed.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace lariat {
namespace {

namespace asio = boost::asio;

size_t bytes_of(const TokenText& t) {
  size_t sum = sizeof t + t.bytes.size();
  for (const auto& a : t.top) sum += sizeof a + a.bytes.size();
  return sum;
}

size_t bytes_of(const GenerationEvents& events) {
  size_t sum = sizeof events;
  for (const ChoiceEvent& c : events.choices) {
    sum += sizeof c + c.text.size() + c.token_ids.size() * sizeof(int32_t);
    for (const TokenText& t : c.logprobs) sum += bytes_of(t);
  }
  return sum;
}

}  // namespace

Feed::Feed(asio::io_context& io, HttpMetrics& metrics, Limits limits)
    : io_(io), metrics_(metrics), limits_(limits), timer_(io), last_token_(limits.choices) {}

void Feed::note_times(size_t generation, const GenerationEvents& events) {
  const Clock::time_point now = Clock::now();
  for (const ChoiceEvent& c : events.choices) {
    const size_t at = generation * static_cast<size_t>(limits_.n) + static_cast<size_t>(c.choice);
    const auto tokens = static_cast<double>(c.token_ids.size());
    if (c.token_ids.empty() || at >= last_token_.size()) continue;
    Clock::time_point& last = last_token_[at];
    if (last == Clock::time_point()) {
      metrics_.time_to_first_token.observe(std::chrono::duration<double>(now - started_).count());
    } else {
      const double gap = std::chrono::duration<double>(now - last).count();
      metrics_.inter_token.observe(gap / tokens, c.token_ids.size());
    }
    last = now;
  }
}

void Feed::push(size_t generation, GenerationEvents events) {
  const std::lock_guard lock(mutex_);
  note_times(generation, events);
  if (overflowed_) return;
  // The prompt's logprobs come once and are as long as the prompt: the answer needs them whole.
  const size_t bytes = bytes_of(events);
  if (pending_bytes_ + bytes > limits_.pending_bytes_max && !items_.empty()) {
    overflowed_ = true;
  } else {
    pending_bytes_ += bytes;
    items_.push_back({generation, std::move(events)});
  }
  if (wake_posted_) return;
  wake_posted_ = true;
  asio::post(io_, [self = shared_from_this()] {
    {
      const std::lock_guard relock(self->mutex_);
      self->wake_posted_ = false;
    }
    if (self->timer_) self->timer_->cancel();
  });
}

asio::awaitable<void> Feed::wait(Clock::time_point until) {
  {
    const std::lock_guard lock(mutex_);
    if (poked_ || overflowed_ || !items_.empty()) {
      poked_ = false;
      co_return;
    }
  }
  // A push between the check and this wait posts its wake-up behind us on the same thread: none is lost.
  timer_->expires_at(until);
  co_await timer_->async_wait(asio::as_tuple(asio::use_awaitable));
  poked_ = false;
}

void Feed::poke() {
  poked_ = true;
  if (timer_) timer_->cancel();
}

std::vector<Feed::Item> Feed::take() {
  const std::lock_guard lock(mutex_);
  pending_bytes_ = 0;
  return std::exchange(items_, {});
}

bool Feed::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

}  // namespace lariat
