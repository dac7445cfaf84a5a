#include "comm/gloo/mesh.h"

#include <fmt/core.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/relax.h"
#include "comm/gloo/obituary.h"

namespace lariat {
namespace {

constexpr auto kObituaryTime = std::chrono::milliseconds(50);  // for telling all peers
// Past so long a wait sleeps, for at most kMailSleep until it looks for a peer's death: news is not put in
// the mail.
constexpr auto kMailSpin = std::chrono::microseconds(60);
constexpr auto kMailSleep = std::chrono::milliseconds(2);
// How long a closed connection may be ahead of the news of why: a thread's wake-up, even on a loaded machine.
constexpr auto kNewsTime = std::chrono::milliseconds(500);

// From a deadline to the verdict of whose fault it is.
constexpr auto kLastWords = std::chrono::milliseconds(300);

bool small(const Transfer& transfer) {
  return transfer.bytes() <= Mailbox::kMessageMax;
}

}  // namespace

Mesh::Mesh(int32_t world, int32_t rank)
    : world_(world),
      rank_(rank),
      blocked_(static_cast<size_t>(world)),
      spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(world)) {}

Mesh::~Mesh() {
  if (lookout_) {
    const std::lock_guard lock(death_mutex_);
    if (!dead_) {
      bury(make_error(Errc::kUnavailable, fmt::format("rank {} has left the group", rank_), rank_name(rank_)),
           true);
    }
  }
  lookout_.reset();  // before the context whose connections its receives use
}

Result<bool> Mesh::move_mail(Transfer& t) {
  if (t.send()) {
    if (mail_.put(t.peer(), t.slot(), t.data(), t.bytes())) t.set_done();
    return t.done();
  }
  const Result<bool> taken = mail_.take(t.peer(), t.slot(), t.data(), t.bytes());
  if (!taken.ok()) {
    die(taken.error());
    return death();
  }
  if (*taken) t.set_done();
  return t.done();
}

// In the order of posting with each peer: what overtook another piece would have to be kept aside over there.
Status Mesh::send_all_mail() {
  std::fill(blocked_.begin(), blocked_.end(), false);
  for (std::vector<Transfer>* call : posted_) {
    for (Transfer& t : *call) {
      if (!t.send() || !small(t) || t.done() || blocked_[static_cast<size_t>(t.peer())]) continue;
      LARIAT_ASSIGN(const bool moved, move_mail(t));
      if (!moved) blocked_[static_cast<size_t>(t.peer())] = true;
    }
  }
  return Ok{};
}

Result<Mesh::Mail> Mesh::move_all_mail(std::span<Transfer> transfers) {
  LARIAT_RETURN_IF_ERROR(send_all_mail());
  std::fill(blocked_.begin(), blocked_.end(), false);
  Mail mail;
  for (Transfer& t : transfers) {
    if (!small(t) || t.done()) continue;
    if (!t.send() && !blocked_[static_cast<size_t>(t.peer())]) {
      LARIAT_ASSIGN(const bool moved, move_mail(t));
      mail.moved |= moved;
      if (moved) continue;
      blocked_[static_cast<size_t>(t.peer())] = true;
    }
    if (!mail.open) mail.open = &t;
  }
  return mail;
}

Status Mesh::wait_for_mail(std::span<Transfer> transfers, Deadline deadline, const What& what) {
  const auto spin = spins_ ? kMailSpin : std::chrono::microseconds(0);
  auto spin_until = CommClock::now() + spin;
  while (true) {
    const uint32_t heard = mail_.bell();
    LARIAT_ASSIGN(const Mail mail, move_all_mail(transfers));
    Transfer* open = mail.open;
    if (!open) break;
    LARIAT_RETURN_IF_ERROR(health());
    const auto now = CommClock::now();
    if (mail.moved) spin_until = now + spin;
    if (now < spin_until) {
      relax();
      continue;
    }
    board_.waits_for(open->peer(), deadline);
    if (const auto left = lookout_->news_of(open->peer(), now)) {
      // What a peer sent before it left is there by now.
      LARIAT_ASSIGN(const bool moved, move_mail(*open));
      if (moved) continue;
      die(*left);
      return death();
    }
    if (now >= deadline) return give_up(*open, what());
    const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(deadline - now);
    mail_.listen(heard, std::min<std::chrono::microseconds>(kMailSleep, rest));
  }
  board_.waits_no_more();
  return Ok{};
}

Status Mesh::post(std::vector<Transfer>& transfers) {
  LARIAT_RETURN_IF_ERROR(health());
  posted_.push_back(&transfers);
  // A send that finds no room is tried again whenever anything is waited for.
  Status sent = send_all_mail();
  if (sent.ok()) sent = post_large(transfers);
  if (!sent.ok()) forget(transfers);
  return sent;
}

Status Mesh::post_large(std::span<Transfer> transfers) {
  int32_t peer = rank_;
  std::string problem;
  {
    const std::lock_guard lock(post_mutex_);
    if (!dead()) {
      try {
        for (Transfer& transfer : transfers) {
          if (small(transfer)) continue;
          peer = transfer.peer();  // NOLINT(clang-analyzer-deadcode.DeadStores): read when post() throws
          transfer.post(*context_);
        }
        return Ok{};
      } catch (const std::exception& e) {
        problem = e.what();
      }
    }
  }
  if (!dead()) {
    // The connection may have closed behind an obituary that says why.
    const std::optional<Error> news = lookout_->news_of(peer, CommClock::now() + kNewsTime);
    die(news ? *news : peer_gone(peer, problem));
  }
  return death();
}

void Mesh::forget(const std::vector<Transfer>& transfers) {
  std::erase(posted_, &transfers);
}

Status Mesh::wait(std::vector<Transfer>& transfers, Deadline deadline, const What& what) {
  Status ended = wait_for_mail(transfers, deadline, what);
  if (ended.ok()) ended = wait_for_large(transfers, deadline, what);
  forget(transfers);
  return ended;
}

Status Mesh::wait_for_large(std::span<Transfer> transfers, Deadline deadline, const What& what) {
  for (Transfer& transfer : transfers) {
    if (small(transfer)) continue;
    board_.waits_for(transfer.peer(), deadline);
    const WaitEnd end = lookout_->wait(transfer, deadline);
    if (end != WaitEnd::kDeadline) board_.waits_no_more();
    switch (end) {
      case WaitEnd::kDone:
        continue;
      case WaitEnd::kNews:
        return health();
      case WaitEnd::kDeadline:
        return give_up(transfer, what());
      case WaitEnd::kFailed:
        const std::optional<Error> news = lookout_->news_of(transfer.peer(), CommClock::now() + kNewsTime);
        die(news ? *news : peer_gone(transfer.peer(), transfer.failure()));
        return death();
    }
  }
  return Ok{};
}

// Deadlines of ranks that wait in a chain pass within moments of each other. Those that notice theirs get the
// time to say so: who is silent then, though its own has passed, is the one that is stuck.
Status Mesh::give_up(const Transfer& transfer, const std::string& what) {
  board_.knows_its_deadline();
  const auto until = CommClock::now() + kLastWords;
  if (const auto news = lookout_->news_of(transfer.peer(), until)) {
    die(*news);
  } else {
    die(timed_out(transfer, what));
  }
  return death();
}

Error Mesh::timed_out(const Transfer& transfer, const std::string& what) const {
  const int32_t blamed = board_.culprit(transfer.peer(), CommClock::now() - kLastWords / 3);
  std::string text = fmt::format("rank {} waited in {} to {} rank {} until the deadline", rank_, what,
                                 transfer.send() ? "send to" : "receive from", transfer.peer());
  if (blamed != transfer.peer()) text += fmt::format(", which waits for rank {}", blamed);
  return make_error(Errc::kDeadlineExceeded, std::move(text), rank_name(blamed));
}

Status Mesh::health() {
  if (!dead()) {
    const std::optional<Error> news = lookout_ ? lookout_->news() : std::nullopt;
    if (!news) return Ok{};
    die(*news);
  }
  return death();
}

Error Mesh::death() {
  const std::lock_guard lock(death_mutex_);
  return *dead_;
}

void Mesh::die(const Error& why) {
  const std::lock_guard lock(death_mutex_);
  if (!dead_) bury(why, false);
}

void Mesh::bury(const Error& why, bool orderly) {
  dead_ = why;
  dead_flag_ = true;
  const std::lock_guard lock(post_mutex_);
  if (!lookout_) return;
  lookout_->tell(why);
  const std::vector<char> text = write_obituary({why, orderly});
  std::vector<Transfer> sends;
  for (int32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    Transfer send(peer, true, text.data(), text.size(), kObituarySlot);
    try {
      send.post(*news_context_);
      sends.push_back(std::move(send));
    } catch (const std::exception&) {
      // This peer is the one that died, or has closed the connection already and knows.
    }
  }
  const auto until = CommClock::now() + kObituaryTime;
  for (Transfer& send : sends) (void)lookout_->wait(send, until, false);
  if (orderly) return;  // what the peers have not read yet still reaches them
  for (int32_t peer = 0; peer < world_; ++peer) {
    if (peer == rank_) continue;
    for (const auto& context : {context_, news_context_}) {
      try {
        context->getPair(peer)->close();
      } catch (const std::exception&) {
        // Closed already.
      }
    }
  }
}

}  // namespace lariat
