// Methods of strings, dicts, lists and loops, and the global functions.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {

void Args::check(std::initializer_list<std::string_view> parameters) const {
  if (positional.size() > parameters.size()) {
    type_fault(fmt::format("chat template: {}() takes at most {} arguments", callee, parameters.size()));
  }
  for (const auto& [name, value] : named) {
    if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) {
      fault(Errc::kUnsupported, fmt::format("chat template: {}() has no argument '{}'", callee, name));
    }
  }
}

const Value* Args::get(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [n, value] : named) {
    if (n == name) return &value;
  }
  return nullptr;
}

const Value& Args::required(size_t index, std::string_view name) const {
  const Value* v = get(index, name);
  if (!v) type_fault(fmt::format("chat template: {}() needs the argument '{}'", callee, name));
  return *v;
}

const Text& Args::text(size_t index, std::string_view name) const {
  const Value& v = required(index, name);
  if (!v.text())
    type_fault(fmt::format("chat template: {}(): '{}' must be a str, not {}", callee, name, type_name(v)));
  return *v.text();
}

int64_t Args::integer(size_t index, std::string_view name, int64_t fallback) const {
  const Value* v = get(index, name);
  if (!v || v->is_none()) return fallback;
  if (!v->is_integer())
    type_fault(fmt::format("chat template: {}(): '{}' must be an int, not {}", callee, name, type_name(*v)));
  return v->integer();
}

bool Args::flag(size_t index, std::string_view name, bool fallback) const {
  const Value* v = get(index, name);
  return v ? truthy(*v) : fallback;
}

namespace {

struct Named {
  std::string_view name;
  Builtin builtin;
};

template <size_t N>
Builtin find_in(const std::array<Named, N>& table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(), [&](const Named& n) { return n.name == name; });
  return it == table.end() ? nullptr : it->builtin;
}

template <int sides>
Value strip_method(Context& c, const Value& self, const Args& a) {
  a.check({"chars"});
  const Value* chars = a.get(0, "chars");
  return c.text(strip(c, *self.text(), chars && !chars->is_none() ? &a.text(0, "chars") : nullptr, sides));
}

// A str or a tuple of them.
template <bool at_end>
Value affix_method(Context& c, const Value& self, const Args& a) {
  a.check({"affix"});
  const auto has = [&](const Value& v) {
    if (!v.text()) type_fault(fmt::format("chat template: {}() needs a str", a.callee));
    const std::string& s = self.text()->bytes;
    c.spend_scan(v.text()->bytes.size());
    return at_end ? s.ends_with(v.text()->bytes) : s.starts_with(v.text()->bytes);
  };
  const Value& affix = a.required(0, "affix");
  if (!affix.list()) return Value::of(has(affix));
  const auto& list = affix.list()->items;
  c.spend_steps(list.size());
  return Value::of(std::any_of(list.begin(), list.end(), has));
}

template <bool from_end>
Value remove_affix(Context& c, const Value& self, const Args& a) {
  a.check({"affix"});
  const Text &t = *self.text(), &affix = a.text(0, "affix");
  const size_t n = affix.bytes.size(), size = t.bytes.size();
  if (from_end ? !t.bytes.ends_with(affix.bytes) : !t.bytes.starts_with(affix.bytes)) return self;
  return c.text(from_end ? t.slice(0, size - n) : t.slice(n, size));
}

// Runs of white space separate; none at the ends.
Value split_blank(Context& c, const Text& t, int64_t splits_max, bool from_right) {
  std::vector<Value> out;
  c.spend_bytes(t.bytes.size());
  Text rest = t;
  for (; splits_max != 0; --splits_max) {
    rest = strip(c, rest, nullptr, 3);
    if (rest.bytes.empty()) return c.list(std::move(out));
    const std::vector<size_t> offsets = char_offsets(c, rest.bytes);
    c.spend_steps(1);
    size_t n = offsets.size() - 1, i = 0;
    const auto blank = [&](size_t k) {
      return is_space(utf8_next(std::string_view(rest.bytes).substr(offsets[k])).code);
    };
    if (!from_right && splits_max < 0) {  // all of them, in one walk
      while (i < n) {
        const size_t begin = i;
        while (i < n && !blank(i)) ++i;
        out.push_back(c.text(rest.slice(offsets[begin], offsets[i])));
        while (i < n && blank(i)) ++i;
      }
      return c.list(std::move(out));
    }
    if (from_right) {
      while (n > 0 && !blank(n - 1)) --n;
      out.push_back(c.text(rest.slice(offsets[n], rest.bytes.size())));
      rest = rest.slice(0, offsets[n]);
    } else {
      while (i < n && !blank(i)) ++i;
      out.push_back(c.text(rest.slice(0, offsets[i])));
      rest = rest.slice(offsets[i], rest.bytes.size());
    }
  }
  rest = strip(c, rest, nullptr, from_right ? 2 : 1);
  if (!rest.bytes.empty()) out.push_back(c.text(std::move(rest)));
  if (from_right) std::reverse(out.begin(), out.end());
  return c.list(std::move(out));
}

// Backwards there is no linear search: a needle is compared at every place, this many bytes for one.
constexpr size_t kBackwardsAtOnce = 32;

template <bool from_right>
Value split_method(Context& c, const Value& self, const Args& a) {
  a.check({"sep", "maxsplit"});
  const Text& t = *self.text();
  int64_t left = a.integer(1, "maxsplit", -1);
  const Value* sep_value = a.get(0, "sep");
  if (!sep_value || sep_value->is_none())
    return split_blank(c, t, from_right && left < 0 ? -1 : left, from_right && left >= 0);
  const std::string& sep = a.text(0, "sep").bytes;
  if (from_right) c.spend_bytes(t.bytes.size() * (1 + sep.size() / kBackwardsAtOnce));
  if (sep.empty()) type_fault("chat template: split() by an empty separator");
  std::vector<Value> out;
  size_t begin = 0, end = t.bytes.size();
  for (; left != 0; --left) {
    if (from_right) {
      c.spend_steps(1);
      const size_t at = end < sep.size() ? std::string::npos : t.bytes.rfind(sep, end - sep.size());
      if (at == std::string::npos) break;
      out.push_back(c.text(t.slice(at + sep.size(), end)));
      end = at;
    } else {
      const size_t at = find_text(c, t.bytes, sep, begin);
      if (at == std::string::npos) break;
      out.push_back(c.text(t.slice(begin, at)));
      begin = at + sep.size();
    }
  }
  out.push_back(c.text(t.slice(begin, end)));
  if (from_right) std::reverse(out.begin(), out.end());
  return c.list(std::move(out));
}

Value splitlines_method(Context& c, const Value& self, const Args& a) {
  a.check({"keepends"});
  const bool keep = a.flag(0, "keepends", false);
  const Text& t = *self.text();
  c.spend_walk(t.bytes.size());
  std::vector<Value> out;
  for (size_t at = 0; at < t.bytes.size();) {
    size_t end = t.bytes.find_first_of("\n\r\v\f", at);
    if (end == std::string::npos) end = t.bytes.size();
    size_t next = std::min(end + 1, t.bytes.size());
    if (next < t.bytes.size() && t.bytes[end] == '\r' && t.bytes[next] == '\n') ++next;
    out.push_back(c.text(t.slice(at, keep ? next : end)));
    at = next;
  }
  return c.list(std::move(out));
}

Value replace_method(Context& c, const Value& self, const Args& a) {
  a.check({"old", "new", "count"});
  return c.text(replace_all(c, *self.text(), a.text(0, "old"), a.text(1, "new"), a.integer(2, "count", -1)));
}

// Index in characters, or -1.
template <bool last, bool must>
Value find_text_method(Context& c, const Value& self, const Args& a) {
  a.check({"sub"});
  const std::string &s = self.text()->bytes, &sub = a.text(0, "sub").bytes;
  c.spend_bytes(s.size());  // to count the characters before it
  if (last) c.spend_bytes(s.size() * (1 + sub.size() / kBackwardsAtOnce));
  const size_t at = last ? s.rfind(sub) : find_text(c, s, sub);
  if (at == std::string::npos) {
    if (must) type_fault("chat template: index(): substring not found");
    return Value::of(int64_t{-1});
  }
  return Value::of(utf8_count(std::string_view(s).substr(0, at)));
}

Value count_text_method(Context& c, const Value& self, const Args& a) {
  a.check({"sub"});
  const std::string &s = self.text()->bytes, &sub = a.text(0, "sub").bytes;
  c.spend_bytes(s.size());
  if (sub.empty()) return Value::of(utf8_count(s) + 1);
  size_t n = 0;
  for (size_t at = 0; (at = find_text(c, s, sub, at)) != std::string::npos; at += sub.size()) ++n;
  return Value::of(n);
}

Value join_method(Context& c, const Value& self, const Args& a) {
  a.check({"items"});
  Text out;
  bool first = true;
  for (const Value& v : c.elements(a.required(0, "items"))) {
    if (!v.text()) type_fault(fmt::format("chat template: join() of {}", type_name(v)));
    c.spend_bytes(v.text()->bytes.size() + self.text()->bytes.size() +
                  sizeof(ByteRange) * self.text()->untrusted.size());
    if (!first) out.append(*self.text());
    first = false;
    out.append(*v.text());
  }
  return c.text(std::move(out));
}

template <std::string (*map)(std::string_view)>
Value map_method(Context& c, const Value& self, const Args& a) {
  a.check({});
  c.spend_case_map(self.text()->bytes.size());
  return c.text(self.text()->mapped(map(self.text()->bytes)));
}
Value title_method(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.text(titled(c, *self.text()));
}
Value capitalize_method(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.text(capitalized(c, *self.text()));
}

// All characters have the property, and there is one.
template <bool (*property)(char32_t)>
Value all_method(Context& c, const Value& self, const Args& a) {
  a.check({});
  std::string_view s = self.text()->bytes;
  c.spend_walk(s.size());
  if (s.empty()) return Value::of(false);
  while (!s.empty()) {
    const Utf8Char next = utf8_next(s);
    if (!property(next.code)) return Value::of(false);
    s.remove_prefix(next.length);
  }
  return Value::of(true);
}
bool is_alnum(char32_t c) {
  return is_alpha(c) || is_digit(c);
}

// --- dicts, lists, loops

const Dict& dict_of(const Value& self) {
  const Dict* dict = self.ns() ? &self.ns()->dict : self.dict();
  LARIAT_CHECK(dict != nullptr, "a method of dicts, called on something else");
  return *dict;
}

Value dict_get(Context& c, const Value& self, const Args& a) {
  a.check({"key", "default"});
  const Value& key = a.required(0, "key");
  c.spend_lookup(dict_of(self).items.size());
  const Value* found = key.text() ? dict_of(self).find(key.text()->bytes) : nullptr;
  if (found) return *found;
  const Value* fallback = a.get(1, "default");
  return fallback ? *fallback : Value::none();
}
Value dict_items(Context& c, const Value& self, const Args& a) {
  a.check({});
  std::vector<Value> out;
  for (const auto& [key, value] : dict_of(self).items) {
    c.spend_steps(1);
    out.push_back(c.list({c.text(key), value}, true));
  }
  return c.list(std::move(out));
}
Value dict_keys(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.list(c.elements(self));
}
Value dict_values(Context& c, const Value& self, const Args& a) {
  a.check({});
  std::vector<Value> out;
  c.spend_steps(dict_of(self).items.size());
  for (const auto& [key, value] : dict_of(self).items) out.push_back(value);
  return c.list(std::move(out));
}

Value list_index(Context& c, const Value& self, const Args& a) {
  a.check({"value"});
  const auto& items = self.list()->items;
  const auto it = std::find_if(items.begin(), items.end(),
                               [&](const Value& v) { return equal(c, v, a.required(0, "value")); });
  if (it == items.end()) type_fault("chat template: index(): value not in list");
  return Value::of(static_cast<int64_t>(it - items.begin()));
}
Value list_count(Context& c, const Value& self, const Args& a) {
  a.check({"value"});
  const auto& items = self.list()->items;
  return Value::of(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& v) { return equal(c, v, a.required(0, "value")); })));
}

Value loop_cycle(Context&, const Value& self, const Args& a) {
  if (a.positional.empty()) type_fault("chat template: cycle() without values");
  return a.positional[self.loop()->index0 % a.positional.size()];
}

// --- global functions

Value raise_exception(Context& c, const Value&, const Args& a) {
  a.check({"message"});
  constexpr size_t kShownMax = 2000;
  std::string message = to_text(c, a.required(0, "message")).bytes;
  if (message.size() > kShownMax) message = utf8_sanitize(message.substr(0, kShownMax));
  type_fault(std::move(message));
}

Value strftime_now(Context& c, const Value&, const Args& a) {
  a.check({"format"});
  const Text& format = a.text(0, "format");
  if (format.bytes.size() > 128)
    fault(Errc::kUnsupported, "chat template: strftime_now() with a long format");
  char buffer[1024];
  c.spend_bytes(2 * sizeof(buffer));
  const size_t n = std::strftime(buffer, sizeof(buffer), format.bytes.c_str(), &c.now);
  return c.text(format.mapped(utf8_sanitize(std::string_view(buffer, n))));
}

Value range_function(Context& c, const Value&, const Args& a) {
  a.check({"start", "stop", "step"});
  const bool one = a.positional.size() < 2;
  const int64_t begin = one ? 0 : a.integer(0, "start", 0), end = a.integer(one ? 0 : 1, "stop", 0);
  const int64_t step = a.integer(2, "step", 1);
  if (step == 0) type_fault("chat template: range() with step 0");
  std::vector<Value> out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    c.spend_steps(1);
    c.spend_bytes(sizeof(Value));
    out.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return c.list(std::move(out));
}

Dict named_arguments(Meter& meter, const Args& a) {
  if (!a.positional.empty())
    fault(Errc::kUnsupported, fmt::format("chat template: {}() of a value", a.callee));
  Dict d;
  for (const auto& [name, value] : a.named) {
    container_depth(depth_of(value));
    meter.spend_lookup(d.items.size());
    d.put(Text::trusted(name), value);
  }
  return d;
}
Value namespace_function(Context& c, const Value&, const Args& a) {
  return Value(std::make_shared<Namespace>(Namespace{named_arguments(c, a)}));
}
Value dict_function(Context& c, const Value&, const Args& a) {
  return c.dict(named_arguments(c, a));
}

constexpr std::array kTextMethods = {
    Named{"strip", strip_method<3>},
    Named{"lstrip", strip_method<1>},
    Named{"rstrip", strip_method<2>},
    Named{"startswith", affix_method<false>},
    Named{"endswith", affix_method<true>},
    Named{"split", split_method<false>},
    Named{"rsplit", split_method<true>},
    Named{"splitlines", splitlines_method},
    Named{"replace", replace_method},
    Named{"find", find_text_method<false, false>},
    Named{"rfind", find_text_method<true, false>},
    Named{"index", find_text_method<false, true>},
    Named{"count", count_text_method},
    Named{"join", join_method},
    Named{"upper", map_method<to_upper>},
    Named{"lower", map_method<to_lower>},
    Named{"title", title_method},
    Named{"capitalize", capitalize_method},
    Named{"removeprefix", remove_affix<false>},
    Named{"removesuffix", remove_affix<true>},
    Named{"isdigit", all_method<is_digit>},
    Named{"isalpha", all_method<is_alpha>},
    Named{"isalnum", all_method<is_alnum>},
    Named{"isspace", all_method<is_space>},
};
constexpr std::array kDictMethods = {Named{"get", dict_get}, Named{"items", dict_items},
                                     Named{"keys", dict_keys}, Named{"values", dict_values}};
constexpr std::array kListMethods = {Named{"index", list_index}, Named{"count", list_count}};
constexpr std::array kLoopMethods = {Named{"cycle", loop_cycle}};
constexpr std::array kGlobals = {Named{"raise_exception", raise_exception},
                                 Named{"strftime_now", strftime_now}, Named{"range", range_function},
                                 Named{"namespace", namespace_function}, Named{"dict", dict_function}};

}  // namespace

Builtin find_method(const Value& self, std::string_view name) {
  if (self.text()) return find_in(kTextMethods, name);
  if (self.dict()) return find_in(kDictMethods, name);
  if (self.list()) return find_in(kListMethods, name);
  if (self.loop()) return find_in(kLoopMethods, name);
  return nullptr;
}

Builtin find_global(std::string_view name) {
  return find_in(kGlobals, name);
}

}  // namespace lariat::jinja
