// Typed access to the fields of one JSON object from outside; every fault becomes a problem with its path.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/problems.h"

namespace lariat {

// null counts as absent: that is how Hugging Face writes "not set".
class JsonFields {
 public:
  // `object` must be an object and outlive this; `path` is "" at the top, else "rope_scaling." and so on.
  JsonFields(const nlohmann::json& object, std::string path, Problems& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // nullptr if absent or null.
  const nlohmann::json* get(std::string_view key) const;
  bool written(std::string_view key) const { return object_.contains(key); }  // null included

  // Each returns nullopt if absent, and after adding a problem if the value has another type or range.
  // A float is no integer, even 4.0; a boolean is no number.
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view key, double min, double max) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  // One integer, or a list of at most `count_max`.
  std::vector<int32_t> ids(std::string_view key, int32_t max, size_t count_max) const;
  // As integer(), but absence is a problem.
  std::optional<int64_t> required(std::string_view key, int64_t min, int64_t max) const;
  // A problem if the key is written and null: there "not set" means nothing.
  void refuse_null(std::string_view key) const;

  std::string name(std::string_view key) const { return path_ + std::string(key); }
  void problem(std::string text) const { problems_.add(std::move(text)); }
  Problems& problems() const { return problems_; }
  const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json& object_;
  std::string path_;
  Problems& problems_;
};

// A value in a message: cut to a readable length.
std::string show(const nlohmann::json& value);

}  // namespace lariat
