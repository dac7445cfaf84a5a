// The rotary part of config.json, in its old and its new layout.
#pragma once

#include "model/config.h"
#include "model/json_fields.h"

namespace lariat {

// `config` is the top object. Faults become problems; the result is usable only if none was added.
RopeConfig parse_rope(const JsonFields& config, int64_t max_position);

}  // namespace lariat
