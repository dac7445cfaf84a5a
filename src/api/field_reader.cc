#include "api/field_reader.h"

#include <fmt/core.h>

#include "api/api_error.h"

namespace lariat {
namespace {

using nlohmann::json;

}  // namespace

std::string describe(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
    case json::value_t::number_float:
      return value.dump();
    case json::value_t::string:
      return "a string";
    case json::value_t::array:
      return "an array";
    case json::value_t::object:
      return "an object";
    default:
      return "something else";
  }
}

Result<int64_t> strict_integer(const json& value, int64_t lo, int64_t hi) {
  if (!value.is_number_integer()) {
    return make_error(Errc::kInvalidArgument, fmt::format("must be an integer, got {}", describe(value)));
  }
  const bool too_big = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t v = too_big ? INT64_MAX : value.get<int64_t>();
  if (too_big || v < lo || v > hi) {
    return make_error(Errc::kInvalidArgument,
                      fmt::format("must be between {} and {}, got {}", lo, hi, value.dump()));
  }
  return v;
}

FieldReader::FieldReader(const json& object, std::string path) : object_(object), path_(std::move(path)) {
  LARIAT_CHECK(object.is_object());
}

const json* FieldReader::get(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void FieldReader::fail(std::string_view name, std::string_view what) {
  if (!error_) error_ = field_error(path_of(name), what);
}

void FieldReader::refuse(std::string_view name, std::string_view why) {
  if (error_) return;
  error_ = field_error(path_of(name), why);
  error_->code = Errc::kUnsupported;
}

void FieldReader::boolean(std::string_view name, bool& out) {
  const json* v = get(name);
  if (v == nullptr) return;
  if (!v->is_boolean()) return fail(name, fmt::format("must be true or false, got {}", describe(*v)));
  out = v->get<bool>();
}

void FieldReader::string(std::string_view name, std::string& out) {
  const json* v = get(name);
  if (v == nullptr) return;
  if (!v->is_string()) return fail(name, fmt::format("must be a string, got {}", describe(*v)));
  out = v->get<std::string>();
}

void FieldReader::integer(std::string_view name, int64_t lo, int64_t hi, std::optional<int64_t>& out) {
  const json* v = get(name);
  if (v == nullptr) return;
  Result<int64_t> i = strict_integer(*v, lo, hi);
  if (!i.ok()) return fail(name, i.error().message);
  out = *i;
}

void FieldReader::integer(std::string_view name, int64_t lo, int64_t hi, int32_t& out) {
  LARIAT_CHECK(lo >= INT32_MIN && hi <= INT32_MAX);
  std::optional<int64_t> v;
  integer(name, lo, hi, v);
  if (v) out = static_cast<int32_t>(*v);
}

void FieldReader::number(std::string_view name, double lo, double hi, float& out) {
  const json* v = get(name);
  if (v == nullptr) return;
  if (!v->is_number()) return fail(name, fmt::format("must be a number, got {}", describe(*v)));
  const double d = v->get<double>();
  if (!(d >= lo && d <= hi)) {
    return fail(name, fmt::format("must be between {} and {}, got {}", lo, hi, v->dump()));
  }
  out = static_cast<float>(d);
}

const json* FieldReader::object(std::string_view name) {
  const json* v = get(name);
  if (v == nullptr || v->is_object()) return v;
  fail(name, fmt::format("must be an object, got {}", describe(*v)));
  return nullptr;
}

const json* FieldReader::array(std::string_view name) {
  const json* v = get(name);
  if (v == nullptr || v->is_array()) return v;
  fail(name, fmt::format("must be an array, got {}", describe(*v)));
  return nullptr;
}

}  // namespace lariat
