// Threads that end waits: two a peer for its obituary and its connections, one for deadlines.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "comm/gloo/transfer.h"
#include "comm/group.h"

namespace lariat {

// Why a wait ended. kNews: news() says why; kDeadline: the transfer is still open.
enum class WaitEnd : uint8_t { kDone, kFailed, kDeadline, kNews };

class Lookout {
 public:
  using Blamed = std::function<void(const Error& why)>;
  // Posts a receive to every peer on either connection. May throw whatever Gloo throws. on_blamed: see
  // GlooOptions.
  Lookout(gloo::transport::Context& news, gloo::transport::Context& data, int32_t world, int32_t rank,
          Blamed on_blamed = {});
  ~Lookout();
  Lookout(const Lookout&) = delete;
  Lookout& operator=(const Lookout&) = delete;

  // What a peer's obituary said, or that its connection has closed: whichever came first. That a peer has
  // left in order is no news: what it sent before is good, and whatever depends on more fails by itself.
  std::optional<Error> news();
  // Why the connection to `peer` has closed, for which it waits, or other news.
  std::optional<Error> news_of(int32_t peer, Deadline deadline);
  // Ends the waits that heed news.
  void tell(const Error& why);

  // Any thread. A wait for an obituary's own sending does not heed news.
  WaitEnd wait(Transfer& transfer, Deadline deadline, bool heed_news = true);

 private:
  struct Watch {
    std::vector<char> text;
    std::unique_ptr<Transfer> receive;
    // Never completes. Gloo does not tell a transfer that is half read or half written that its connection
    // has closed; this one it tells.
    std::unique_ptr<Transfer> canary;
    std::thread news_thread, data_thread;
    std::optional<Error> left;
  };
  struct Waiter {
    Transfer* transfer;
    Deadline deadline;
    bool heed_news;
    bool expired = false;
  };
  void watch_news(Watch& w);
  void watch_data(Watch& w);
  void keep_time();
  void tell_locked(const Error& why);

  const std::string own_name_;  // as errors name this rank
  const Blamed on_blamed_;
  std::mutex mutex_;
  std::condition_variable time_changed_, news_came_;
  std::optional<Error> news_;
  std::list<Waiter> waiters_;
  Deadline armed_ = Deadline::max();  // when keep_time looks again
  bool stopping_ = false;
  std::vector<Watch> watches_;
  std::thread clock_;
};

}  // namespace lariat
