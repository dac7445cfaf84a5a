// One rank of a group, whatever it runs in: a child process, a thread, later a host. It carries messages and
// ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/control/messages.h"

namespace lariat {

struct RankLinkEvents {
  std::function<void(FromRank)> on_message;  // one at a time, on a thread of the link
  std::function<void(Error)> on_down;        // at most once: the rank cannot be reached any more
};

class RankLink {
 public:
  // Ends the rank at once and waits for that; no event runs afterwards. Not from an event.
  virtual ~RankLink() = default;

  // Never blocks; before the rank is reachable messages wait. An error: the message will not arrive.
  // Thread-safe.
  virtual Status send(const ToRank& message) = 0;
  // Gives the rank up to `grace` to end by itself, then ends it. How it ended if it did so by itself, for a
  // message: "exit code 70", "signal 9 (Killed)"; empty if it had to be ended, or nothing is known. No event
  // runs afterwards. Not from an event.
  virtual std::string end(std::chrono::milliseconds grace) = 0;
  virtual int64_t pid() const = 0;
};

// Starts a rank and returns without waiting for it. Called on one thread that outlives the links it made.
using RankLinkFactory =
    std::function<Result<std::unique_ptr<RankLink>>(int32_t rank, Epoch epoch, RankLinkEvents events)>;

}  // namespace lariat
