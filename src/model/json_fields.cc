#include "model/json_fields.h"

#include <fmt/core.h>

#include <limits>

namespace lariat {
namespace {

// The value as int64 if it is a JSON integer in that range.
std::optional<int64_t> as_integer(const nlohmann::json& v) {
  if (v.is_number_unsigned()) {
    const auto u = v.get<uint64_t>();
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(u);
  }
  if (v.is_number_integer()) return v.get<int64_t>();
  return std::nullopt;
}

}  // namespace

std::string show(const nlohmann::json& value) {
  if (value.is_string()) return "\"" + printable(value.get_ref<const std::string&>()) + "\"";
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return value.dump();
}

const nlohmann::json* JsonFields::get(std::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> JsonFields::integer(std::string_view key, int64_t min, int64_t max) const {
  const nlohmann::json* v = get(key);
  if (!v) return std::nullopt;
  const auto n = as_integer(*v);
  if (n && *n >= min && *n <= max) return n;
  problem(fmt::format("{} is {}, must be an integer from {} to {}", name(key), show(*v), min, max));
  return std::nullopt;
}

std::optional<double> JsonFields::number(std::string_view key, double min, double max) const {
  const nlohmann::json* v = get(key);
  if (!v) return std::nullopt;
  if (v->is_number()) {
    const double n = v->get<double>();
    if (n >= min && n <= max) return n;
  }
  problem(fmt::format("{} is {}, must be a number from {} to {}", name(key), show(*v), min, max));
  return std::nullopt;
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const nlohmann::json* v = get(key);
  if (!v) return std::nullopt;
  if (v->is_boolean()) return v->get<bool>();
  problem(fmt::format("{} is {}, must be true or false", name(key), show(*v)));
  return std::nullopt;
}

std::optional<std::string> JsonFields::text(std::string_view key) const {
  const nlohmann::json* v = get(key);
  if (!v) return std::nullopt;
  if (v->is_string()) return v->get<std::string>();
  problem(fmt::format("{} is {}, must be a string", name(key), show(*v)));
  return std::nullopt;
}

std::vector<int32_t> JsonFields::ids(std::string_view key, int32_t max, size_t count_max) const {
  const nlohmann::json* v = get(key);
  if (!v) return {};
  std::vector<int32_t> out;
  const bool list = v->is_array();
  if (!list || v->size() <= count_max) {
    const auto take = [&](const nlohmann::json& item) {
      const auto n = as_integer(item);
      if (n && *n >= 0 && *n <= max) out.push_back(static_cast<int32_t>(*n));
    };
    if (list) {
      for (const auto& item : *v) take(item);
    } else {
      take(*v);
    }
    if (out.size() == (list ? v->size() : 1)) return out;
  }
  problem(fmt::format("{} is {}, must be a token id from 0 to {} or a list of at most {}", name(key),
                      show(*v), max, count_max));
  return {};
}

std::optional<int64_t> JsonFields::required(std::string_view key, int64_t min, int64_t max) const {
  if (!get(key)) problem(fmt::format("{} is missing", name(key)));
  return integer(key, min, max);
}

void JsonFields::refuse_null(std::string_view key) const {
  if (written(key) && !get(key)) problem(fmt::format("{} is null", name(key)));
}

}  // namespace lariat
