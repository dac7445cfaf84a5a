// The JSON header of a safetensors file, as a streaming parse: no tree, no recursion.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/safetensors.h"

namespace lariat {

// Fills name, dtype_text, shape, begin and end of every tensor, in file order; `__metadata__` (strings only)
// is checked and dropped. Values are not judged here beyond their JSON type. kCorruptData with the tensor's
// name.
Result<std::vector<SafetensorsFile::Tensor>> parse_safetensors_header(std::string_view json);

}  // namespace lariat
