// A rank's end of the control plane: listens, serves one session at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "comm/control/messages.h"

namespace lariat {

struct ControlServerHandlers {
  // In the order they were sent, one at a time, on a thread of the server; must not block for long.
  std::function<void(ToRank)> on_message;
  // Once a session: the head is gone or the stream broke. Not called for stop().
  std::function<void(Error)> on_closed;
};

class ControlServer {
 public:
  // address: "unix:/path/socket". kUnavailable if it cannot be bound.
  static Result<std::unique_ptr<ControlServer>> listen(const std::string& address,
                                                       ControlServerHandlers handlers);
  virtual ~ControlServer() = default;  // stops

  // Hands the message to the writer thread; never blocks. kUnavailable without a session. Thread-safe.
  virtual Status send(const FromRank& message) = 0;
  // Waits until what was sent has left this process; false on timeout or without a session. For last words.
  virtual bool flush(std::chrono::milliseconds timeout) = 0;
  // Ends the session and the listening; no handler runs afterwards. Not from a handler.
  virtual void stop() = 0;
};

}  // namespace lariat
