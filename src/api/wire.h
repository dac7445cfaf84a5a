// What leaves on the wire: JSON with keys in the order they were set, always valid UTF-8 and finite numbers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lariat {

using WireJson = nlohmann::ordered_json;

// Compact. Bytes that are not UTF-8 become U+FFFD; never throws.
inline std::string to_wire(const WireJson& json) {
  return json.dump(-1, ' ', false, WireJson::error_handler_t::replace);
}

}  // namespace lariat
