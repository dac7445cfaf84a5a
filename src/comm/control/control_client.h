// The head's end of the control plane: one session with one rank.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "comm/control/messages.h"

namespace lariat {

struct ControlClientHandlers {
  // In the order the rank sent them, one at a time, on the session's reader thread.
  std::function<void(FromRank)> on_message;
  // At most once, after the last message: the stream ended or broke, and why. Not called for close().
  std::function<void(Error)> on_closed;
};

struct ControlClientOptions {
  std::string address;  // "unix:/path/socket"
  std::chrono::milliseconds connect_timeout{30'000};
  // Asked about every 50 ms while connecting; true gives up with kCancelled (the process has died).
  std::function<bool()> give_up;
};

class ControlClient {
 public:
  // Connects and opens the session. kDeadlineExceeded if nothing listens there in time.
  static Result<std::unique_ptr<ControlClient>> connect(const ControlClientOptions& options,
                                                        ControlClientHandlers handlers);
  virtual ~ControlClient() = default;  // closes

  // Hands the message to the writer thread; never blocks, also not on a stopped rank. Thread-safe.
  virtual Status send(const ToRank& message) = 0;
  // Says that nothing more will come, once what was sent is written: the rank sees an orderly end and closes.
  virtual void finish() = 0;
  // Breaks the session off; no handler runs afterwards. Not from a handler, and not with a lock held that a
  // handler takes.
  virtual void close() = 0;
};

}  // namespace lariat
