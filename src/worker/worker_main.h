// The rank process: serves the head's control session around a RankCore, and ends when the head does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "worker/rank_core.h"

namespace lariat {

struct WorkerOptions {
  RankOptions rank;
  std::string address;  // "unix:/path", in a folder of mode 0700
  pid_t head_pid = 0;   // the parent; when it goes, this process goes within a second. 0: no such tie
  std::chrono::milliseconds heartbeat_interval{1000};
  std::chrono::milliseconds session_timeout{60'000};  // without a head's session for this long: end
};

// Serves one session on the calling thread, which also computes, and returns the exit code: 0 after a
// shutdown, 2 or 3 if loading was refused (the reason has gone to the head and to the log), 1 for other
// failures. Does not return when the head is gone or compute stalls: then it ends the process (1, or 70 with
// every thread's stack in the log), for compute may never come back.
int run_worker(const WorkerOptions& options, ExecutorFactory factory);

// Ends the process with exit code 70 and every thread's stack in the log: this rank is stuck. Any thread.
[[noreturn]] void end_stalled(const std::string& why);

}  // namespace lariat
