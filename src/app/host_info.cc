#include "app/host_info.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "app/option_values.h"
#include "app/version.h"
#include "ops/isa.h"

namespace lariat {
namespace {

// The value after "key:" in a /proc file; empty if there is none.
std::string proc_field(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

// Room below the cgroup's limit, or INT64_MAX without one (cgroup v2; v1 containers report it at the same
// place or not).
int64_t cgroup_room_bytes() {
  std::ifstream max_file("/sys/fs/cgroup/memory.max");
  std::ifstream now_file("/sys/fs/cgroup/memory.current");
  std::string max;
  int64_t now = 0;
  if (!(max_file >> max) || !(now_file >> now)) return INT64_MAX;
  const auto limit = parse_int(max);
  return limit ? std::max<int64_t>(0, *limit - now) : INT64_MAX;
}

}  // namespace

std::optional<int64_t> proc_bytes(const std::string& path, std::string_view key) {
  const std::string field = proc_field(path, key);
  const auto kib = parse_int(field.substr(0, field.find(' ')));
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

std::string cpu_model() {
  const std::string name = proc_field("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown CPU" : name;
}

int64_t memory_available_bytes() {
  const auto available = proc_bytes("/proc/meminfo", "MemAvailable");
  return available ? std::min(*available, cgroup_room_bytes()) : 0;
}

nlohmann::ordered_json host_json(int32_t threads) {
  utsname names{};
  uname(&names);
  nlohmann::ordered_json host;
  host["cpu"] = cpu_model();
  host["isa"] = isa_name();
  host["cores"] = std::thread::hardware_concurrency();
  host["threads"] = threads;
  host["memory_bytes"] = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  host["kernel"] = std::string(names.sysname) + " " + names.release;
  host["lariat"] = kVersion;
  return host;
}

}  // namespace lariat
