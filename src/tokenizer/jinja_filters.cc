// Filters of the template language.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_builtins.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace lariat::jinja {
namespace {

struct Named {
  std::string_view name;
  Builtin builtin;
};

// attribute="a.b" of map, selectattr, join, sort.
Value attribute_path(Context& c, Value v, std::string_view path) {
  while (!path.empty()) {
    const size_t dot = path.find('.');
    v = get_item(c, v, c.text(Text::trusted(std::string(path.substr(0, dot)))));
    path = dot == path.npos ? "" : path.substr(dot + 1);
  }
  return v;
}

Args tail(const Args& a, size_t from, std::string_view callee) {
  Args out{{}, a.named, callee};
  if (from < a.positional.size())
    out.positional.assign(a.positional.begin() + static_cast<ptrdiff_t>(from), a.positional.end());
  return out;
}

Value tojson(Context& c, const Value& self, const Args& a) {
  a.check({"indent", "ensure_ascii", "separators", "sort_keys"});
  JsonStyle style;
  style.indent = static_cast<int>(std::clamp<int64_t>(a.integer(0, "indent", -1), -1, 32));
  if (style.indent >= 0) style.item_separator.assign(1, ',');
  style.ensure_ascii = a.flag(1, "ensure_ascii", false);
  style.sort_keys = a.flag(3, "sort_keys", false);
  if (const Value* separators = a.get(2, "separators"); separators && !separators->is_none()) {
    const List* pair = separators->list();
    if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
      type_fault("chat template: tojson(): separators must be two strings");
    }
    style.item_separator = pair->items[0].text()->bytes;
    style.key_separator = pair->items[1].text()->bytes;
    if (style.item_separator.size() + style.key_separator.size() > 64)
      type_fault("chat template: tojson(): long separators");
  }
  return c.text(to_json(c, self, style));
}

Value length(Context& c, const Value& self, const Args& a) {
  a.check({});
  if (const Text* t = self.text()) {
    c.spend_bytes(t->bytes.size());
    return Value::of(utf8_count(t->bytes));
  }
  if (const List* l = self.list()) return Value::of(l->items.size());
  if (const Dict* d = self.dict()) return Value::of(d->items.size());
  if (self.is_undefined()) return Value::of(int64_t{0});
  type_fault(fmt::format("chat template: {} has no length", type_name(self)));
}

Value trim(Context& c, const Value& self, const Args& a) {
  a.check({"chars"});
  const Value* chars = a.get(0, "chars");
  return c.text(strip(c, to_text(c, self), chars && !chars->is_none() ? &a.text(0, "chars") : nullptr, 3));
}

template <std::string (*map)(std::string_view)>
Value mapped(Context& c, const Value& self, const Args& a) {
  a.check({});
  const Text t = to_text(c, self);
  c.spend_case_map(t.bytes.size());
  return c.text(t.mapped(map(t.bytes)));
}
Value title(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.text(titled(c, to_text(c, self)));
}
Value capitalize(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.text(capitalized(c, to_text(c, self)));
}
Value string(Context& c, const Value& self, const Args& a) {
  a.check({});
  return self.text() ? self : c.text(to_text(c, self));
}
Value safe(Context&, const Value& self, const Args& a) {  // nothing is escaped, so nothing needs marking
  a.check({});
  return self;
}
Value replace(Context& c, const Value& self, const Args& a) {
  a.check({"old", "new", "count"});
  return c.text(
      replace_all(c, to_text(c, self), a.text(0, "old"), a.text(1, "new"), a.integer(2, "count", -1)));
}

Value fallback(Context& c, const Value& self, const Args& a) {
  a.check({"default_value", "boolean"});
  if (!self.is_undefined() && !(a.flag(1, "boolean", false) && !truthy(self))) return self;
  const Value* value = a.get(0, "default_value");
  return value ? *value : c.text({});
}

Value join(Context& c, const Value& self, const Args& a) {
  a.check({"d", "attribute"});
  const Text separator = a.get(0, "d") ? to_text(c, *a.get(0, "d")) : Text();
  const Value* attribute = a.get(1, "attribute");
  Text out;
  bool first = true;
  for (const Value& v : c.elements(self)) {
    const Text part = to_text(c, attribute ? attribute_path(c, v, a.text(1, "attribute").bytes) : v);
    c.spend_bytes(part.bytes.size() + separator.bytes.size() +
                  sizeof(ByteRange) * separator.untrusted.size());
    if (!first) out.append(separator);
    first = false;
    out.append(part);
  }
  return c.text(std::move(out));
}

Value first(Context& c, const Value& self, const Args& a) {
  a.check({});
  const auto items = c.elements(self);
  return items.empty() ? Value::undefined("the first element of nothing") : items.front();
}
Value last(Context& c, const Value& self, const Args& a) {
  a.check({});
  const auto items = c.elements(self);
  return items.empty() ? Value::undefined("the last element of nothing") : items.back();
}
Value list(Context& c, const Value& self, const Args& a) {
  a.check({});
  return c.list(c.elements(self));
}
Value reverse(Context& c, const Value& self, const Args& a) {
  a.check({});
  auto items = c.elements(self);
  std::reverse(items.begin(), items.end());
  if (!self.text()) return c.list(std::move(items));
  Text out;
  for (const Value& v : items) out.append(*v.text());
  return c.text(std::move(out));
}
Value items(Context& c, const Value& self, const Args& a) {
  a.check({});
  if (self.is_undefined()) return c.list({});
  if (!self.dict()) type_fault(fmt::format("chat template: items of {}", type_name(self)));
  return find_method(self, "items")(c, self, a);
}

Value integer(Context& c, const Value& self, const Args& a) {
  a.check({"default"});
  Value otherwise = a.get(0, "default") ? *a.get(0, "default") : Value::of(int64_t{0});
  if (self.is_integer()) return Value::of(self.integer());
  double d = 0;
  if (self.is<double>()) {
    d = self.number();
  } else if (const Text* t = self.text()) {
    const std::string s = strip(c, *t, nullptr, 3).bytes;
    const char* begin = s.data() + (s.starts_with('+') ? 1 : 0);
    int64_t value = 0;
    const auto r = std::from_chars(begin, s.data() + s.size(), value);
    if (r.ec == std::errc() && r.ptr == s.data() + s.size()) return Value::of(value);
    const auto f = std::from_chars(begin, s.data() + s.size(), d);
    if (f.ec != std::errc() || f.ptr != s.data() + s.size()) return otherwise;
  } else {
    return otherwise;
  }
  return std::abs(d) < 9e18 ? Value::of(static_cast<int64_t>(d)) : otherwise;
}
Value floating(Context& c, const Value& self, const Args& a) {
  a.check({"default"});
  if (self.is_number()) return Value::of(self.number());
  if (const Text* t = self.text()) {
    const std::string s = strip(c, *t, nullptr, 3).bytes;
    double d = 0;
    const auto r = std::from_chars(s.data() + (s.starts_with('+') ? 1 : 0), s.data() + s.size(), d);
    if (r.ec == std::errc() && r.ptr == s.data() + s.size()) return Value::of(d);
  }
  return a.get(0, "default") ? *a.get(0, "default") : Value::of(0.0);
}
Value absolute(Context& c, const Value& self, const Args& a) {
  a.check({});
  if (!self.is_number()) type_fault(fmt::format("chat template: abs of {}", type_name(self)));
  if (self.is<double>()) return Value::of(std::abs(self.number()));
  return self.integer() < 0 ? binary_operator(c, "-", Value::of(int64_t{0}), self)
                            : Value::of(self.integer());
}

// map('filter', ..) and map(attribute='a')
Value map(Context& c, const Value& self, const Args& a) {
  std::vector<Value> out;
  const Value* attribute = a.get(SIZE_MAX, "attribute");
  if (attribute) {
    a.check({"attribute", "default"});
    const Value* otherwise = a.get(SIZE_MAX, "default");
    for (const Value& v : c.elements(self)) {
      Value found = attribute_path(c, v, a.text(SIZE_MAX, "attribute").bytes);
      if (found.is_undefined() && otherwise) found = *otherwise;
      out.push_back(std::move(found));
    }
    return c.list(std::move(out));
  }
  const std::string& name = a.text(0, "filter").bytes;
  const Builtin filter = find_filter(name);
  if (!filter || filter == &map)
    fault(Errc::kUnsupported, fmt::format("chat template: map with '{}'", name.substr(0, 60)));
  const Args rest = tail(a, 1, name);
  for (const Value& v : c.elements(self)) out.push_back(filter(c, v, rest));
  return c.list(std::move(out));
}

// select, reject, selectattr, rejectattr: [attribute,] [test, arguments..]
template <bool wanted, bool by_attribute>
Value choose(Context& c, const Value& self, const Args& a) {
  const size_t test_at = by_attribute ? 1 : 0;
  Builtin test = nullptr;
  if (test_at < a.positional.size()) {
    const std::string& name = a.text(test_at, "test").bytes;
    test = find_test(name);
    if (!test)
      fault(Errc::kUnsupported,
            fmt::format("chat template: the test '{}' is not implemented", name.substr(0, 60)));
  }
  const Args rest = tail(a, test_at + 1, a.callee);
  std::vector<Value> out;
  for (const Value& v : c.elements(self)) {
    const Value subject = by_attribute ? attribute_path(c, v, a.text(0, "attribute").bytes) : v;
    if (truthy(test ? test(c, subject, rest) : subject) == wanted) out.push_back(v);
  }
  return c.list(std::move(out));
}

Value sort_key(Context& c, const Value& v, const Value* attribute, bool case_sensitive) {
  Value key = attribute ? attribute_path(c, v, attribute->text()->bytes) : v;
  if (key.text() && !case_sensitive) {
    c.spend_case_map(key.text()->bytes.size());
    return c.text(Text::trusted(to_lower(key.text()->bytes)));
  }
  return key;
}

Value sorted(Context& c, std::vector<Value> items, const std::vector<Value>& keys, bool reversed) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Equal keys keep their order, also when reversed.
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    if (less(c, keys[x], keys[y])) return !reversed;
    if (less(c, keys[y], keys[x])) return reversed;
    return x < y;
  });
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(items[i]);
  return c.list(std::move(out));
}

Value sort(Context& c, const Value& self, const Args& a) {
  a.check({"reverse", "case_sensitive", "attribute"});
  const Value* attribute = a.get(2, "attribute");
  if (attribute) a.text(2, "attribute");
  auto elements = c.elements(self);
  std::vector<Value> keys;
  for (const Value& v : elements)
    keys.push_back(sort_key(c, v, attribute, a.flag(1, "case_sensitive", false)));
  return sorted(c, std::move(elements), keys, a.flag(0, "reverse", false));
}

Value dictsort(Context& c, const Value& self, const Args& a) {
  a.check({"case_sensitive"});
  if (!self.dict()) type_fault(fmt::format("chat template: dictsort of {}", type_name(self)));
  std::vector<Value> pairs, keys;
  for (const auto& [key, value] : self.dict()->items) {
    const Value k = c.text(key);
    pairs.push_back(c.list({k, value}, true));
    keys.push_back(sort_key(c, k, nullptr, a.flag(0, "case_sensitive", false)));
  }
  return sorted(c, std::move(pairs), keys, false);
}

Value unique(Context& c, const Value& self, const Args& a) {
  a.check({"case_sensitive"});
  std::vector<Value> out, keys;
  for (const Value& v : c.elements(self)) {
    const Value key = sort_key(c, v, nullptr, a.flag(0, "case_sensitive", false));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return equal(c, k, key); })) continue;
    keys.push_back(key);
    out.push_back(v);
  }
  return c.list(std::move(out));
}

Value indent(Context& c, const Value& self, const Args& a) {
  a.check({"width", "first", "blank"});
  const Value* width = a.get(0, "width");
  const Text margin =
      width && width->text()
          ? *width->text()
          : Text::trusted(
                std::string(static_cast<size_t>(std::clamp<int64_t>(a.integer(0, "width", 4), 0, 256)), ' '));
  const Text t = to_text(c, self);
  const bool blank = a.flag(2, "blank", false);
  Text out;
  bool indented = a.flag(1, "first", false);
  for (size_t at = 0;;) {
    const size_t newline = t.bytes.find('\n', at);
    const size_t end = newline == std::string::npos ? t.bytes.size() : newline;
    c.spend_bytes(margin.bytes.size());
    c.spend_steps(1);
    if (indented && (blank || end > at)) out.append(margin);
    indented = true;
    out.append(t.slice(at, newline == std::string::npos ? end : end + 1));
    if (newline == std::string::npos) break;
    at = newline + 1;
  }
  return c.text(std::move(out));
}

constexpr std::array kFilters = {
    Named{"tojson", tojson},
    Named{"length", length},
    Named{"count", length},
    Named{"trim", trim},
    Named{"upper", mapped<to_upper>},
    Named{"lower", mapped<to_lower>},
    Named{"title", title},
    Named{"capitalize", capitalize},
    Named{"string", string},
    Named{"safe", safe},
    Named{"replace", replace},
    Named{"default", fallback},
    Named{"d", fallback},
    Named{"join", join},
    Named{"first", first},
    Named{"last", last},
    Named{"list", list},
    Named{"reverse", reverse},
    Named{"items", items},
    Named{"int", integer},
    Named{"float", floating},
    Named{"abs", absolute},
    Named{"map", map},
    Named{"select", choose<true, false>},
    Named{"reject", choose<false, false>},
    Named{"selectattr", choose<true, true>},
    Named{"rejectattr", choose<false, true>},
    Named{"sort", sort},
    Named{"dictsort", dictsort},
    Named{"unique", unique},
    Named{"indent", indent},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  const auto it =
      std::find_if(kFilters.begin(), kFilters.end(), [&](const Named& n) { return n.name == name; });
  return it == kFilters.end() ? nullptr : it->builtin;
}

}  // namespace lariat::jinja
