// One rank of a group, whatever it runs in: a child process, a thread, later a host. It carries messages and
// ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/control/messages.h"

namespace lariat {

struct RankLinkEvents {
  std::function<void(FromRank)> on_message;  // one at a time, on a thread of the link
  std::function<void(Error)> on_down;        // at most once: the rank cannot be reached any more
};

struct RankEnding {
  std::string text;  // for a message: "exit code 70", "signal 9 (Killed)"; empty: nothing is known
  std::optional<int> exit_code;  // of a process that exited by itself
};

class RankLink {
 public:
  // Ends the rank at once and waits for that; no event runs afterwards. Not from an event.
  virtual ~RankLink() = default;

  // Never blocks; before the rank is reachable messages wait. An error: the message will not arrive.
  // Thread-safe.
  virtual Status send(const ToRank& message) = 0;
  // Gives the rank up to `grace` to end by itself, then ends it. How it ended if it did so by itself; nothing
  // if it had to be ended. No event runs afterwards. Not from an event.
  virtual RankEnding end(std::chrono::milliseconds grace) = 0;
  virtual int64_t pid() const = 0;
};

// Starts a rank and returns without waiting for it. Called on one thread that outlives the links it made.
using RankLinkFactory =
    std::function<Result<std::unique_ptr<RankLink>>(int32_t rank, Epoch epoch, RankLinkEvents events)>;

}  // namespace lariat
