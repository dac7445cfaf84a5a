#include "app/process_memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "app/host_info.h"

namespace lariat {
namespace {

// As weights/packed_store names its memory files.
constexpr std::string_view kWeightsFile = "/memfd:lariat-weights";

// "address perms offset device inode path": the inode of a mapping of weights, or none. Other lines of smaps
// have a key with a colon first.
std::optional<uint64_t> weights_inode(const std::string& line) {
  std::istringstream fields(line);
  std::string address, perms, offset, device, path;
  uint64_t inode = 0;
  if (!(fields >> address >> perms >> offset >> device >> inode >> path)) return std::nullopt;
  return path.starts_with(kWeightsFile) ? std::optional(inode) : std::nullopt;
}

}  // namespace

Result<ProcessMemory> read_process_memory(pid_t pid) {
  const auto peak = proc_bytes(fmt::format("/proc/{}/status", pid), "VmHWM:");
  const auto pss = proc_bytes(fmt::format("/proc/{}/smaps_rollup", pid), "Pss:");
  if (!peak || !pss)
    return make_error(Errc::kUnavailable, fmt::format("/proc does not tell the memory of process {}", pid));
  return ProcessMemory{*peak, *pss};
}

std::optional<int64_t> shared_weights_bytes(std::span<const pid_t> pids) {
  std::map<uint64_t, int64_t> resident;  // by memory file: the most that one process has touched
  for (const pid_t pid : pids) {
    std::ifstream in(fmt::format("/proc/{}/smaps", pid));
    std::map<uint64_t, int64_t> here;
    std::optional<uint64_t> inode;
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("Rss:") && inode) {
        here[*inode] += std::strtoll(line.c_str() + 4, nullptr, 10) * 1024;  // "Rss:   1234 kB"
        inode.reset();
      } else if (line.find(kWeightsFile) != std::string::npos) {
        inode = weights_inode(line);
      }
    }
    for (const auto& [file, bytes] : here) resident[file] = std::max(resident[file], bytes);
  }
  if (resident.empty()) return std::nullopt;
  int64_t sum = 0;
  for (const auto& [file, bytes] : resident) sum += bytes;
  return sum;
}

}  // namespace lariat
