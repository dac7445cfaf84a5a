// The JSON header of a safetensors file, as a streaming parse: no tree, no recursion.
#pragma once

#include <string_view>
#include <vector>

#include "base/problems.h"
#include "weights/safetensors.h"

namespace lariat {

// Fills name, dtype_text, shape, begin and end of every tensor, in file order; `__metadata__` (strings only)
// is checked and dropped. Values are not judged here beyond their JSON type. Every entry's faults go to
// `problems` by the tensor's name; an entry that could not be read is not `readable`. kCorruptData if the
// text is no JSON object to its end, with the faults up to there.
Result<std::vector<SafetensorsFile::Tensor>> parse_safetensors_header(std::string_view json,
                                                                      Problems& problems);

}  // namespace lariat
