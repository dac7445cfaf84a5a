// Values of the template language: Python's, as far as chat templates need them. Strings remember which of
// their bytes came from a user.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/byte_range.h"

namespace lariat::jinja {

// What unwinds the interpreter when a template or its input is at fault. Never leaves ChatTemplate.
struct Fault {
  Error error;
};
[[noreturn]] void fault(Errc code, std::string message);
// The template asks for what its input does not allow (an undefined value, a wrong type).
[[noreturn]] void type_fault(std::string message);

// What a render may still do. Work is counted, not timed, so that a template which asks for too much fails
// the same way on every machine; all of it is spent before it is done.
class Meter {
 public:
  Meter(uint64_t steps, uint64_t bytes) : steps_left_(steps), bytes_left_(bytes) {}

  // Nodes evaluated and elements visited.
  void spend_steps(uint64_t n) {
    if (n > steps_left_) fault(Errc::kResourceExhausted, "chat template: too many steps");
    steps_left_ -= n;
  }
  // Bytes of text and lists made, whether they live on or not.
  void spend_bytes(uint64_t n) {
    if (n > bytes_left_) fault(Errc::kResourceExhausted, "chat template: too much text");
    bytes_left_ -= n;
  }
  // Reading costs in bytes made, by what it takes: comparing or copying runs, character by character, and
  // changing case.
  void spend_scan(uint64_t bytes) { spend_bytes(bytes / 16); }
  void spend_walk(uint64_t bytes) { spend_bytes(4 * bytes); }
  void spend_case_map(uint64_t bytes) { spend_bytes(16 * bytes); }
  // Entries are found by going through them.
  void spend_lookup(uint64_t entries) { spend_steps(entries / 8); }

 private:
  uint64_t steps_left_;
  uint64_t bytes_left_;
};

// Valid UTF-8 and its untrusted byte ranges, sorted and disjoint.
struct Text {
  std::string bytes;
  std::vector<ByteRange> untrusted;

  static Text trusted(std::string s) { return {std::move(s), {}}; }
  static Text user(std::string s);
  void append(std::string_view s) { bytes += s; }
  void append(const Text& t);
  void append_user(std::string_view s);
  Text slice(size_t begin, size_t end) const {
    return {bytes.substr(begin, end - begin), clip_ranges(untrusted, {begin, end})};
  }
  // The same characters changed: untrusted as a whole if any of it is.
  Text mapped(std::string s) const { return untrusted.empty() ? trusted(std::move(s)) : user(std::move(s)); }
};

class Value;
struct List;
struct Dict;
struct Function;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> what;  // for the message when it is used
};
struct None {};
// A dict that `set ns.x = ..` changes. It cannot be an element of anything, so there are no cycles.
struct Namespace;

class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                   std::shared_ptr<const Function>, std::shared_ptr<Loop>>;
  Value() = default;
  Value(Variant v) : v_(std::move(v)) {}
  static Value undefined(std::string what);
  static Value of(Text text) { return Value(std::make_shared<const Text>(std::move(text))); }
  static Value of(bool b) { return Value(Variant(b)); }
  static Value of(int64_t i) { return Value(Variant(i)); }
  static Value of(size_t n) { return Value(Variant(static_cast<int64_t>(n))); }
  static Value of(double d) { return Value(Variant(d)); }
  static Value none() { return Value(Variant(None{})); }

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(v_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_number() const { return is<int64_t>() || is<double>() || is<bool>(); }
  bool is_integer() const { return is<int64_t>() || is<bool>(); }
  // The pointed-to object, or nullptr if it is of another kind.
  const Text* text() const { return get<const Text>(); }
  const List* list() const { return get<const List>(); }
  const Dict* dict() const { return get<const Dict>(); }
  Namespace* ns() const { return get<Namespace>(); }
  const Function* function() const { return get<const Function>(); }
  Loop* loop() const { return get<Loop>(); }
  int64_t integer() const { return is<bool>() ? (std::get<bool>(v_) ? 1 : 0) : std::get<int64_t>(v_); }
  double number() const { return is<double>() ? std::get<double>(v_) : static_cast<double>(integer()); }
  bool boolean() const { return std::get<bool>(v_); }
  const std::string& undefined_what() const { return *std::get<Undefined>(v_).what; }
  const Variant& variant() const { return v_; }

 private:
  template <typename T>
  T* get() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&v_);
    return p ? p->get() : nullptr;
  }
  Variant v_;
};

// Nesting of containers is bounded, so that no walk over a value can exhaust the stack.
inline constexpr int kValueDepthMax = 100;

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};

struct Dict {
  std::vector<std::pair<Text, Value>> items;  // in order of insertion, keys unique
  int depth = 1;
  const Value* find(std::string_view key) const;
  // Adds or replaces.
  void put(Text key, Value value);
};

struct Namespace {
  Dict dict;
};

// State of a running `for`, as the template sees it under the name `loop`.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index0 = 0;
};

// 0 for scalars. Fault if a container of depth `depth` would be too deep, or if `v` is a namespace.
int depth_of(const Value& v);
int container_depth(int element_depth_max);

std::string_view type_name(const Value& v);
bool truthy(const Value& v);
bool equal(Meter& meter, const Value& a, const Value& b);
// Python's <; a fault for types without an order.
bool less(Meter& meter, const Value& a, const Value& b);
// str(v), as a value and at the end of `out`.
Text to_text(Meter& meter, const Value& v);
void append_text(Meter& meter, Text& out, const Value& v);
std::string float_repr(double d);
// `digits` lower-case digits of `code`, at most 8.
void append_hex(std::string& out, unsigned code, int digits);

// All strings and keys are untrusted. Invalid UTF-8 is repaired. A fault if nested deeper than
// kValueDepthMax.
Value from_json(const nlohmann::ordered_json& json, int level = 0);

struct JsonStyle {
  int indent = -1;  // -1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
// As Python's json.dumps.
Text to_json(Meter& meter, const Value& v, const JsonStyle& style);

}  // namespace lariat::jinja
