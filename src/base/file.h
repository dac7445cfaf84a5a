// Whole small files as strings.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace lariat {

// kNotFound if it cannot be opened, kResourceExhausted if larger than bytes_max, with the path in the
// message.
Result<std::string> read_file(const std::filesystem::path& path, size_t bytes_max);

}  // namespace lariat
