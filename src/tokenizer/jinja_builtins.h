// The names a template may use: filters, tests, methods and global functions.
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
class Context : public Meter {
 public:
  Context(const Meter& budget, std::tm local_time) : Meter(budget), now(local_time) {}

  Value text(Text t) {
    spend_bytes(sizeof(Text) + t.bytes.size() + sizeof(ByteRange) * t.untrusted.size());
    return Value::of(std::move(t));
  }
  Value list(std::vector<Value> items, bool tuple = false);
  Value dict(Dict d);
  // Elements of what a `for` can walk: a list, a dict's keys, a string's characters; none of undefined.
  std::vector<Value> elements(const Value& v);

  const std::tm now;  // local time, for strftime_now
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
bool contains(Meter& meter, const Value& left, const Value& right);

// str.strip: sides 1 left, 2 right, 3 both; white space if chars is null.
Text strip(Meter& meter, const Text& t, const Text* chars, int sides);
Text replace_all(Context& context, const Text& t, const Text& from, const Text& to, int64_t count_max);
Text capitalized(Meter& meter, const Text& t);
Text titled(Meter& meter, const Text& t);
// Where `needle` begins in `text` at or after `from`, or npos; linear in both.
size_t find_text(Meter& meter, std::string_view text, std::string_view needle, size_t from = 0);
// Offsets of every character, and the end.
std::vector<size_t> char_offsets(Meter& meter, std::string_view utf8);

}  // namespace lariat::jinja
