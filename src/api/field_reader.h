// Typed fields of one JSON object from a client, read strictly: null is absent, true is no number, 1.5 no
// integer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lariat {

// The first fault is kept and later reads do nothing, so a parser reads all its fields and asks once.
// An absent or null field leaves `out` as it is. `object` must outlive the reader.
class FieldReader {
 public:
  // `path` is where the object stands in the body ("stream_options"), empty for the body itself.
  explicit FieldReader(const nlohmann::json& object, std::string path = {});

  // nullptr if absent or null.
  const nlohmann::json* get(std::string_view name) const;

  void boolean(std::string_view name, bool& out);
  void string(std::string_view name, std::string& out);
  // Inclusive bounds.
  void integer(std::string_view name, int64_t lo, int64_t hi, std::optional<int64_t>& out);
  void integer(std::string_view name, int64_t lo, int64_t hi, int32_t& out);
  void number(std::string_view name, double lo, double hi, float& out);
  const nlohmann::json* object(std::string_view name);
  const nlohmann::json* array(std::string_view name);

  void fail(std::string_view name, std::string_view what);
  // Refuses a field we know and do not implement.
  void refuse(std::string_view name, std::string_view why);

  // Takes over the fault of a reader of an object inside this one.
  void adopt(const Error& error) {
    if (!error_) error_ = error;
  }

  bool ok() const { return !error_; }
  const Error& error() const { return *error_; }
  Status status() const { return error_ ? Status(*error_) : Status(Ok{}); }
  std::string path_of(std::string_view name) const;

 private:
  const nlohmann::json& object_;
  const std::string path_;
  std::optional<Error> error_;
};

// The value as an int64 in [lo, hi], or what is wrong with it.
Result<int64_t> strict_integer(const nlohmann::json& value, int64_t lo, int64_t hi);

// How a client's value is named in messages: "a string", "true", "1.5".
std::string describe(const nlohmann::json& value);

}  // namespace lariat
