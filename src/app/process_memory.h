// What a process of this machine holds in memory, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"

namespace lariat {

struct ProcessMemory {
  int64_t peak_rss_bytes = 0;  // resident at most since its start, pages it shares included
  int64_t pss_bytes = 0;       // resident now, a page shared by n processes counted as 1/n of it
};

// kUnavailable if there is no such process of this user.
Result<ProcessMemory> read_process_memory(pid_t pid);

// Resident bytes of the packed weights in memory files, each file once however many of the processes map it.
// Empty if none maps one.
std::optional<int64_t> shared_weights_bytes(std::span<const pid_t> pids);

}  // namespace lariat
