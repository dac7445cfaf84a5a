// The names a template may use: filters, tests, methods and global functions, and the budget they spend.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace lariat::jinja {

struct Budget {
  uint64_t steps_left;  // nodes evaluated and elements visited
  uint64_t bytes_left;  // of every value made, whether it lives on or not
};

struct Stmt;
struct Frame;
struct Args;
class Context;

// A builtin: the value it applies to (undefined for global functions), then its arguments.
using Builtin = Value (*)(Context&, const Value& self, const Args& args);

struct Function {
  std::string name;
  Builtin builtin = nullptr;  // with `self`
  Value self;
  const Stmt* macro = nullptr;  // with `scope`
  std::weak_ptr<Frame> scope;
};

// What a builtin may ask of the render that calls it.
class Context {
 public:
  Context(Budget budget, std::tm local_time) : now(local_time), budget_(budget) {}

  void spend_steps(uint64_t n) {
    if (n > budget_.steps_left) fault(Errc::kResourceExhausted, "chat template: too many steps");
    budget_.steps_left -= n;
  }
  void spend_bytes(uint64_t n) {
    if (n > budget_.bytes_left) fault(Errc::kResourceExhausted, "chat template: too much text");
    budget_.bytes_left -= n;
  }
  Value text(Text t) {
    spend_bytes(32 + t.bytes.size() + sizeof(ByteRange) * t.untrusted.size());
    return Value::of(std::move(t));
  }
  Value list(std::vector<Value> items, bool tuple = false);
  Value dict(Dict d);
  // Elements of what a `for` can walk: a list, a dict's keys, a string's characters; none of undefined.
  std::vector<Value> elements(const Value& v);

  const std::tm now;  // local time, for strftime_now

 private:
  Budget budget_;
};

// Arguments of one call, by position or by name.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  std::string_view callee;

  // Faults unless the arguments fit the parameter names; missing ones are fine.
  void check(std::initializer_list<std::string_view> parameters) const;
  // The argument of a parameter, or nullptr.
  const Value* get(size_t index, std::string_view name) const;
  // Typed forms; a fault names the callee.
  const Value& required(size_t index, std::string_view name) const;
  const Text& text(size_t index, std::string_view name) const;
  int64_t integer(size_t index, std::string_view name, int64_t fallback) const;
  bool flag(size_t index, std::string_view name, bool fallback) const;
};

// nullptr for a name we do not have.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_global(std::string_view name);
// Methods of strings, dicts, lists and loops.
Builtin find_method(const Value& self, std::string_view name);

// self.name and self[key], as Jinja resolves them: undefined if there is no such thing.
Value get_attribute(Context& context, const Value& self, std::string_view name);
Value get_item(Context& context, const Value& self, const Value& key);
// Null parts are none.
Value get_slice(Context& context, const Value& self, const Value& first, const Value& last,
                const Value& step);
Value binary_operator(Context& context, std::string_view op, const Value& left, const Value& right);
// left in right
bool contains(const Value& left, const Value& right);

// str.strip: sides 1 left, 2 right, 3 both; white space if chars is null.
Text strip(const Text& t, const Text* chars, int sides);
Text replace_all(Context& context, const Text& t, const Text& from, const Text& to, int64_t count_max);
Text capitalized(const Text& t);
Text titled(const Text& t);
// Offsets of every character, and the end.
std::vector<size_t> char_offsets(std::string_view utf8);

}  // namespace lariat::jinja
