// The machine a number was measured on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lariat {

// The number of "key:   1234 kB" in a /proc file, in bytes; none if there is no such line.
std::optional<int64_t> proc_bytes(const std::string& path, std::string_view key);
std::string cpu_model();
// Bytes that could be taken without swapping (MemAvailable, and the cgroup's limit if that is less); 0 if
// unknown.
int64_t memory_available_bytes();
// {"cpu","isa","cores","threads","memory_bytes","kernel","lariat"}
nlohmann::ordered_json host_json(int32_t threads);

}  // namespace lariat
