// A child process that never outlives its owner unreaped.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lariat {

struct ExitStatus {
  int wait_status = 0;                   // as waitpid gives it
  std::string text() const;              // "exit code 70", "signal 9 (Killed)"
  std::optional<int> exit_code() const;  // none if a signal ended it
};

class ChildProcess {
 public:
  // Runs `path` with args (args[0] is the name it goes by): stdin is empty, stdout goes to our stderr, every
  // other descriptor is closed, signals are at their defaults, and it leads a process group of its own so
  // that a terminal's Ctrl-C reaches the head alone. kUnavailable if it cannot be started.
  static Result<std::unique_ptr<ChildProcess>> spawn(const std::string& path, std::vector<std::string> args);
  ~ChildProcess();  // kills and reaps
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // How it ended, once it has. Thread-safe, all of these.
  std::optional<ExitStatus> poll();
  std::optional<ExitStatus> wait(std::chrono::milliseconds timeout);
  ExitStatus kill();  // SIGKILL if it still runs

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
  std::mutex mutex_;
  std::optional<ExitStatus> ended_;
};

}  // namespace lariat
