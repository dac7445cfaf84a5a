#include "comm/gloo/lookout.h"

#include <fmt/core.h>

#include <algorithm>

#include "comm/gloo/obituary.h"

namespace lariat {

namespace {

// How long a closed data connection may be ahead of the news of why: a thread's wake-up on a loaded machine.
constexpr auto kNewsTime = std::chrono::milliseconds(200);

Error gone(const Transfer& transfer) {
  return peer_gone(transfer.peer(), transfer.failure());
}

}  // namespace

Lookout::Lookout(gloo::transport::Context& news, gloo::transport::Context& data, int32_t world, int32_t rank,
                 Blamed on_blamed)
    : own_name_(rank_name(rank)), on_blamed_(std::move(on_blamed)) {
  for (int32_t peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    Watch w;
    w.text.resize(kObituaryBytes);
    w.receive = std::make_unique<Transfer>(peer, false, w.text.data(), w.text.size(), kObituarySlot);
    w.receive->post(news);
    w.canary = std::make_unique<Transfer>(peer, false, nullptr, 0, kCanarySlot);
    w.canary->post(data);
    watches_.push_back(std::move(w));
  }
  // Threads only when nothing can throw any more, and the vector has its final place.
  for (Watch& w : watches_) {
    w.news_thread = std::thread([this, &w] { watch_news(w); });
    w.data_thread = std::thread([this, &w] { watch_data(w); });
  }
  clock_ = std::thread([this] { keep_time(); });
}

Lookout::~Lookout() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    time_changed_.notify_all();
    news_came_.notify_all();
  }
  for (Watch& w : watches_) {
    w.receive->interrupt();
    w.canary->interrupt();
  }
  for (Watch& w : watches_) {
    w.news_thread.join();
    w.data_thread.join();
  }
  clock_.join();
}

void Lookout::watch_news(Watch& w) {
  const TransferState state = w.receive->wait();
  std::optional<Obituary> read;
  if (state == TransferState::kDone) {
    read = read_obituary(w.text, w.receive->peer());
    const bool blamed = read->why.code == Errc::kDeadlineExceeded && read->why.param == own_name_;
    if (blamed && on_blamed_) on_blamed_(read->why);
  }
  const std::lock_guard lock(mutex_);
  if (stopping_ || state == TransferState::kInterrupted) return;
  if (read) {
    const Obituary& obituary = *read;
    if (!obituary.orderly) return tell_locked(obituary.why);
    w.left = obituary.why;
    news_came_.notify_all();
    return;
  }
  tell_locked(gone(*w.receive));
}

void Lookout::watch_data(Watch& w) {
  if (w.canary->wait() != TransferState::kFailed) return;
  std::unique_lock lock(mutex_);
  const bool known = news_came_.wait_for(lock, kNewsTime, [&] { return stopping_ || news_ || w.left; });
  if (!known) tell_locked(gone(*w.canary));
}

void Lookout::tell(const Error& why) {
  const std::lock_guard lock(mutex_);
  tell_locked(why);
}

void Lookout::tell_locked(const Error& why) {
  if (news_) return;
  news_ = why;
  news_came_.notify_all();
  for (const Waiter& w : waiters_)
    if (w.heed_news) w.transfer->interrupt();
}

std::optional<Error> Lookout::news() {
  const std::lock_guard lock(mutex_);
  return news_;
}

std::optional<Error> Lookout::news_of(int32_t peer, Deadline deadline) {
  const auto w = std::find_if(watches_.begin(), watches_.end(),
                              [&](const Watch& watch) { return watch.receive->peer() == peer; });
  std::unique_lock lock(mutex_);
  news_came_.wait_until(lock, deadline, [&] { return news_ || (w != watches_.end() && w->left); });
  return news_ || w == watches_.end() ? news_ : w->left;
}

WaitEnd Lookout::wait(Transfer& transfer, Deadline deadline, bool heed_news) {
  if (transfer.done()) return WaitEnd::kDone;
  std::list<Waiter>::iterator me;
  {
    const std::lock_guard lock(mutex_);
    me = waiters_.insert(waiters_.end(), {&transfer, deadline, heed_news});
    if (heed_news && news_) transfer.interrupt();
    // The clock sleeps to the earliest deadline it has seen; those that follow are mostly later and wake
    // nobody.
    if (deadline < armed_) {
      armed_ = deadline;
      time_changed_.notify_all();
    }
  }
  const TransferState state = transfer.wait();
  const std::lock_guard lock(mutex_);
  const bool expired = me->expired;
  waiters_.erase(me);
  if (state == TransferState::kDone) return WaitEnd::kDone;
  if (state == TransferState::kFailed) return WaitEnd::kFailed;
  if (heed_news && news_) return WaitEnd::kNews;
  LARIAT_CHECK(expired, "a wait ended for no reason");
  return WaitEnd::kDeadline;
}

void Lookout::keep_time() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (armed_ == Deadline::max()) {
      time_changed_.wait(lock);
    } else {
      time_changed_.wait_until(lock, armed_);
    }
    const auto now = CommClock::now();
    armed_ = Deadline::max();
    for (Waiter& w : waiters_) {
      if (w.expired) continue;
      if (now >= w.deadline) {
        w.expired = true;
        w.transfer->interrupt();
      } else {
        armed_ = std::min(armed_, w.deadline);
      }
    }
  }
}

}  // namespace lariat
