// JSON from outside: parsed with a cap on depth, refusing duplicate keys and invalid UTF-8, with the fault's
// place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lariat {

struct JsonLimits {
  int depth_max = 64;
  bool reject_duplicate_keys = false;
};

// Never throws and never recurses deeper than the cap. kCorruptData: the byte offset and a short reason.
Result<nlohmann::json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Where a text stops being JSON, for messages: " at byte 7 (line 1, column 7)", each from 1; empty if it is
// JSON.
std::string json_fault_place(std::string_view text);

}  // namespace lariat
